"""How long small commands take, from the start of Python to its end.

    python benchmarks/startup.py
    python benchmarks/startup.py --repeats 20

Each runs in a new process, the commands taking turns; the best and the median run are given, in
processor time and by the clock. Target: 1.5 s by the clock on an idle machine. That none of them
imports torch is checked by a test.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
COMMANDS = (
    "--help", "inspect --help", "lesion --help", "list models", "list probes", "list analyses",
    "list recipes", "doctor", "claims list", "claims show VIT-13",
)  # fmt: skip
TARGET_S = 1.5


def run(command: str) -> tuple[float, float]:
    """Seconds of the processor and of the clock."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "vitreous", *command.split()],
        env=environment, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    clock = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=9)
    chosen = parser.parse_args()
    load_before = os.getloadavg()[0]
    times: dict[str, list[tuple[float, float]]] = {command: [] for command in COMMANDS}
    for command in COMMANDS:
        run(command)  # compiles, and fills the cache of the system
    for _ in range(chosen.repeats):
        for command in COMMANDS:
            times[command].append(run(command))
    rows: list[dict[str, Any]] = []
    for command, measured in times.items():
        processor, clock = zip(*measured, strict=True)
        row = {"command": command, "cpu_s": min(processor), "cpu_median_s": median(processor),
               "clock_s": min(clock), "clock_median_s": median(clock)}  # fmt: skip
        rows.append(row)
        print(json.dumps(row))
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": [load_before, os.getloadavg()[0]],
        "python": platform.python_version(),
        "target_s": TARGET_S,
        "rows": rows,
    }
    file = HERE / "results" / f"startup-cpu-{datetime.now(UTC):%Y-%m-%d}.json"
    file.write_text(json.dumps(about, indent=1) + "\n")
    print(f"Wrote {file}")


if __name__ == "__main__":
    main()
