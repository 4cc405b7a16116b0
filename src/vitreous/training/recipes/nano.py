"""Recipes of our own, for small networks on the synthetic datasets."""

from __future__ import annotations

from vitreous.config import Augment, Recipe


def quick() -> Recipe:
    """A small network on a laptop: three minutes on two cores; the default of `vitreous train`."""
    return Recipe(
        name="quick",
        epochs=4,
        batch=64,
        lr=1e-3,
        weight_decay=0.05,
        warmup=0.5,
        clip=1.0,
        augment=Augment(crop="none", flip=0.0),
    )


def nano() -> Recipe:
    """The bundled networks: twenty epochs of 60,000 images of `world:shapes`."""
    return Recipe(
        name="nano",
        epochs=20,
        batch=512,
        lr=1e-3,
        weight_decay=0.05,
        warmup=2,
        clip=1.0,
        precision="fp32",
        augment=Augment(crop="none", flip=0.0, smoothing=0.1),
        model={"drop_path": 0.05},
    )


def sanity() -> Recipe:
    """Very small networks on a synthetic task: seconds on one core, small shifts, soft labels.

    Images are neither flipped nor mixed, because the class may depend on position or direction.
    """
    return Recipe(
        name="sanity",
        epochs=10,
        batch=64,
        lr=2e-3,
        weight_decay=0.05,
        warmup=1,
        warmup_extra=True,
        clip=1.0,
        precision="fp32",
        augment=Augment(padding=1, flip=0.0, smoothing=0.1),
    )
