"""What looking inside costs: a plain forward pass against one in which every unit is seen and
reduced on the fly.

    python benchmarks/observe.py
    python benchmarks/observe.py --model resnet50 --batch 16 --repeats 5

Time: CPU time of one thread, the contenders taking turns, medians and quartiles. Memory: how far
the resident set of a fresh process grows during one pass, the model being open already and every
kernel having run once. Targets, for streams of ViT-S at 224: at most 1.25 times the time and 1.5
times the memory of the plain pass.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src")]

import numpy as np  # noqa: E402
import timm  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

import vitreous  # noqa: E402
from vitreous.specimen.anatomy import Unit  # noqa: E402
from vitreous.specimen.observe import Sites  # noqa: E402

CONTENDERS = ("plain", "streams", "streams and attention")
TARGETS = {"time": 1.25, "memory": 1.5}
Pass = Callable[[Tensor], None]


def passes(name: str) -> tuple[dict[str, Pass], tuple[int, int, int]]:
    """The contenders, and the shape of an image."""
    torch.manual_seed(0)
    model = timm.create_model(name).eval()
    specimen = vitreous.open(model)

    def reduce(unit: Unit, sites: Sites) -> None:
        for feature in (sites.before, sites.branch, sites.after):
            if feature is not None and (feature.layout is not None or feature.raw.ndim < 4):
                feature.tokens.mean(1)
        if sites.attention is not None:
            sites.attention.values.mean(-2)

    def plain(images: Tensor) -> None:
        with torch.no_grad():
            model(images)

    return {
        "plain": plain,
        "streams": lambda images: void(specimen.observe(images, each=reduce)),
        "streams and attention": lambda images: void(
            specimen.observe(images, ("before", "branch", "after", "attention"), each=reduce)
        ),
    }, specimen.anatomy.image


def void(value: object) -> None:
    """Forget the result."""


def times(name: str, batch: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of each pass, the contenders taking turns so that a busy moment hits all of them."""
    contenders, shape = passes(name)
    images = torch.randn(batch, *shape)
    taken: dict[str, list[float]] = {contender: [] for contender in contenders}
    for repeat in range(repeats + 1):  # the first round warms up
        for contender, run in contenders.items():
            start = time.process_time()
            run(images)
            if repeat:
                taken[contender].append(time.process_time() - start)
    return taken


def growth(name: str, batch: int, contender: str) -> int:
    """Bytes by which this process grows during one pass.

    A fork begins with a high-water mark of its own, so that the peak of opening the model does not
    hide the pass.
    """
    contenders, shape = passes(name)
    contenders[contender](torch.randn(1, *shape))
    images = torch.randn(batch, *shape)
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    reader, writer = os.pipe()
    if os.fork() == 0:
        before = peak()
        contenders[contender](images)
        os.write(writer, str(peak() - before).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        grown = int(answer.read())
    os.wait()
    return grown


def peak() -> int:
    """The most this process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def memories(name: str, batch: int) -> dict[str, int]:
    """Growth of a fresh process per contender; what is freed goes back to the system at once, so
    that it shows."""
    given = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    found = {}
    for contender in CONTENDERS:
        command = [
            sys.executable,
            __file__,
            "--model",
            name,
            "--batch",
            str(batch),
            "--grow",
            contender,
        ]
        found[contender] = int(
            subprocess.run(command, env=given, check=True, capture_output=True, text=True).stdout
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="vit_small_patch16_224", help="any name of timm")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--out", type=Path, default=HERE / "results", help="folder for the dated file"
    )
    parser.add_argument("--grow", choices=CONTENDERS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.grow:
        print(growth(given.model, given.batch, given.grow))
        return
    taken, grown = (
        times(given.model, given.batch, given.repeats),
        memories(given.model, given.batch),
    )
    rows = []
    for contender in CONTENDERS:
        low, middle, high = np.quantile(taken[contender], [0.25, 0.5, 0.75]).tolist()
        pairs = np.divide(taken[contender], taken["plain"])
        rows.append({
            "contender": contender,
            "ms": 1e3 * middle,
            "ms_quartiles": [1e3 * low, 1e3 * high],
            "time": float(np.median(pairs)),
            "MiB": grown[contender] / 2**20,
            "memory": grown[contender] / grown["plain"],
        })  # fmt: skip
        print(
            "{contender:>22}: {ms:8.1f} ms ({time:.2f}x) {MiB:8.1f} MiB ({memory:.2f}x)".format(
                **rows[-1]
            )
        )
    about: dict[str, Any] = {
        "race": "observe",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": given.model,
        "batch": given.batch,
        "repeats": given.repeats,
        "device": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "targets": TARGETS,
        "rows": rows,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"observe-{given.model}-cpu-{about['date'][:10]}.json"
    path.write_text(json.dumps(about, indent=1) + "\n")
    streams = rows[1]
    met = all(streams[key] <= target for key, target in TARGETS.items())
    print(
        f"{'Within' if met else 'Outside'} the targets for streams ({TARGETS}); written to "
        f"{path.name}."
    )


if __name__ == "__main__":
    main()
