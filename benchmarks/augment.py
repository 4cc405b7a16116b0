"""Augmentation of whole batches against timm's Pillow pipeline in a DataLoader, for the recipe of
Park and Kim (D1).

    python benchmarks/augment.py                                  # one thread, 2 workers
    python benchmarks/augment.py --device cuda --batch 1024 --workers 16

Pad-crop, flip, RandAugment rand-m9-n2-mstd1.0, mixup 1.0 / CutMix 0.8 and label smoothing 0.1, on
images of 32 pixels that are in memory as uint8. Ours: eager and compiled, to normalised images and
soft targets on the device. timm's: the same operations image by image, collated, mixed by timm's
Mixup on the device: in this process (on a CPU by the time of its one thread, as ours), and with
workers, by the wall clock. Needs torch, torchvision and timm only.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from race import Race, Step  # noqa: E402
from timm.data.auto_augment import rand_augment_transform  # noqa: E402
from timm.data.mixup import Mixup  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402
from torchvision import transforms  # noqa: E402

from vitreous.config import Augment  # noqa: E402
from vitreous.data.augment import Augmenter  # noqa: E402

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
CLASSES = 100
HDV = Augment(randaugment="rand-m9-n2-mstd1.0", mixup=1.0, cutmix=0.8, smoothing=0.1)


def ours(batch: int, side: int, device: str, compiled: bool) -> Step:
    augmenter = Augmenter(HDV, image=(side, side), classes=CLASSES, mean=MEAN, std=STD)
    images = torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8, device=device)
    labels = torch.randint(0, CLASSES, (batch,), device=device)
    generator = torch.Generator(device).manual_seed(0)
    apply: Any = (
        torch.compile(augmenter.__call__, fullgraph=True, dynamic=False) if compiled else augmenter
    )

    def step() -> None:
        apply(images, labels, augmenter.draw(batch, generator))

    return step


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Images in memory, transformed one by one as timm does, without end."""

    def __init__(self, side: int) -> None:
        self.pixels = np.random.default_rng(0).integers(
            0, 256, (2048, side, side, 3), dtype=np.uint8
        )
        mean = tuple(round(255 * each) for each in MEAN)
        randaugment = rand_augment_transform(
            HDV.randaugment, {"img_mean": mean, "translate_const": int(0.45 * side)}
        )
        crop = [
            transforms.RandomCrop(side, HDV.padding),
            transforms.RandomHorizontalFlip(HDV.flip),
            randaugment,
        ]
        self.transform = transforms.Compose(
            [*crop, transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        )

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.pixels[at % 2048])), at % CLASSES


def theirs(batch: int, side: int, device: str, workers: int) -> Iterator[float]:
    """Seconds between batches."""
    mix = Mixup(HDV.mixup, HDV.cutmix, label_smoothing=HDV.smoothing, num_classes=CLASSES)
    loader = DataLoader(Pictures(side), batch, num_workers=workers, pin_memory=device == "cuda")
    last = time.perf_counter()
    for images, labels in loader:
        mix(images.to(device, non_blocking=True), labels.to(device, non_blocking=True))
        if device == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        yield now - last
        last = now


def loader_row(batch: int, side: int, device: str, workers: int, seconds: float) -> dict[str, Any]:
    """The loader's speed once its workers run, over at least `seconds`: all batches over all the
    time they took."""
    took: list[float] = []
    for count, each in enumerate(theirs(batch, side, device, workers)):
        if count >= 2 * workers + 2:  # what the workers had in store when the clock started
            took.append(each)
        if len(took) >= 2 * workers and sum(took) > seconds:
            break
    return {
        "case": f"{side} px",
        "mode": f"{workers} workers",
        "contender": "timm",
        "batch": batch,
        "per_second": batch * len(took) / sum(took),
        "ms": 1e3 * sum(took) / len(took),
    }


def void(value: object) -> None:
    """Forget the result."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    given = parser.parse_args()
    if given.device == "cpu":
        torch.set_num_threads(1)
    race = Race("augment", given.device, given.seconds, budget=600, folder=given.out)
    case = f"{given.side} px"
    with torch.no_grad():
        for mode in ("eager", "compiled"):
            race.run(
                case, mode, "ours", given.batch,
                lambda mode=mode: ours(given.batch, given.side, given.device, mode == "compiled"),
            )  # fmt: skip
        times = theirs(given.batch, given.side, given.device, workers=0)
        race.run(case, "this process", "timm", given.batch, lambda: lambda: void(next(times)))
        row = loader_row(given.batch, given.side, given.device, given.workers, given.seconds)
    race.rows.append(row)
    print(f"{row['case']}, {row['mode']}, timm: {row['per_second']:.1f} images/s")
    *mine, alone = [each for each in race.rows[:-1] if "per_second" in each]
    for each in mine:
        core, loader = (each["per_second"] / other["per_second"] for other in (alone, row))
        print(
            f"ours, {each['mode']}: {each['ms']:.2f} ms a batch; "
            f"{core:.1f} times timm in one process, {loader:.1f} times its loader"
        )
    print(f"written to {race.write()}")


if __name__ == "__main__":
    main()
