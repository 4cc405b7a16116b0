"""Blur: out of focus, behind frosted glass, of a moving or zooming camera, and the plain Gaussian."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from vitreous.data.corruptions.filters import correlate, inside, smooth, trail, zoom
from vitreous.data.corruptions.published import HAIR, published
from vitreous.data.draws import Draws


@published(
    cifar=[(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
    imagenet=[(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
)
def defocus_blur(images: Tensor, draws: Draws, radius: float, sigma: float) -> Tensor:
    """Average over a disk of this radius, its rim softened by a Gaussian."""
    kernel = disk(radius, sigma).to(images.device)
    middle = len(kernel) // 2
    return correlate(images, kernel[None], (middle, middle), "mirror")


@lru_cache(maxsize=16)
def disk(radius: float, sigma: float) -> Tensor:
    """The softened disk without the zeros around it. The Gaussian has 3 taps (5 where the radius is above 8)."""
    reach, taps = (8, 3) if radius <= 8 else (int(radius), 5)
    square = torch.arange(-reach, reach + 1, dtype=torch.float64) ** 2
    filled = (square[:, None] + square <= radius**2).double()
    gauss = torch.exp(-0.5 * (torch.arange(taps).double() - taps // 2) ** 2 / sigma**2)
    places = inside(torch.arange(2 * reach + 1)[:, None] + torch.arange(taps) - taps // 2, 2 * reach + 1, "mirror")
    soften = torch.zeros_like(filled).scatter_add_(1, places, (gauss / gauss.sum()).expand(len(places), -1))
    soft = soften @ (filled / filled.sum()) @ soften.mT
    rim = int((soft > 1e-12).any(0).nonzero()[0])
    return soft[rim : len(soft) - rim, rim : len(soft) - rim].float()


@published(
    cifar=[(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
    imagenet=[(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
)
def glass_blur(images: Tensor, draws: Draws, sigma: float, reach: int, times: int) -> Tensor:
    """Blur, then let each pixel take the value of one up to `reach` away, several times, and blur again.

    The published loop means to swap two pixels but copies one: from the bottom right to the top left, a pixel takes
    what its partner holds at that moment, which may have come from elsewhere already. So the sources form chains, which
    are followed for all pixels at once by doubling the distance jumped.
    """
    shape = images.shape
    blurred = smooth(images, sigma).mul_(255).add_(HAIR).floor_().div_(255).flatten(2)
    for _ in range(times):
        source = _sources(draws, shape[-2], shape[-1], reach)
        blurred = blurred.gather(2, source[:, None].expand_as(blurred))
    return smooth(blurred.view(shape), sigma)


def _sources(draws: Draws, height: int, width: int, reach: int) -> Tensor:
    """For each pixel, int64 (n, h * w), where its value comes from in one sweep.

    A place is a pixel before the sweep, or (from h * w on) a pixel after it. A pixel after the sweep is its partner
    after the sweep if that was visited earlier, and its partner before the sweep if not.
    """
    pixels = height * width
    own = torch.arange(pixels, device=draws.keys.device)
    y, x = own // width, own % width
    visited = (y > reach) & (y <= height - reach) & (x > reach) & (x <= width - reach)
    down, right = draws.integers(2, pixels, low=-reach, high=reach).unbind(1)
    partner = (own + down * width + right).where(visited, own)
    later = visited[partner.clamp(0, pixels - 1)] & (partner > own)
    after = partner + pixels * later
    while bool((after >= pixels).any()):
        after = torch.where(after >= pixels, after.gather(1, (after - pixels).clamp(min=0)), after)
    return after


@published(
    cifar=[(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
    imagenet=[(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
)
def motion_blur(images: Tensor, draws: Draws, radius: int, sigma: float) -> Tensor:
    """Trail off to the right, up to 45 degrees up or down: half a normal curve of 2 radius + 1 pixels."""
    kernels, origin = trail(draws, 0, radius, sigma)
    return correlate(images, kernels, origin, "nearest")


@published(
    cifar=[(1.06, 0.01), (1.11, 0.01), (1.15, 0.01), (1.20, 0.01), (1.25, 0.01)],
    imagenet=[(1.11, 0.01), (1.15, 0.01), (1.20, 0.02), (1.24, 0.02), (1.30, 0.03)],
)
def zoom_blur(images: Tensor, draws: Draws, largest: float, step: float) -> Tensor:
    """Average the image and its enlargements by 1, 1 + step, … up to the largest."""
    factors = np.arange(
        1, largest + step / 2, step
    ).tolist()  # numpy's 1.2500000000000002 matters: 26 becomes 33 pixels
    total = images.clone()
    for factor in factors:
        total += zoom(images, factor)
    return total / (len(factors) + 1)


@published(cifar=[0.4, 0.6, 0.7, 0.8, 1.0], imagenet=[1, 2, 3, 4, 6])
def gaussian_blur(images: Tensor, draws: Draws, sigma: float) -> Tensor:
    """Blur by a normal curve of this standard deviation."""
    return smooth(images, sigma)
