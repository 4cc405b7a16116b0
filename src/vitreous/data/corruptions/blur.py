"""Blur: out of focus, behind frosted glass, of a moving or zooming camera, and the plain Gaussian."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from vitreous.data.corruptions.filters import correlate, enlarging, inside, smooth, trail
from vitreous.data.corruptions.published import HAIR, published
from vitreous.data.draws import Draws


@published(
    cifar=[(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
    imagenet=[(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
)
def defocus_blur(images: Tensor, radius: float, sigma: float) -> Tensor:
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
    source = _sources(draws, shape[-2], shape[-1], reach, times)
    return smooth(blurred.gather(2, source[:, None].expand_as(blurred)).view(shape), sigma)


def _sources(draws: Draws, height: int, width: int, reach: int, times: int) -> Tensor:
    """For each pixel, int64 (n, h * w), where its value comes from.

    A place is a pixel of one of the images before all sweeps, or after the first, or after the second, and so on. After
    a sweep a pixel is its partner before that sweep, or after it if the partner lies further on and so had its turn.
    """
    images, device = len(draws.keys), draws.keys.device
    all_pixels = images * height * width
    away = torch.arange(-reach, reach, dtype=torch.int32, device=device)
    moves = (away[:, None] * width + away).flatten()
    moves += all_pixels * (moves > 0)
    visited = torch.zeros(height, width, dtype=torch.int32, device=device)
    visited[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1] = 1
    drawn = draws.uniform(times, height * width, high=len(moves)).int().transpose(0, 1)
    taken = moves.index_select(0, drawn.flatten()).view_as(drawn).mul_(visited.flatten())
    place = torch.arange((times + 1) * all_pixels, dtype=torch.int32, device=device)
    after = place[all_pixels:].add_(taken.sub_(all_pixels).flatten())
    while int(after[-all_pixels:].max()) >= all_pixels:
        after.copy_(place.index_select(0, after))
    return after[-all_pixels:].view(images, -1) - torch.arange(0, all_pixels, height * width, device=device)[:, None]


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
def zoom_blur(images: Tensor, largest: float, step: float) -> Tensor:
    """Average the image and its enlargements by 1, 1 + step, … up to the largest."""
    factors = tuple(np.arange(1, largest + step / 2, step).tolist())  # 1.2500000000000002: 26 becomes 33 pixels
    height, width = images.shape[-2:]
    flat = images.view(-1, height * width)
    return (_zooms(height, width, factors, images.device) @ flat.mT).mT.reshape(images.shape)


@lru_cache(maxsize=5)
def _zooms(height: int, width: int, factors: tuple[float, ...], device: torch.device) -> Tensor:
    """All of it as one sparse matrix (h * w, h * w): some thirty pixels of an image in each of the blurred one."""
    total: Any = sparse.eye_array(height * width)
    for factor in factors:
        down, right = (sparse.csr_array(enlarging(length, factor).numpy()) for length in (height, width))
        total += sparse.kron(down, right)
    total = sparse.csr_array(total / (len(factors) + 1), dtype=np.float32)
    rows, columns, values = (torch.from_numpy(each).to(device) for each in (total.indptr, total.indices, total.data))
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # torch calls its sparse matrices a beta
        return torch.sparse_csr_tensor(rows, columns, values, size=total.shape, check_invariants=False)


@published(cifar=[0.4, 0.6, 0.7, 0.8, 1.0], imagenet=[1, 2, 3, 4, 6])
def gaussian_blur(images: Tensor, sigma: float) -> Tensor:
    """Blur by a normal curve of this standard deviation."""
    return smooth(images, sigma)
