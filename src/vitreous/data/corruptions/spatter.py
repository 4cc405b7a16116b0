"""Spatter: water or mud on the lens. Water is a layer whose rims catch the light, found by edges and distances."""

from __future__ import annotations

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
    liquid = liquid.where(liquid >= least, 0)
    if what == "water":
        return images + strength * water(liquid) * images.new_tensor(WATER).view(3, 1, 1)
    mud = smooth((liquid > least).float(), strength)
    mud = mud.where(mud >= 0.8, 0)
    return images * (1 - mud) + mud * images.new_tensor(MUD).view(3, 1, 1)


def water(liquid: Tensor) -> Tensor:
    """How bright drops are, (n, 1, h, w), up to one: thickness times an embossed, equalised distance to their rims.

    Distances are exact, where the original has OpenCV's approximation by paths over a 5x5 mask (2 % off at most).
    """
    level = (liquid * 255).floor()
    distance = _mean3(distances(edges(level), 20)).floor()
    light = _equalised(distance)
    emboss = light.new_tensor([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]).view(1, 1, 3, 3)
    light = F.conv2d(extend(light, (1, 1), (1, 1), "mirror"), emboss).clamp_(0, 255)
    bright = level * (_mean3(light) + 0.5).floor()
    return bright / bright.amax((1, 2, 3), keepdim=True).clamp(min=1)  # the original divides by zero without drops


def edges(level: Tensor, low: int = 50, high: int = 150) -> Tensor:
    """Canny's edges of (n, 1, h, w) with levels to 255: bool; Sobel slopes, |dx| + |dy|, edges above `low` that touch
    one above `high`."""
    around = extend(level, (1, 1), (1, 1), "nearest")
    dx, dy = _taps(around, (1, 2, 1), (-1, 0, 1)), _taps(around, (-1, 0, 1), (1, 2, 1))
    size = dx.abs() + dy.abs()
    height, width = size.shape[-2:]
    padded = F.pad(size, (1, 1, 1, 1))

    def beside(down: int, right: int) -> Tensor:
        return padded[..., 1 + down : 1 + down + height, 1 + right : 1 + right + width]

    steep = dy.abs() / dx.abs().clamp(min=1e-9)
    across = (size > beside(0, -1)) & (size >= beside(0, 1))
    along = (size > beside(-1, 0)) & (size >= beside(1, 0))
    falling = (size > beside(-1, -1)) & (size > beside(1, 1))
    rising = (size > beside(-1, 1)) & (size > beside(1, -1))
    slanted = torch.where(dx * dy < 0, rising, falling)
    flat, tall = 2**0.5 - 1, 2**0.5 + 1  # the tangents of 22.5 and 67.5 degrees
    ridge = torch.where(steep < flat, across, torch.where(steep > tall, along, slanted)) & (size > low)
    found = ridge & (size > high)
    while True:
        wide = F.pad(found, (1, 1, 1, 1))
        wide = wide[..., :-2] | wide[..., 1:-1] | wide[..., 2:]
        grown = (wide[..., :-2, :] | wide[..., 1:-1, :] | wide[..., 2:, :]) & ridge
        if bool((grown == found).all()):
            return found
        found = grown


def distances(found: Tensor, most: int) -> Tensor:
    """Distance of each pixel of (n, 1, h, w) to the nearest one found, at most `most`.

    In its row by looking back and ahead for the last one found; then the least over the rows around.
    """
    place = torch.arange(found.shape[-1], device=found.device).expand_as(found)
    last = torch.where(found, place, -most).cummax(-1).values
    following = torch.where(found, place, found.shape[-1] + most).flip(-1).cummin(-1).values.flip(-1)
    square = torch.minimum(place - last, following - place).clamp_(max=most).float().square_()
    rows = F.pad(square, (0, 0, most, most), value=most**2)
    height = square.shape[-2]
    for away in range(1, most):
        for start in (most - away, most + away):
            torch.minimum(square, rows[..., start : start + height, :] + away**2, out=square)
    return square.sqrt_()


def _mean3(x: Tensor) -> Tensor:
    """Means over three by three pixels."""
    return _taps(extend(x, (1, 1), (1, 1), "mirror"), (1, 1, 1), (1, 1, 1)) / 9


def _taps(x: Tensor, down: tuple[int, int, int], right: tuple[int, int, int]) -> Tensor:
    """Weighted sums of three pixels along each axis, of images one pixel larger on every side."""
    x = down[0] * x[..., :-2, :] + down[1] * x[..., 1:-1, :] + down[2] * x[..., 2:, :]
    return right[0] * x[..., :-2] + right[1] * x[..., 1:-1] + right[2] * x[..., 2:]


def _equalised(level: Tensor) -> Tensor:
    """Whole levels (n, 1, h, w) spread so that their histogram is flat; images of one level stay as they are."""
    images, pixels = len(level), level[0].numel()
    flat = level.long().flatten(1)
    counts = torch.zeros(images, 256, device=level.device).scatter_add_(
        1, flat, torch.ones_like(flat, dtype=torch.float)
    )
    lowest = counts.gather(1, flat.amin(1, keepdim=True))
    spread = ((counts.cumsum(1) - lowest) * 255 / (pixels - lowest).clamp(min=1)).round()
    spread = torch.where(lowest == pixels, torch.arange(256, device=level.device), spread)
    return spread.gather(1, flat).view_as(level)
