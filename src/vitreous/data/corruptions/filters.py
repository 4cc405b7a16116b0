"""Linear filters on batches: smoothing and zooming as two matrices, any kernel by Fourier transform."""

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
    """Images (n, c, h, w) with so many more rows above and below, and columns left and right."""
    height, width = x.shape[-2:]
    if border == "nearest":
        return F.pad(x, (*columns, *rows), "replicate")
    if border == "mirror" and max(rows) < height and max(columns) < width:
        return F.pad(x, (*columns, *rows), "reflect")
    for axis, (before, after) in ((-2, rows), (-1, columns)):
        places = torch.arange(-before, x.shape[axis] + after, device=x.device)
        x = x.index_select(axis, inside(places, x.shape[axis], border))
    return x


BLOCK = 32
Blocks = tuple[tuple[slice, slice, Tensor], ...]
"""A matrix without most of its zeros, a few rows at a time: these rows, the columns they reach, and what is there."""


def blocks(matrix: Tensor, device: torch.device) -> Blocks:
    """The blocks of a matrix with entries around its diagonal."""
    found = []
    for start in range(0, len(matrix), BLOCK):
        rows = slice(start, min(start + BLOCK, len(matrix)))
        reached = matrix[rows].any(0).nonzero()
        columns = slice(int(reached[0]), int(reached[-1]) + 1)
        found.append((rows, columns, matrix[rows, columns].float().to(device)))
    return tuple(found)


def rightwards(x: Tensor, matrix: Blocks) -> Tensor:
    """A matrix along the rows of images (…, h, w): x @ matrix.mT."""
    lines = x.flatten(0, -2)
    done = x.new_empty(len(lines), matrix[-1][0].stop)
    for rows, columns, block in matrix:
        torch.mm(lines[:, columns], block.mT, out=done[:, rows])
    return done.view(*x.shape[:-1], -1)


def downwards(x: Tensor, matrix: Blocks) -> Tensor:
    """A matrix along the columns of images (…, h, w): matrix @ x."""
    planes = x.flatten(0, -3)
    done = x.new_empty(len(planes), matrix[-1][0].stop, x.shape[-1])
    for rows, columns, block in matrix:
        torch.bmm(block.expand(len(planes), -1, -1), planes[:, columns], out=done[:, rows])
    return done.view(*x.shape[:-2], *done.shape[1:])


def smooth(x: Tensor, sigma: float, border: Border = "nearest", truncate: float = 4.0) -> Tensor:
    """Gaussian blur of (…, h, w), cut off at `truncate` sigmas; along each axis one product with a matrix."""
    if sigma <= 0:
        return x
    down, right = (smoothing(length, sigma, border, truncate, x.device) for length in x.shape[-2:])
    return downwards(rightwards(x, right), down)


@lru_cache(maxsize=64)
def smoothing(length: int, sigma: float, border: Border, truncate: float, device: torch.device) -> Blocks:
    """The matrix (length, length) that blurs a line; what a kernel reaches outside counts for the pixel found there."""
    radius = int(truncate * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    kernel = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    kernel /= kernel.sum()
    found = inside(torch.arange(length)[:, None] + offsets, length, border)
    matrix = torch.zeros(length, length, dtype=torch.float64).scatter_add_(1, found, kernel.expand(length, -1))
    return blocks(matrix, device)


def correlate(x: Tensor, kernels: Tensor, origin: tuple[int, int], border: Border) -> Tensor:
    """Sum over (j, i) of kernel[j, i] times the image at (y + j - origin y, x + i - origin x), by Fourier transform.

    `x` is (n, c, h, w); `kernels` (n or 1, kh, kw), one for each image or one for all.
    """
    (height, width), (tall, wide), (up, left) = x.shape[-2:], kernels.shape[-2:], origin
    size = [_quick(height + tall - 1), _quick(width + wide - 1)]
    spectrum = torch.fft.rfft2(extend(x, (up, size[0] - height - up), (left, size[1] - width - left), border))
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
    """Enlarge the middle of (…, h, w)."""
    down, right = (_zooming(length, factor, x.device) for length in x.shape[-2:])
    return downwards(rightwards(x, right), down)


@lru_cache(maxsize=16)
def _zooming(length: int, factor: float, device: torch.device) -> Blocks:
    return blocks(enlarging(length, factor), device)


def enlarging(length: int, factor: float) -> Tensor:
    """The matrix, float64 (length, length), that enlarges the middle of a line by linear interpolation between the
    centres of its outermost pixels."""
    part = math.ceil(length / factor)
    large = round(part * factor)
    places = (torch.arange(length).double() + (large - length) // 2) * ((part - 1) / max(large - 1, 1))
    near = torch.arange(length) - (length - part) // 2 - places[:, None]
    return (1 - near.abs()).clamp(min=0)


def trail(draws: Draws, towards: float, radius: int, sigma: float) -> tuple[Tensor, tuple[int, int]]:
    """Kernels of a motion within 45 degrees of `towards` for each image, and their origin, as ImageMagick has them.

    Half a normal curve of 2 radius + 1 steps of one pixel, each rounded to the nearest pixel (a half downwards). The
    kernels are as large as the whole range of angles needs, so that their size does not depend on what was drawn.
    """
    angles = draws.uniform(low=math.radians(towards - 45), high=math.radians(towards + 45))
    steps = torch.arange(2 * radius + 1, device=angles.device)
    weights = torch.exp(-(steps**2) / (2 * sigma**2))
    extremes = [math.radians(towards + turn) for turn in (-45, 0, 45)]
    ends = [[round(2 * radius * each) for each in (0.0, *map(way, extremes))] for way in (math.sin, math.cos)]
    (up, left), (tall, wide) = ((-min(each) for each in ends), (max(each) - min(each) + 1 for each in ends))
    down, right = (torch.ceil(steps * way[:, None] - 0.5).long() for way in (angles.sin(), angles.cos()))
    places = (down + up) * wide + right + left
    kernels = torch.zeros(len(angles), tall * wide, device=angles.device)
    kernels.scatter_add_(1, places, (weights / weights.sum()).expand_as(places))
    return kernels.view(-1, tall, wide), (up, left)
