"""Spatter: water or mud on the lens. Water is a layer whose rims catch the light, found by edges and distances."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.corruptions.filters import extend, smooth
from vitreous.data.corruptions.published import published
from vitreous.data.draws import Draws

WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)


@published(
    cifar=[
        (0.62, 0.1, 0.7, 0.7, 0.5, "water"),
        (0.65, 0.1, 0.8, 0.7, 0.5, "water"),
        (0.65, 0.3, 1, 0.69, 0.5, "water"),
        (0.65, 0.1, 0.7, 0.69, 0.6, "mud"),
        (0.65, 0.1, 0.5, 0.68, 0.6, "mud"),
    ],
    imagenet=[
        (0.65, 0.3, 4, 0.69, 0.6, "water"),
        (0.65, 0.3, 3, 0.68, 0.6, "water"),
        (0.65, 0.3, 2, 0.68, 0.5, "water"),
        (0.65, 0.3, 1, 0.65, 1.5, "mud"),
        (0.67, 0.4, 1, 0.65, 1.5, "mud"),
    ],
)
def spatter(
    images: Tensor, draws: Draws, mean: float, std: float, sigma: float, least: float, strength: float, what: str
) -> Tensor:
    """Where smoothed normal noise is above `least` lies water, added as bright as `strength`, or mud, blurred by it."""
    liquid = smooth(draws.normal(1, *images.shape[-2:], mean=mean, std=std), sigma)
    if what == "water":
        return images + water(liquid.mul_(liquid >= least)).mul_(strength) * images.new_tensor(WATER).view(3, 1, 1)
    mud = smooth((liquid > least).float(), strength)
    mud *= mud >= 0.8
    return images * (1 - mud) + mud * images.new_tensor(MUD).view(3, 1, 1)


def water(liquid: Tensor) -> Tensor:
    """How bright drops are, (n, 1, h, w), up to one: thickness times an embossed, equalised distance to their rims.

    Distances are exact, where the original has OpenCV's approximation by paths over a 5x5 mask (2 % off at most).
    """
    level = (liquid * 255).floor_()
    light = _equalised(_mean3(distances(edges(level), 20)).int())
    near = partial(_beside, extend(light, (1, 1), (1, 1), "mirror"))
    light += near(0, 1) - near(0, -1) + near(1, 0) - near(-1, 0) + 2 * (near(1, 1) - near(-1, -1))
    bright = _mean3(light.clamp_(0, 255)).add_(0.5).floor_().mul_(level)
    return bright.div_(bright.amax((1, 2, 3), keepdim=True).clamp_(min=1))  # the original divides by zero without drops


def edges(level: Tensor, low: int = 50, high: int = 150) -> Tensor:
    """Canny's edges of (n, 1, h, w) with whole levels to 255: bool; Sobel slopes, |dx| + |dy|, edges above `low` that
    touch one above `high`."""
    around = extend(level, (1, 1), (1, 1), "nearest")
    rows = torch.add(around[..., :-2, :] + around[..., 2:, :], around[..., 1:-1, :], alpha=2)
    columns = torch.add(around[..., :-2] + around[..., 2:], around[..., 1:-1], alpha=2)
    dx, dy = rows[..., 2:] - rows[..., :-2], columns[..., 2:, :] - columns[..., :-2, :]
    wide, tall = dx.abs(), dy.abs()
    size = wide + tall
    near = partial(_beside, F.pad(size.clamp(min=low), (1, 1, 1, 1), value=low))
    flat, steep = tall < (2**0.5 - 1) * wide, tall > (2**0.5 + 1) * wide  # the tangents of 22.5 and 67.5 degrees
    rising = dx * dy < 0
    across = size > torch.maximum(near(0, -1), near(0, 1) - 1)  # sizes are whole: above the one, not below the other
    along = size > torch.maximum(near(-1, 0), near(1, 0) - 1)
    down = size > torch.maximum(near(-1, -1), near(1, 1))
    up = size > torch.maximum(near(-1, 1), near(1, -1))
    ridge = (flat & across) | (steep & along) | (~(flat | steep) & ((rising & up) | (~rising & down)))
    found = ridge & (size > high)
    while not torch.equal(grown := _sum3(F.pad(found.byte(), (1, 1, 1, 1))).bool().logical_and_(ridge), found):
        found = grown
    return found


def distances(found: Tensor, most: int) -> Tensor:
    """Distance of each pixel of (n, 1, h, w) to the nearest one found, at most `most`.

    In its row by steps of one, two, four, … pixels, to the left and to the right; then the least over the rows around.
    """
    away = (~found).short().mul_(most)
    for step in (1 << power for power in range(most.bit_length())):
        left, right = away[..., :-step], away[..., step:]
        torch.minimum(left, right + step, out=left)
        torch.minimum(right, left + step, out=right)
    square = away * away
    height = square.shape[-2]
    rows = F.pad(square, (0, 0, most, most), value=most**2)
    for step in range(1, most):
        above, below = (rows[..., start : start + height, :] for start in (most - step, most + step))
        torch.minimum(square, torch.minimum(above, below).add_(step**2), out=square)
    return square.float().sqrt_()


def _beside(x: Tensor, down: int, right: int) -> Tensor:
    """What lies so many pixels away, of images one pixel larger on every side."""
    height, width = x.shape[-2:]
    return x[..., 1 + down : height - 1 + down, 1 + right : width - 1 + right]


def _sum3(x: Tensor) -> Tensor:
    """Sums over three by three pixels, of images one pixel larger on every side."""
    x = x[..., :-2, :] + x[..., 1:-1, :] + x[..., 2:, :]
    return x[..., :-2] + x[..., 1:-1] + x[..., 2:]


def _mean3(x: Tensor) -> Tensor:
    """Means over three by three pixels."""
    return _sum3(extend(x, (1, 1), (1, 1), "mirror")).div_(9)


def _equalised(level: Tensor) -> Tensor:
    """Whole levels (n, 1, h, w) spread so that their histogram is flat; images of one level stay as they are."""
    images, pixels = len(level), level[0].numel()
    mine = level + 256 * torch.arange(images, dtype=torch.int32, device=level.device).view(-1, 1, 1, 1)
    counts = torch.bincount(mine.flatten(), minlength=256 * images).view(images, 256)
    sums = counts.cumsum(1)
    lowest = counts.gather(1, level.flatten(1).amin(1, keepdim=True).long())
    spread = ((sums - lowest) * 255 / (pixels - lowest).clamp(min=1)).round()
    spread = torch.where(lowest == pixels, torch.arange(256, device=level.device), spread)
    return spread.flatten().index_select(0, mine.flatten()).view(level.shape)
