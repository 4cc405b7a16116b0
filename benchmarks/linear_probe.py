"""What ridge probes of every unit cost, against a plain forward pass over the same images.

    python benchmarks/linear_probe.py
    python benchmarks/linear_probe.py --device cuda --images 10000 --batch 256
    python benchmarks/linear_probe.py --model vit_tiny_patch16_224 --images 64

Probes of the class token, of the mean over positions and of the first position, from 5, 10 and all
images of each class, of every unit, fitted on four fifths of the images and asked on the rest.
Time: on a CPU the CPU time of one thread, on a GPU the clock; opening the model is not in it.
Looking and adding up cost the same for every image, solving costs the same however many images
there are, so the two are measured apart, and `at` says what they come to for 10,000 images:
measured if that many passed, computed from the two otherwise. Target for ViT-S at 224: twice the
forward pass.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src")]

import timm  # noqa: E402
import torch  # noqa: E402

from vitreous.data.dataset import Dataset  # noqa: E402
from vitreous.measure.analyses import linear_probe  # noqa: E402
from vitreous.measure.analysis import Bench  # noqa: E402
from vitreous.measure.probe import Setting  # noqa: E402
from vitreous.measure.readout import fitting  # noqa: E402
from vitreous.measure.subject import subjects  # noqa: E402

TARGET, AT = 2.0, 10_000


class Race:
    """A model, images, and the two ways through."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.device = torch.device(given.device)
        self.clock = time.process_time if self.device.type == "cpu" else time.perf_counter
        torch.manual_seed(0)
        (self.subject,) = subjects(
            {given.model: timm.create_model(given.model).eval()}, device=self.device
        )
        self.batch = given.batch
        asked = given.images // 5
        names = tuple(map(str, range(given.classes)))
        self.sets = {
            split: Dataset(
                self._pixels(count), torch.arange(count) % given.classes, names, "noise", split
            )
            for split, count in (("train", given.images - asked), ("test", asked))
        }
        self.solving = 0.0

    def _pixels(self, count: int) -> torch.Tensor:
        return torch.randint(
            0, 256, (count, 3, *self.subject.specimen.anatomy.image[1:]), dtype=torch.uint8
        )

    def plain(self) -> None:
        """The model alone."""
        with torch.no_grad():
            for data in self.sets.values():
                for part in data.images.split(self.batch):
                    self.subject.specimen(self.subject.prepare(part))
        self.wait()

    def probes(self) -> int:
        """All probes; how many."""
        bench = Bench(
            Setting((self.subject,), self.sets["test"]), self.batch, {"train": self.sets["train"]}
        )
        question = linear_probe.LinearProbe()
        with question.work(self.subject, bench) as work:
            found = [work(piece) for piece in question.pieces(self.subject, bench)]
        self.wait()
        return sum(numbers["right"].shape[0] * numbers["right"].shape[1] for numbers in found)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def timed(self, run: Callable[[], Any]) -> tuple[float, Any]:
        begun = self.clock()
        found = run()
        self.wait()
        return self.clock() - begun, found

    def watched(self) -> tuple[float, float, int]:
        """Seconds of all, those of solving, and the number of probes."""
        self.solving = 0.0
        names = ("choose_penalty", "solve", "join_moments")
        given = {name: getattr(fitting, name) for name in names}

        def clocked(function: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any) -> Any:
                self.wait()
                seconds, found = self.timed(lambda: function(*arguments))
                self.solving += seconds
                return found

            return run

        for name, function in given.items():
            setattr(fitting, name, clocked(function))
        try:
            seconds, count = self.timed(self.probes)
        finally:
            for name, function in given.items():
                setattr(fitting, name, function)
        return seconds, self.solving, count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="vit_small_patch16_224")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    given = parser.parse_args()
    torch.set_num_threads(1)
    race = Race(given)
    race.subject.specimen(
        race.subject.prepare(race.sets["test"].images[:2])
    )  # a pass that does not count
    rounds = [(race.timed(race.plain)[0], race.watched()) for _ in range(2)]
    plain = min(one for one, _ in rounds)
    seconds, solving, count = min(other for _, other in rounds)
    looking = (seconds - solving) / plain
    whole = (
        seconds / plain if given.images >= AT else looking + solving / (plain / given.images * AT)
    )
    print(f"{given.model}, {count} probes, {given.images} images, {given.device}")
    print(f"  forward pass {plain:8.2f} s, {1000 * plain / given.images:.1f} ms an image")
    print(
        f"  with probes  {seconds:8.2f} s, of which solving {solving:.2f} s; the rest "
        f"{looking:.3f} x the forward pass"
    )
    print(f"  at {AT:,} images {whole:.3f} x the forward pass (target {TARGET:.0f})")
    now = datetime.now(UTC)
    record = {
        "race": "linear_probe", "date": now.isoformat(timespec="seconds"), "device": given.device,
        "machine": platform.machine(), "torch": torch.__version__,
        "python": platform.python_version(), "clock": race.clock.__name__, "model": given.model,
        "images": given.images, "classes": given.classes, "batch": given.batch, "probes": count,
        "plain_s": plain, "probes_s": seconds, "solving_s": solving, "looking": looking, "at": AT,
        "ratio": whole, "measured": given.images >= AT, "target": TARGET,
    }  # fmt: skip
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / f"linear_probe-{given.device}-{now:%Y-%m-%d}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
