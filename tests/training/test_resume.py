"""What `killed.py` tests, in a process of its own.

Those tests fork, and torch refuses gradients in the fork of a process whose autograd has once used
threads, which other tests make it do. Where they run before, in the same process, depends on how
files are dealt out to workers.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

KILLED = Path(__file__).with_name("killed.py")


def test_killed_runs_in_a_process_of_their_own() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        str(KILLED),
    ]
    found = subprocess.run(
        command, cwd=KILLED.parents[2], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout[-4000:]
    passed = re.search(r"(\d+) passed", found.stdout)
    assert passed is not None
    assert int(passed[1]) >= 22
