"""Linear filters on batches: smoothing as two matrices, any kernel by Fourier transform, zooming into the middle."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.draws import Draws

Border = Literal["nearest", "reflect", "mirror"]
"""What lies outside, in scipy's words: the last pixel again; the image mirrored at its edge (cba|abc); mirrored at its
last pixel (cb|abc)."""


def inside(places: Tensor, length: int, border: Border) -> Tensor:
    """The pixels that stand for integer places in and outside an image of this length, however far outside."""
    if border == "nearest" or length == 1:
        return places.clamp(0, length - 1)
    if border == "reflect":
        folded = places.remainder(2 * length)
        return torch.minimum(folded, 2 * length - 1 - folded)
    folded = places.remainder(2 * length - 2)
    return torch.minimum(folded, 2 * length - 2 - folded)


def extend(x: Tensor, rows: tuple[int, int], columns: tuple[int, int], border: Border) -> Tensor:
    """Images (…, h, w) with so many more rows above and below, and columns left and right."""
    for axis, (before, after) in ((-2, rows), (-1, columns)):
        if before or after:
            places = torch.arange(-before, x.shape[axis] + after, device=x.device)
            x = x.index_select(axis, inside(places, x.shape[axis], border))
    return x


def smooth(x: Tensor, sigma: float, border: Border = "nearest", truncate: float = 4.0) -> Tensor:
    """Gaussian blur of (…, h, w), cut off at `truncate` sigmas; along each axis one product with a matrix."""
    if sigma <= 0:
        return x
    rows, columns = (smoothing(length, sigma, border, truncate, x.device) for length in x.shape[-2:])
    return rows @ (x @ columns.mT)


@lru_cache(maxsize=64)
def smoothing(length: int, sigma: float, border: Border, truncate: float, device: torch.device) -> Tensor:
    """The matrix (length, length) that blurs a line; what a kernel reaches outside counts for the pixel found there."""
    radius = int(truncate * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    kernel = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    kernel /= kernel.sum()
    found = inside(torch.arange(length)[:, None] + offsets, length, border)
    matrix = torch.zeros(length, length, dtype=torch.float64).scatter_add_(1, found, kernel.expand(length, -1))
    return matrix.float().to(device)


def correlate(x: Tensor, kernels: Tensor, origin: tuple[int, int], border: Border) -> Tensor:
    """Sum over (j, i) of kernel[j, i] times the image at (y + j - origin y, x + i - origin x), by Fourier transform.

    `x` is (n, c, h, w); `kernels` (n or 1, kh, kw), one for each image or one for all.
    """
    (height, width), (tall, wide), (up, left) = x.shape[-2:], kernels.shape[-2:], origin
    wider = extend(x, (up, tall - 1 - up), (left, wide - 1 - left), border)
    size = [_quick(length) for length in wider.shape[-2:]]
    spectrum = torch.fft.rfft2(wider, s=size)
    spectrum *= torch.fft.rfft2(kernels, s=size).conj().unsqueeze(1)
    return torch.fft.irfft2(spectrum, s=size)[..., :height, :width]


def _quick(length: int) -> int:
    """The next length without prime factors above five, for which the Fourier transform is quick."""
    while True:
        rest = length
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
        length += 1


def zoom(x: Tensor, factor: float) -> Tensor:
    """Enlarge the middle of (n, c, h, w) by linear interpolation between the centres of its outermost pixels."""
    height, width = x.shape[-2:]
    cut = [math.ceil(length / factor) for length in (height, width)]
    top, left = ((length - part) // 2 for length, part in zip((height, width), cut, strict=True))
    middle = x[..., top : top + cut[0], left : left + cut[1]]
    large = F.interpolate(middle, size=[round(part * factor) for part in cut], mode="bilinear", align_corners=True)
    top, left = (large.shape[-2] - height) // 2, (large.shape[-1] - width) // 2
    return large[..., top : top + height, left : left + width]


def trail(draws: Draws, towards: float, radius: int, sigma: float) -> tuple[Tensor, tuple[int, int]]:
    """Kernels of a motion within 45 degrees of `towards` for each image, and their origin, as ImageMagick has them.

    Half a normal curve of 2 radius + 1 steps of one pixel, each rounded to the nearest pixel (a half downwards). The
    kernels are as large as the whole range of angles needs, so that their size does not depend on what was drawn.
    """
    angles = draws.uniform(low=math.radians(towards - 45), high=math.radians(towards + 45))
    steps = torch.arange(2 * radius + 1, device=angles.device)
    weights = torch.exp(-(steps**2) / (2 * sigma**2))
    extremes = [math.radians(towards + turn) for turn in (-45, 0, 45)]
    places, origin, shape = [], [], []
    for way, most in ((angles.sin(), map(math.sin, extremes)), (angles.cos(), map(math.cos, extremes))):
        ends = [round(2 * radius * each) for each in (0.0, *most)]
        places.append(torch.ceil(steps * way[:, None] - 0.5).long().clamp(min(ends), max(ends)) - min(ends))
        origin.append(-min(ends))
        shape.append(max(ends) - min(ends) + 1)
    kernels = torch.zeros(len(angles), *shape, device=angles.device)
    image = torch.arange(len(angles), device=angles.device)[:, None].expand_as(places[0])
    kernels.index_put_((image, *places), (weights / weights.sum()).expand_as(image), accumulate=True)
    return kernels, (origin[0], origin[1])
