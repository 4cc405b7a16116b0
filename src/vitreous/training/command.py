"""What `vitreous train` does with its options before it calls `train`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from vitreous import recipes
from vitreous.data import load
from vitreous.data.subsets import fraction as share_of
from vitreous.data.subsets import iso_samples
from vitreous.models.loading import load as load_model
from vitreous.training.loop import Trained, train


def run(
    model: str,
    data: str,
    recipe: str,
    changes: Mapping[str, Any],
    *,
    image: int | None,
    size: int | None,
    test_size: int | None,
    fraction: float,
    iso: Literal["epochs", "samples"],
    pretrained: bool,
    teacher: str | None,
    out: Path | None,
    seed: int,
    device: str,
    compile: bool | None,
    show: bool,
) -> Trained:
    """Recipe, images and teacher by their names, a fraction of the images if asked (A3.11, A3.12), then training."""
    chosen = recipes.named(recipe).but(**changes)
    images = load(data, image=image, size=size)
    test = load(data, split="test", image=image, size=test_size)
    if fraction != 1:
        images = share_of(images, fraction, seed=seed)
        if iso == "samples":
            chosen = chosen.but(epochs=iso_samples(chosen.epochs, fraction))
    taught = load_model(teacher, pretrained=not teacher.startswith(("run:", "nano:"))) if teacher else None
    return train(
        model, images, chosen,
        test=test, out=out, seed=seed, device=device, pretrained=pretrained, teacher=taught, compile=compile, show=show,
    )  # fmt: skip
