"""A training that takes half a second and uses everything: mixing, RandAugment, drop-path,
clipping, a running mean."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch

from vitreous.config import Augment, Recipe
from vitreous.data.dataset import Dataset
from vitreous.training import loop
from vitreous.training.loop import Trained, train

RECIPE = Recipe(
    name="toy",
    epochs=3,
    batch=16,
    lr=3e-3,
    warmup=1,
    clip=1.0,
    ema=0.9,
    keep="epochs",
    augment=Augment(
        padding=1, randaugment="rand-m5-n1-mstd0.5", mixup=0.8, cutmix=1.0, smoothing=0.1
    ),
    model={"depth": 1, "width": 16, "heads": 2, "drop_path": 0.2},
)


def images(count: int = 70, split: str = "train", classes: int = 3) -> Dataset:
    """Noise whose mean says the class, more or less."""
    generator = torch.Generator().manual_seed(len(split))
    labels = torch.arange(count) % classes
    noise = torch.randint(0, 120, (count, 3, 16, 16), generator=generator)
    pixels = (noise + 40 * labels.view(-1, 1, 1, 1)).to(torch.uint8)
    return Dataset(
        pixels,
        labels,
        tuple(f"class {c}" for c in range(classes)),
        "toy",
        split,
        (0.4,) * 3,
        (0.2,) * 3,
    )


def go(out: Path, recipe: Recipe = RECIPE, model: Any = "vit_nano", **options: Any) -> Trained:
    """Train it."""
    options = {"test": images(31, "test"), "device": "cpu", "show": False, **options}
    return train(model, options.pop("data", images()), recipe, out=out, **options)


def lines(trained: Trained) -> list[dict[str, Any]]:
    """The records without what the clock says."""
    timed = ("seconds", "images_per_second")
    return [
        {key: value for key, value in each.items() if key not in timed}
        for each in trained.run.records()
    ]


def train_and_die(folder: Path, deadly_write: int | None = None) -> None:
    """Train in a process that dies before the given file gets its name. The state is saved after
    every step, so that there are many places to be killed in."""
    torch.set_num_threads(1)
    loop.SAVE_EVERY = 0.0
    left, fsync = [deadly_write], os.fsync

    def fatal(fd: Any) -> None:
        if left[0] is not None:
            left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(fd)

    os.fsync = fatal
    go(folder)
