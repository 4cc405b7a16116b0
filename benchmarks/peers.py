"""Packages that ours is measured against, installed for a while, and contenders in processes of
their own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def installed(packages: Sequence[str]) -> Iterator[str]:
    """A folder with these alone, not with what they need; it is removed afterwards."""
    commands = (
        ["uv", "pip", "install", "-q", "--python", sys.executable],
        [sys.executable, "-m", "pip", "install", "-q"],
    )
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            with contextlib.suppress(FileNotFoundError):
                if (
                    subprocess.run(
                        [*command, "--no-deps", "--target", folder, *packages]
                    ).returncode
                    == 0
                ):
                    break
        else:
            raise SystemExit(f"{', '.join(packages)} could not be installed.")
        yield folder


def contender(script: str, options: Sequence[object], folder: str = "") -> dict[str, Any]:
    """What a script prints in its last line when it is run with these options on one thread;
    `folder` has its peers."""
    paths = [path for path in (folder, os.environ.get("PYTHONPATH", "")) if path]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, script, *map(str, options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[2:])} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
