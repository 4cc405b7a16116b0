"""Pictures of all kinds, and the tensors that models get of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timm
import torch
from PIL import Image
from torch import Tensor, nn

import vitreous
from data.pictures import noise
from vitreous.measure.probe import Setting
from vitreous.measure.selection import choose_images
from vitreous.measure.subject import subjects

SIZES = [(5, 7), (33, 90), (64, 64), (120, 80), (224, 224), (301, 260)]
KINDS = (
    [("RGB", "png"), ("L", "jpg"), ("P", "png")],
    [("RGBA", "png"), ("L", "png"), ("RGB", "jpg")],
)


def write_photos(top: Path) -> Path:
    """Pictures of all kinds in two classes: grey, transparent, with a palette, tiny, not square.

    Each size has half of the kinds of files, the next size the other half.
    """
    for number, (height, width) in enumerate(SIZES):
        image = Image.fromarray(noise(1, height, width, number)[0])
        place = top / "ab"[number // 2 % 2]
        place.mkdir(exist_ok=True)
        for mode, ending in KINDS[number % 2]:
            image.convert(mode).save(place / f"{number}{mode}.{ending}", quality=90)
    return top


def files(top: Path) -> list[Path]:
    return sorted(path for path in top.rglob("*.*"))


def prepared(models: Any, top: Path, **how: Any) -> tuple[list[Tensor], Setting]:
    """The tensor that each model gets, its images in the order of their files."""
    opened = subjects(models, **how)
    data = choose_images(f"folder:{top}", None, None, opened, seed=0)
    setting = Setting(opened, data)
    # images take turns by class; the loader lists them by class and name
    loaded = vitreous.data.load(f"folder:{top}", split="all", framing=opened[0].framing)
    order = [int((data.images == each).flatten(1).all(1).nonzero()[0]) for each in loaded.images]
    tensors = []
    for subject in setting.subjects:
        assert subject.framing is not None
        tensors.append(subject.prepare(data.framed(subject.framing).images[order]))
    return tensors, setting


def by_timm(model: nn.Module, top: Path, **args: Any) -> Tensor:
    config = timm.data.resolve_data_config(args, model=model)
    transform = timm.data.create_transform(**config)
    return torch.stack([transform(Image.open(file).convert("RGB")) for file in files(top)])
