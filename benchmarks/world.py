"""How fast the embedded world is drawn: images per second of one thread, for every stream of
images.

    python benchmarks/world.py
    python benchmarks/world.py --images 32 64 128 --seconds 5

CPU time of one thread, one block at a time; the best and the median block are given, because what
else the machine does shows even in CPU time, through its caches. Targets for `shapes`: 20,000 a
second at 32 pixels and 5,000 at 64.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src")]

import numpy as np  # noqa: E402
import torch  # noqa: E402

from vitreous.data import world  # noqa: E402
from vitreous.data.world.tasks import BLOCK  # noqa: E402

TASKS = ("shapes", "syn-a:shape", "syn-b", "syn-c", "syn-d", "syn-e")
TARGETS = {32: 20_000, 64: 5_000}


def measure(task: str, image: int, seconds: float) -> dict[str, Any]:
    """Images per second of the best and of the median block."""
    world.load(task, size=BLOCK, image=image)  # warms up, and makes the banks of noise
    times: list[float] = []
    seed = 0
    while len(times) < 5 or sum(times) < seconds:
        seed += 1
        start = time.process_time()
        world.load(task, size=BLOCK, image=image, seed=seed)
        times.append(time.process_time() - start)
    best, middle = np.quantile(times, [0, 0.5]).tolist()
    return {
        "task": task,
        "image": image,
        "per_second": BLOCK / best,
        "per_second_median": BLOCK / middle,
        "blocks": len(times),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, nargs="+", default=[32, 64], help="sides in pixels")
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU time spent on each")
    parser.add_argument(
        "--out", type=Path, default=HERE / "results", help="folder for the dated file"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for image in given.images:
        for task in TASKS:
            rows.append(measure(task, image, given.seconds))
            print(
                "{task:>12} at {image}: {per_second:9,.0f} images/s, "
                "median {per_second_median:9,.0f}".format(**rows[-1])
            )
    about: dict[str, Any] = {
        "race": "world",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "clock": "process_time",
        "block": BLOCK,
        "targets": TARGETS,
        "rows": rows,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"world-cpu-{about['date'][:10]}.json"
    path.write_text(json.dumps(about, indent=1) + "\n")
    shapes = {row["image"]: row["per_second"] for row in rows if row["task"] == "shapes"}
    met = all(speed >= TARGETS.get(image, 0) for image, speed in shapes.items())
    print(
        f"{'Within' if met else 'Outside'} the targets for shapes ({TARGETS}); written to "
        f"{path.name}."
    )


if __name__ == "__main__":
    main()
