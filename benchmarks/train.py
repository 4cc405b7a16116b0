"""Does the input pipeline hold training back? Images per second of whole training steps, for one
model and batch.

ours            `vitreous.training.step.Step`: augmentation, compiled model, AdamW, recorded as a
CUDA graph fixed tensors   the same step on the same images and targets each time: the ceiling timm
timm's loader (PIL transforms, worker processes, prefetcher, Mixup) and a plain compiled loop

python benchmarks/train.py --device cuda
python benchmarks/train.py --device cpu --batch 64 --seconds 5
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from race import Race
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from vitreous import recipes
from vitreous.data.dataset import Dataset
from vitreous.distributed import Processes
from vitreous.models import build
from vitreous.training.objectives import Classify
from vitreous.training.optim import optimiser
from vitreous.training.step import Step

COUNT = 10_000


def images() -> Dataset:
    """Noise has the cost of photographs."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (COUNT, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return Dataset(pixels, torch.arange(COUNT) % 10, tuple("0123456789"), "noise")


def ours(name: str, batch: int, device: str, compile: bool, fixed: bool) -> Callable[[], None]:
    """Our step, with or without preparing the images anew."""
    recipe = recipes.named("fast").but(batch=batch)
    objective = Classify(build(name, image=32, classes=10, drop_path=0.1)).to(device).train()
    data = images().to(device)
    step = Step(
        objective, optimiser(objective, recipe), data, recipe, batch=batch, seed=0,
        precision="bf16" if device == "cuda" else "fp32", processes=Processes(), compile=compile,
    )  # fmt: skip
    if fixed:
        once = step.augment(step.images, step.labels, step.augment.draw(batch, step.generator))
        step.prepare = lambda *_, **__: once
    order = torch.randperm(COUNT, device=device)[: COUNT // batch * batch].view(-1, batch)
    count = iter(range(1 << 40))

    def run() -> None:
        number = next(count)
        step(number, order[number % len(order)], 1e-4)

    return run


class Pictures(torch.utils.data.Dataset[tuple[Image.Image, int]]):
    """What timm's loader reads from."""

    def __init__(self, data: Dataset) -> None:
        self.pixels: Any = data.images.permute(0, 2, 3, 1).contiguous().numpy()
        self.transform: Any = None

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        picture = Image.fromarray(self.pixels[index])
        return (self.transform(picture) if self.transform else picture), index % 10


def loader(batch: int, device: str, workers: int) -> Iterator[tuple[Tensor, Tensor]]:
    """timm's own pipeline with the same augmentation, endlessly."""
    from timm.data import FastCollateMixup, create_loader

    mix = FastCollateMixup(1.0, 0.8, prob=1.0, switch_prob=0.5, label_smoothing=0.1, num_classes=10)
    made: Any = create_loader(
        Pictures(images()), (3, 32, 32), batch, is_training=True, no_aug=False, scale=(1.0, 1.0),
        ratio=(1.0, 1.0), hflip=0.5, auto_augment="rand-m9-n2-mstd1.0", num_workers=workers,
        collate_fn=mix, device=torch.device(device), persistent_workers=workers > 0,
        use_prefetcher=True,
    )  # fmt: skip
    while True:
        yield from made


def theirs(name: str, batch: int, device: str, compile: bool, workers: int) -> Callable[[], None]:
    """The loop of timm's training script: loader, autocast, backward, clip, fused AdamW."""
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=4, num_classes=10, drop_path_rate=0.1
    ).to(device)
    model.train()
    step = torch.compile(model) if compile else model
    weights = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.05, fused=device == "cuda")
    batches = loader(batch, device, workers)

    def run() -> None:
        pixels, targets = next(batches)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = nn.functional.cross_entropy(step(pixels), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        weights.step()
        weights.zero_grad()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="vit_ti/4")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--budget", type=float, default=280.0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args()
    compile = chosen.device == "cuda"
    mode = "compiled" if compile else "eager"
    race = Race("train", chosen.device, chosen.seconds, chosen.budget, chosen.out)
    given = (chosen.model, chosen.batch, chosen.device, compile)
    began = time.perf_counter()
    race.run(chosen.model, mode, "ours", chosen.batch, lambda: ours(*given, fixed=False))
    race.run(chosen.model, mode, "fixed tensors", chosen.batch, lambda: ours(*given, fixed=True))
    if chosen.model == "vit_ti/4":
        race.run(chosen.model, mode, "timm", chosen.batch, lambda: theirs(*given, chosen.workers))
    speed = {row["contender"]: row.get("per_second", np.nan) for row in race.rows}
    print(
        f"{time.perf_counter() - began:.0f} s; ours at "
        f"{speed['ours'] / speed['fixed tensors']:.1%} of fixed tensors"
    )
    print(race.write())


if __name__ == "__main__":
    main()
