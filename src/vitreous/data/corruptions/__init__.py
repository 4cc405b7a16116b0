"""The corruptions of CIFAR-10-C and ImageNet-C: fifteen kinds and four extra, five severities.

    corrupt(images, "fog", 3)

Hendrycks and Dietterich, "Benchmarking neural network robustness to common corruptions and
perturbations", ICLR 2019.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from vitreous.data.corruptions.blur import (
    defocus_blur,
    gaussian_blur,
    glass_blur,
    motion_blur,
    zoom_blur,
)
from vitreous.data.corruptions.digital import (
    brightness,
    contrast,
    elastic_transform,
    jpeg_compression,
    pixelate,
    saturate,
)
from vitreous.data.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from vitreous.data.corruptions.published import Corruption, Size
from vitreous.data.corruptions.spatter import spatter
from vitreous.data.corruptions.weather import fog, frost, snow
from vitreous.data.random_streams import RandomStreams
from vitreous.errors import BadImages, UnknownName, VitreousError

GROUPS: dict[str, tuple[Corruption, ...]] = {
    "noise": (gaussian_noise, shot_noise, impulse_noise),
    "blur": (defocus_blur, glass_blur, motion_blur, zoom_blur),
    "weather": (snow, frost, fog),
    "digital": (brightness, contrast, elastic_transform, pixelate, jpeg_compression),
}
CORRUPTIONS = tuple(each.name for group in GROUPS.values() for each in group)
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
KINDS = {
    each.name: each
    for each in (*sum(GROUPS.values(), ()), speckle_noise, gaussian_blur, spatter, saturate)
}

AT_ONCE = {"cpu": 1 << 17, "cuda": 1 << 27}
"""Maximum number of values processed at a time: they fit into the cache of a CPU, and leave memory
for a model on a GPU."""


@torch.no_grad()
def corrupt(
    images: Tensor,
    kind: str,
    severity: int,
    *,
    seed: int = 0,
    first: int = 0,
    size: Size | None = None,
) -> Tensor:
    """Corrupt images, on their device.

    Parameters
    ----------
    images : Tensor
        uint8 (n, 3, h, w).
    kind : str
        A name of `CORRUPTIONS` or `EXTRA`.
    severity : int
        From 1 to 5.
    seed, first : int
        The random seed, and the place of the first image in its dataset. The corruption depends on
        seed, kind, severity and place alone, so batches of any size give the same images.
    size : {"cifar", "imagenet"}, optional
        The published set of strengths (default: "cifar" if both sides are below 96 pixels).

    Returns
    -------
    Tensor
        uint8 (n, 3, h, w); values are rounded down, as published.
    """
    _check(images, kind, severity, size)
    corruption = KINDS[kind]
    size = size or ("cifar" if max(images.shape[-2:]) < 96 else "imagenet")
    streams = partial(RandomStreams, f"{kind} {severity} {seed}", device=images.device)
    rows = max(1, AT_ONCE.get(images.device.type, 1 << 24) // max(1, math.prod(images.shape[1:])))
    if 0 < len(images) <= rows:
        return corruption(images, partial(streams, first, len(images)), severity, size)
    done = torch.empty_like(images)
    for start in range(0, len(images), rows):
        some = images[start : start + rows]
        done[start : start + rows] = corruption(
            some, partial(streams, first + start, len(some)), severity, size
        )
    return done


def _check(images: Tensor, kind: str, severity: int, size: str | None) -> None:
    if kind not in KINDS:
        raise UnknownName("corruption", kind, KINDS, f"There are {', '.join(KINDS)}.")
    if isinstance(severity, bool) or not isinstance(severity, int) or not 1 <= severity <= 5:
        raise VitreousError(
            f"A severity is a whole number from 1 to 5, and {severity!r} was asked for."
        )
    if size not in ("cifar", "imagenet", None):
        raise UnknownName("set of strengths", size, ("cifar", "imagenet"))
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise BadImages(
            "Corruptions take uint8 images (n, 3, height, width), and these are "
            f"{str(images.dtype)[6:]} "
            f"{tuple(images.shape)}; corrupt before normalising, or convert with (images * "
            "255).round().byte()."
        )
