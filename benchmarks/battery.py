"""What the whole battery costs: all probes in one pass, against a plain forward pass over the same
images.

    python benchmarks/battery.py
    python benchmarks/battery.py --device cuda --images 50000 --repeats 2  # as in ImageNet
    python benchmarks/battery.py --probes variance fourier --images 64 --shard 64

Time: on a CPU the CPU time of one thread, which a busy machine does not change much, on a GPU the
clock; opening the model is not in it, answering is. Each probe's share is the time spent inside its
own functions; `looking` is what is left: attention probabilities, which fused attention never
makes, and the taps. On a GPU shares are taken in a pass of their own, because waiting for the GPU
after every function makes all of them slower. Memory: how far a fresh process grows during one
shard, or the most that the GPU had to hold during two. Targets for ViT-S at 224: 2.0 times the time
on a CPU, 1.6 times on a GPU, twice the memory.
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
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src")]

import numpy as np  # noqa: E402
import timm  # noqa: E402
import torch  # noqa: E402

from vitreous.data.dataset import Dataset  # noqa: E402
from vitreous.measure import probes as questions  # noqa: E402
from vitreous.measure.engine import SHARD  # noqa: E402
from vitreous.measure.probe import Probe, Setting, Sums  # noqa: E402
from vitreous.measure.streaming import Pass  # noqa: E402
from vitreous.measure.subject import subjects  # noqa: E402

TARGETS = {"cpu": 2.0, "cuda": 1.6, "memory": 2.0}


class Race:
    """A model, images, and the two ways through."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.device = torch.device(given.device)
        self.clock = time.process_time if self.device.type == "cpu" else time.perf_counter
        torch.manual_seed(0)
        self.model = timm.create_model(given.model).eval()
        (self.subject,) = subjects({given.model: self.model}, device=self.device)
        self.model = self.model.to(self.device)
        side = self.subject.specimen.anatomy.image[1:]
        classes = self.subject.outputs or 0
        pixels = torch.randint(0, 256, (min(given.images, 2048), 3, *side), dtype=torch.uint8)
        pixels = pixels.repeat(-(-given.images // len(pixels)), 1, 1, 1)[: given.images]
        names = tuple(map(str, range(classes)))
        self.data = Dataset(
            pixels, torch.randint(0, classes, (given.images,)), names, "noise", "test"
        )
        self.shard, self.names = (
            given.shard or SHARD[given.device],
            given.probes or questions.names(),
        )

    def plain(self, images: int | None = None) -> None:
        """The model alone."""
        with torch.no_grad():
            for part in self.data.images[:images].split(self.shard):
                self.model(self.subject.prepare(part))
        self.wait()

    def battery(
        self, watch: Callable[[Probe], None] = lambda probe: None, images: int | None = None
    ) -> Sums:
        """All probes, answers included; `watch` may put a clock into each."""
        chosen = tuple(questions.named(name)() for name in self.names)
        fewer = images is not None and images < len(self.data)
        data = self.data.take(range(images or 0)) if fewer else self.data
        passing = Pass(chosen, Setting((self.subject,), data), self.shard, self.shard)
        for probe in chosen:
            watch(probe)
        sums: Sums = {}
        for _, found in passing.stream(range(passing.shards)):
            for name, value in found.items():
                sums[name] = sums[name] + value if name in sums else value
        for probe in chosen:
            asked = passing.suited(probe)
            own = {
                n.partition(":")[2]: v for n, v in sums.items() if n.startswith(f"{probe.name}:")
            }
            if asked:
                probe.answer(own, asked)
        self.wait()
        return sums

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def timed(self, run: Callable[[], object]) -> float:
        begun = self.clock()
        run()
        return self.clock() - begun

    def shares(self) -> tuple[float, dict[str, float]]:
        """Seconds of a battery, and those inside each probe."""
        spent: dict[str, float] = defaultdict(float)

        def watch(probe: Probe) -> None:
            for method in ("update", "update_output", "end_shard", "answer"):
                setattr(probe, method, self._clocked(getattr(probe, method), probe.name, spent))

        return self.timed(lambda: self.battery(watch)), dict(spent)

    def _clocked(
        self, function: Callable[..., Any], name: str, spent: dict[str, float]
    ) -> Callable[..., Any]:
        def clocked(*given: Any) -> Any:
            self.wait()
            begun = self.clock()
            try:
                return function(*given)
            finally:
                self.wait()
                spent[name] += self.clock() - begun

        return clocked


def grown(race: Race, contender: str) -> int:
    """Bytes that one shard, on a GPU two, take beyond what is there before."""
    run = race.plain if contender == "plain" else race.battery
    if (
        race.device.type == "cuda"
    ):  # two shards, since the second is begun before the sums of the first are fetched
        run(images=2 * race.shard)  # type: ignore[call-arg]
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(race.device)
        before = torch.cuda.memory_allocated(race.device)
        run(images=2 * race.shard)  # type: ignore[call-arg]
        return torch.cuda.max_memory_allocated(race.device) - before
    run(images=2 if contender == "plain" else 8)  # type: ignore[call-arg]
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    reader, writer = os.pipe()
    if os.fork() == 0:  # a fork begins with a high-water mark of its own
        before = peak()
        run(images=race.shard)  # type: ignore[call-arg]
        os.write(writer, str(peak() - before).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        found = int(answer.read())
    os.wait()
    return found


def peak() -> int:
    """The most this process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def memories() -> dict[str, int]:
    """Each contender in a fresh process, which gives back at once what it frees, so that it
    shows."""
    given = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    found = {}
    for contender in ("plain", "battery"):
        command = [sys.executable, *sys.argv, "--grow", contender]
        found[contender] = int(
            subprocess.run(command, env=given, check=True, capture_output=True, text=True).stdout
        )
    return found


def weight(sums: Sums, name: str) -> float:
    """MiB of the sums of a probe, which an inspection writes to disk after every shard."""
    return sum(value.nbytes for key, value in sums.items() if key.startswith(f"{name}:")) / 2**20


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="vit_small_patch16_224", help="any name of timm")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--shard", type=int, help="as an inspection has it if not given")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--probes", nargs="*", help="all if not given")
    parser.add_argument(
        "--out", type=Path, default=HERE / "results", help="folder for the dated file"
    )
    parser.add_argument("--grow", choices=("plain", "battery"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    given = parsed()
    race = Race(given)
    if given.grow:
        print(grown(race, given.grow))
        return
    race.plain(8)
    sums = race.battery(images=8)  # everything has run once
    taken: dict[str, list[float]] = {"plain": [], "battery": []}
    for _ in range(given.repeats):
        taken["plain"].append(race.timed(race.plain))
        if given.device == "cuda":
            taken["battery"].append(race.timed(race.battery))
    watched, spent = race.shares()
    if given.device == "cpu":
        taken["battery"].append(watched)
    plain, battery = (float(np.median(taken[name])) for name in ("plain", "battery"))
    grew = memories()
    rows = [
        {"probe": n, "share": spent.get(n, 0.0) / plain, "MiB": weight(sums, n)} for n in race.names
    ]
    rows.append(
        {"probe": "looking", "share": (watched - sum(spent.values())) / plain - 1, "MiB": 0.0}
    )
    for row in sorted(rows, key=lambda row: -row["share"]):  # type: ignore[operator]
        print("{probe:>20}: {share:6.3f} of a plain pass, sums of {MiB:7.2f} MiB".format(**row))
    ratio, memory = battery / plain, grew["battery"] / grew["plain"]
    print(f"plain {1e3 * plain / given.images:.1f} ms an image, battery {ratio:.2f}x; ", end="")
    print(f"{grew['plain'] / 2**20:.0f} MiB, battery {memory:.2f}x")
    about: dict[str, Any] = {
        "race": "battery",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: getattr(given, name) for name in ("model", "images", "shard", "repeats")},
        "device": torch.cuda.get_device_name()
        if given.device == "cuda"
        else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "targets": {"time": TARGETS[given.device], "memory": TARGETS["memory"]},
        "ms_an_image": 1e3 * plain / given.images,
        "time": ratio,
        "MiB": grew["plain"] / 2**20,
        "memory": memory,
        "rows": rows,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"battery-{given.model}-{given.device}-{about['date'][:10]}.json"
    path.write_text(json.dumps(about, indent=1) + "\n")
    met = ratio <= TARGETS[given.device] and memory <= TARGETS["memory"]
    print(
        f"{'Within' if met else 'Outside'} the targets {about['targets']}; written to {path.name}."
    )


if __name__ == "__main__":
    main()
