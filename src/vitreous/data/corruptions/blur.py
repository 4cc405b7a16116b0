"""Blur: out of focus, behind frosted glass, of a moving or zooming camera, and the plain
Gaussian."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from vitreous.data.corruptions.filters import (
    border_index,
    correlate,
    enlarging_matrix,
    gaussian_smooth,
    kernel_spectra,
    motion_trail,
)
from vitreous.data.corruptions.numpy_or_torch import native, take_at, true_places
from vitreous.data.corruptions.published import EPSILON, published
from vitreous.data.random_streams import RandomStreams


@published(
    cifar=[(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
    imagenet=[(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
)
def defocus_blur(images: Tensor, radius: float, sigma: float) -> Tensor:
    """Average over a disk of this radius, its rim softened by a Gaussian."""
    middle = len(disk(radius, sigma)) // 2
    return correlate(
        images,
        _defocus(radius, sigma, *images.shape[-2:], images.device),
        (middle, middle),
        "mirror",
    )


@lru_cache(maxsize=5)
def _defocus(radius: float, sigma: float, height: int, width: int, device: torch.device) -> Tensor:
    return kernel_spectra(disk(radius, sigma)[None].to(device), height, width)


@lru_cache(maxsize=16)
def disk(radius: float, sigma: float) -> Tensor:
    """The softened disk without zeros around it. The Gaussian has 3 taps (5 if the radius is
    above 8)."""
    reach, taps = (8, 3) if radius <= 8 else (int(radius), 5)
    square = torch.arange(-reach, reach + 1, dtype=torch.float64) ** 2
    filled = (square[:, None] + square <= radius**2).double()
    gauss = torch.exp(-0.5 * (torch.arange(taps).double() - taps // 2) ** 2 / sigma**2)
    places = border_index(
        torch.arange(2 * reach + 1)[:, None] + torch.arange(taps) - taps // 2,
        2 * reach + 1,
        "mirror",
    )
    soften = torch.zeros_like(filled).scatter_add_(
        1, places, (gauss / gauss.sum()).expand(len(places), -1)
    )
    soft = soften @ (filled / filled.sum()) @ soften.mT
    rim = int((soft > 1e-12).any(0).nonzero()[0])
    return soft[rim : len(soft) - rim, rim : len(soft) - rim].float()


@published(
    cifar=[(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
    imagenet=[(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
)
def glass_blur(images: Tensor, rng: RandomStreams, sigma: float, reach: int, times: int) -> Tensor:
    """Blur, then let each pixel take the value of one up to `reach` away, several times, and blur
    again.

    The published loop means to swap two pixels but copies one: from the bottom right to the top
    left, a pixel takes what its partner holds at that moment, which may have come from elsewhere
    already. So the sources form chains, which are followed for all pixels at once by doubling the
    distance jumped.
    """
    blurred = gaussian_smooth(images, sigma).add_(EPSILON).floor_().flatten(2)
    mixed = torch.empty_like(blurred)
    height, width = images.shape[-2:]
    for image, source, into in zip(
        blurred, _sources(rng, height, width, reach, times), mixed, strict=True
    ):
        torch.index_select(image, 1, source, out=into)
    return gaussian_smooth(mixed.view(images.shape), sigma)


def _sources(rng: RandomStreams, height: int, width: int, reach: int, times: int) -> Tensor:
    """For each pixel, int32 (n, h * w), where its value comes from.

    A pixel takes what its partner held before the sweep or, if the partner lies further on and so
    was visited before, what that one took. Sources of the second kind are stored as negative
    numbers, and followed until none is left.
    """
    pixels, choices = height * width, 2 * reach
    moves = native(rng.words(times, height, width).int())
    moves *= choices
    down = moves >> 16
    down *= width
    moves &= 0xFFFF
    moves *= choices
    moves >>= 16
    down -= reach
    moves += down
    for outside in (slice(reach + 1), slice(height - reach + 1, None)):
        moves[..., outside, :] = 0
    for outside in (slice(reach + 1), slice(width - reach + 1, None)):
        moves[..., outside] = 0
    line = moves.reshape(-1)
    waiting = true_places(line > 0)
    places = native(_counted(len(line), rng.keys.device))
    later = -line
    later >>= 31  # all bits where the partner lies further on
    line += places
    line ^= later
    while len(waiting):
        sources = take_at(line, ~take_at(line, waiting))
        line[waiting] = sources
        waiting = take_at(waiting, true_places(sources < 0))
    source = line.reshape(-1, times, pixels)[:, -1]
    for _ in range(times - 1):
        # What a pixel held before a sweep is what it took in the one before.
        source = take_at(line, source - pixels)
    return torch.as_tensor(source - places[:: times * pixels, None])


@lru_cache(maxsize=2)
def _counted(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, dtype=torch.int32, device=device)


@published(
    cifar=[(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
    imagenet=[(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
)
def motion_blur(images: Tensor, rng: RandomStreams, radius: int, sigma: float) -> Tensor:
    """Trail off to the right, up to 45 degrees up or down: half a normal curve of 2 radius + 1
    pixels."""
    return motion_trail(images, rng, 0, radius, sigma)


@published(
    cifar=[(1.06, 0.01), (1.11, 0.01), (1.15, 0.01), (1.20, 0.01), (1.25, 0.01)],
    imagenet=[(1.11, 0.01), (1.15, 0.01), (1.20, 0.02), (1.24, 0.02), (1.30, 0.03)],
)
def zoom_blur(images: Tensor, largest: float, step: float) -> Tensor:
    """Average the image and its enlargements by 1, 1 + step, … up to the largest."""
    # As published: the last factor may be 1.2500000000000002, which makes 33 pixels of 26.
    factors = tuple(np.arange(1, largest + step / 2, step).tolist())
    height, width = images.shape[-2:]
    planes = images.view(-1, height * width)
    # A multiple of four columns is faster than three.
    columns = images.new_zeros(height * width, -(-len(planes) // 4) * 4)
    for index, plane in enumerate(native(planes)):
        native(columns)[:, index] = plane
    columns = _zooms(height, width, factors, images.device) @ columns
    native(planes)[:] = native(columns).T[: len(planes)]
    return images


@lru_cache(maxsize=5)
def _zooms(height: int, width: int, factors: tuple[float, ...], device: torch.device) -> Tensor:
    """The blur as one sparse matrix (h * w, h * w), with some thirty entries in a row."""
    total: Any = sparse.eye_array(height * width)
    for factor in factors:
        down, right = (
            sparse.csr_array(enlarging_matrix(length, factor).numpy()) for length in (height, width)
        )
        total += sparse.kron(down, right)
    total = sparse.csr_array(total / (len(factors) + 1), dtype=np.float32)
    rows, columns, values = (
        torch.from_numpy(each).to(device) for each in (total.indptr, total.indices, total.data)
    )
    # torch warns that its sparse matrices are in beta.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return torch.sparse_csr_tensor(
            rows, columns, values, size=total.shape, check_invariants=False
        )


@published(cifar=[0.4, 0.6, 0.7, 0.8, 1.0], imagenet=[1, 2, 3, 4, 6])
def gaussian_blur(images: Tensor, sigma: float) -> Tensor:
    """Blur by a normal curve of this standard deviation."""
    return gaussian_smooth(images, sigma)
