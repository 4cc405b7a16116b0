"""Weather: snow, frost and fog, without the ImageMagick and photographs of the originals."""

from __future__ import annotations

import torch
from torch import Tensor

from vitreous.data.corruptions.filters import enlarge, motion_trail, visible_part
from vitreous.data.corruptions.frost import panes
from vitreous.data.corruptions.plasma import plasma
from vitreous.data.corruptions.published import EPSILON, published
from vitreous.data.random_streams import RandomStreams


@published(
    cifar=[
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ],
    imagenet=[
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ],
)
def snow(
    images: Tensor,
    rng: RandomStreams,
    mean: float,
    std: float,
    size: float,
    least: float,
    radius: int,
    sigma: float,
    keep: float,
) -> Tensor:
    """Add flakes: normal noise enlarged by `size`, cut off below `least`, with motion blur upwards.

    The flakes are added a second time upside down. The image gets paler: a share 1 - keep is
    replaced by 1.5 times its grey level plus a half, if that is brighter.
    """
    height, width = images.shape[-2:]
    visible = (visible_part(length, size) for length in (height, width))
    flakes = enlarge(rng.normal(1, *visible, mean=255 * mean, std=255 * std), (height, width), size)
    flakes = flakes.mul_(flakes >= 255 * least).clamp_(0, 255).add_(EPSILON).floor_()
    flakes = motion_trail(flakes, rng, -90, radius, sigma).add_(0.5).floor_()
    red, green, blue = images.split(1, 1)
    pale = (red * 0.4485).add_(green, alpha=0.8805).add_(blue, alpha=0.171).add_(127.5)
    return torch.maximum(images, pale).lerp_(images, keep).add_(flakes + flakes.flip(2, 3))


@published(
    cifar=[(1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)],
    imagenet=[(1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)],
)
def frost(images: Tensor, rng: RandomStreams, image: float, ice: float, scale: float) -> Tensor:
    """Blend the image with a random part of a frosted pane, with weights `image` and `ice`.

    The original has five photographs of frost; here are five panes grown by
    `vitreous.data.corruptions.frost` with the brightness, contrast and tint of those photographs.
    """
    height, width = images.shape[-2:]
    all_panes = panes(scale, max(height, width), images.device)
    choices = (all_panes.shape[0], all_panes.shape[2] - height + 1, all_panes.shape[3] - width + 1)
    for each, drawn in zip(images.mul_(image), rng.uniform(3).tolist(), strict=True):
        pane, top, left = (int(share * many) for share, many in zip(drawn, choices, strict=True))
        each.add_(all_panes[pane, :, top : top + height, left : left + width], alpha=255 * ice)
    return images


@published(
    cifar=[(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],
    imagenet=[(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
)
def fog(images: Tensor, rng: RandomStreams, thickness: float, decay: float) -> Tensor:
    """Add a plasma fractal of this thickness, then darken so that the brightest value stays."""
    height, width = images.shape[-2:]
    brightest = images.amax((1, 2, 3), keepdim=True)
    mist = plasma(rng, 1 << (max(height, width, 2) - 1).bit_length(), decay)[
        :, None, :height, :width
    ]
    return images.add_(mist, alpha=255 * thickness).mul_(brightest / (brightest + 255 * thickness))
