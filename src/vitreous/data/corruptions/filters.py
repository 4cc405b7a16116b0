"""Linear filters on batches: smoothing and enlarging as matrix products, kernels by Fourier
transform."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.random_streams import RandomStreams

Border = Literal["nearest", "reflect", "mirror"]
"""Values outside, in scipy's words: the last pixel, the image mirrored at its edge (cba|abc), or
mirrored at its last pixel (cb|abc)."""


def border_index(places: Tensor, length: int, border: Border) -> Tensor:
    """The pixels that stand for integer places in and outside a line of this length."""
    if border == "nearest" or length == 1:
        return places.clamp(0, length - 1)
    if border == "reflect":
        folded = places.remainder(2 * length)
        return torch.minimum(folded, 2 * length - 1 - folded)
    folded = places.remainder(2 * length - 2)
    return torch.minimum(folded, 2 * length - 2 - folded)


def extend(x: Tensor, rows: tuple[int, int], columns: tuple[int, int], border: Border) -> Tensor:
    """Images (n, c, h, w) with more rows above and below, and columns left and right."""
    height, width = x.shape[-2:]
    if border == "nearest":
        return F.pad(x, (*columns, *rows), "replicate")
    if border == "mirror" and max(rows) < height and max(columns) < width:
        return F.pad(x, (*columns, *rows), "reflect")
    for axis, (before, after) in ((-2, rows), (-1, columns)):
        places = torch.arange(-before, x.shape[axis] + after, device=x.device)
        x = x.index_select(axis, border_index(places, x.shape[axis], border))
    return x


BLOCK = 32
Blocks = tuple[tuple[slice, slice, Tensor], ...]
"""A band matrix in blocks: some rows, the columns they reach, and the values there."""


def diagonal_blocks(matrix: Tensor, device: torch.device) -> Blocks:
    """Cut a matrix with entries around its diagonal into blocks."""
    blocks = []
    for start in range(0, len(matrix), BLOCK):
        rows = slice(start, min(start + BLOCK, len(matrix)))
        reached = matrix[rows].any(0).nonzero()
        columns = slice(int(reached[0]), int(reached[-1]) + 1)
        blocks.append((rows, columns, matrix[rows, columns].float().to(device)))
    return tuple(blocks)


def multiply_rows(x: Tensor, matrix: Blocks) -> Tensor:
    """x @ matrix.mT, for images (…, h, w)."""
    lines = x.flatten(0, -2)
    done = x.new_empty(len(lines), matrix[-1][0].stop)
    for rows, columns, block in matrix:
        torch.mm(lines[:, columns], block.mT, out=done[:, rows])
    return done.view(*x.shape[:-1], -1)


def multiply_columns(x: Tensor, matrix: Blocks) -> Tensor:
    """matrix @ x, for images (…, h, w)."""
    planes = x.flatten(0, -3)
    done = x.new_empty(len(planes), matrix[-1][0].stop, x.shape[-1])
    for rows, columns, block in matrix:
        torch.bmm(block.expand(len(planes), -1, -1), planes[:, columns], out=done[:, rows])
    return done.view(*x.shape[:-2], *done.shape[1:])


def gaussian_smooth(
    x: Tensor, sigma: float, border: Border = "nearest", truncate: float = 4.0
) -> Tensor:
    """Gaussian blur of (…, h, w), cut off at `truncate` sigmas; one matrix product along each
    axis."""
    if sigma <= 0:
        return x
    short = 2 * int(truncate * sigma + 0.5) + BLOCK <= min(x.shape[-2:])
    if short and border == "nearest" and x.device.type == "cpu":
        return _smooth_short(x, sigma, truncate)
    down, right = (
        _smoothing_matrix(length, sigma, border, truncate, x.device) for length in x.shape[-2:]
    )
    return multiply_columns(multiply_rows(x, right), down)


def _smooth_short(x: Tensor, sigma: float, truncate: float) -> Tensor:
    """Gaussian blur with a short kernel: windows of pixels times one small matrix.

    All products along an axis are one call, which for one image takes half to three quarters of the
    time of `_smoothing_matrix`.
    """
    height, width = x.shape[-2:]
    tall, wide = (-(-length // BLOCK) for length in (height, width))
    right, down = _bands(sigma, truncate, tall, wide)
    reach, radius = right.shape[1], (right.shape[1] - BLOCK) // 2
    below, beside = tall * BLOCK - height, wide * BLOCK - width
    around = extend(
        x.reshape(-1, 1, height, width),
        (radius, radius + below),
        (radius, radius + beside),
        "nearest",
    )
    lines, full = around.flatten(0, 2), wide * BLOCK
    short = x.new_empty(len(lines), full)
    windows = lines.as_strided((wide, len(lines), reach), (BLOCK, lines.shape[1], 1))
    torch.bmm(windows, right, out=short.as_strided((wide, len(lines), BLOCK), (BLOCK, full, 1)))
    done = x.new_empty(len(around), tall, BLOCK, full)
    for plane, into in zip(short.view(len(around), -1, full), done, strict=True):
        torch.bmm(down, plane.as_strided((tall, reach, full), (BLOCK * full, full, 1)), out=into)
    return done.view(*x.shape[:-2], tall * BLOCK, full)[..., :height, :width]


@lru_cache(maxsize=16)
def _bands(sigma: float, truncate: float, tall: int, wide: int) -> tuple[Tensor, Tensor]:
    """The matrix that blurs a window, repeated: (wide, 2 radius + BLOCK, BLOCK), and transposed,
    (tall, BLOCK, 2 radius + BLOCK)."""
    kernel = _kernel(sigma, truncate)
    band = torch.zeros(len(kernel) - 1 + BLOCK, BLOCK)
    for place, weight in enumerate(kernel.tolist()):
        band.diagonal(-place).fill_(weight)
    return band.repeat(wide, 1, 1), band.mT.repeat(tall, 1, 1)


def _kernel(sigma: float, truncate: float) -> Tensor:
    """A normal curve, float64 (2 radius + 1,), with sum one."""
    radius = int(truncate * sigma + 0.5)
    kernel = torch.exp(-0.5 * (torch.arange(-radius, radius + 1).double() / sigma) ** 2)
    return kernel / kernel.sum()


@lru_cache(maxsize=64)
def _smoothing_matrix(
    length: int, sigma: float, border: Border, truncate: float, device: torch.device
) -> Blocks:
    """The matrix (length, length) that blurs a line, with the border's pixels outside."""
    kernel = _kernel(sigma, truncate)
    offsets = torch.arange(len(kernel)) - len(kernel) // 2
    pixels = border_index(torch.arange(length)[:, None] + offsets, length, border)
    matrix = torch.zeros(length, length, dtype=torch.float64).scatter_add_(
        1, pixels, kernel.expand(length, -1)
    )
    return diagonal_blocks(matrix, device)


def correlate(x: Tensor, spectrum: Tensor, origin: tuple[int, int], border: Border) -> Tensor:
    """Sum over (j, i) of kernel[j, i] times the image at (y + j - origin y, x + i - origin x), by
    Fourier transform.

    `x` is (n, c, h, w); `spectrum` comes from `kernel_spectra`, one for each image or one for all.
    """
    (height, width), (up, left) = x.shape[-2:], origin
    tall, wide = size = spectrum.shape[-2], spectrum.shape[-1] * 2 - 2
    waves = torch.fft.rfft2(
        extend(x, (up, tall - height - up), (left, wide - width - left), border)
    )
    waves *= spectrum
    return torch.fft.irfft2(waves, s=size)[..., :height, :width]


def kernel_spectra(kernels: Tensor, height: int, width: int) -> Tensor:
    """The spectra of kernels (n or 1, kh, kw) for `correlate` with images of this size."""
    tall, wide = kernels.shape[-2:]
    size = [_quick(height + tall - 1), 2 * _quick(-(-(width + wide - 1) // 2))]
    return torch.fft.rfft2(kernels, s=size).conj().resolve_conj().unsqueeze(1)


def _quick(length: int) -> int:
    """The next length without prime factors above five, for a fast Fourier transform."""
    while True:
        rest = length
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
        length += 1


def visible_part(length: int, factor: float) -> int:
    """How many pixels of a line stay visible when it is enlarged by a factor."""
    return math.ceil(length / factor)


def enlarge(x: Tensor, size: tuple[int, int], factor: float) -> Tensor:
    """Enlarge images (…, visible_part(height), visible_part(width)) to this size."""
    down, right = (_zooming(length, factor, x.device) for length in size)
    return down @ (x @ right.mT)


@lru_cache(maxsize=16)
def _zooming(length: int, factor: float, device: torch.device) -> Tensor:
    part = visible_part(length, factor)
    start = (length - part) // 2
    return enlarging_matrix(length, factor)[:, start : start + part].float().to(device)


def enlarging_matrix(length: int, factor: float) -> Tensor:
    """The matrix, float64 (length, length), that enlarges the middle of a line.

    Linear interpolation between the centres of the outermost pixels.
    """
    part = visible_part(length, factor)
    large = round(part * factor)
    places = (torch.arange(length).double() + (large - length) // 2) * (
        (part - 1) / max(large - 1, 1)
    )
    near = torch.arange(length) - (length - part) // 2 - places[:, None]
    return (1 - near.abs()).clamp(min=0)


def motion_trail(
    x: Tensor, rng: RandomStreams, towards: float, radius: int, sigma: float
) -> Tensor:
    """Blur images (n, c, h, w) by motions within 45 degrees of `towards`, as ImageMagick does.

    The kernel is half a normal curve of 2 radius + 1 steps of one pixel, each rounded to the
    nearest pixel (a half downwards); outside, the last pixel is repeated. On a CPU each step is an
    addition, which is faster than a Fourier transform.
    """
    angles = rng.uniform(low=math.radians(towards - 45), high=math.radians(towards + 45))
    extremes = [math.radians(towards + turn) for turn in (-45, 0, 45)]
    ends = [
        [round(2 * radius * each) for each in (0.0, *map(way, extremes))]
        for way in (math.sin, math.cos)
    ]
    (up, left), (tall, wide) = (
        (-min(each) for each in ends),
        (max(each) - min(each) + 1 for each in ends),
    )
    weights = [math.exp(-(step**2) / (2 * sigma**2)) for step in range(2 * radius + 1)]
    if x.device.type == "cpu":
        around = extend(x, (up, tall - 1 - up), (left, wide - 1 - left), "nearest")
        done = torch.zeros_like(x)
        for image, larger, angle in zip(done, around, angles.tolist(), strict=True):
            for (down, right), weight in _steps(angle, weights).items():
                start = larger.storage_offset() + (up + down) * larger.stride(1) + left + right
                image.add_(larger.as_strided(image.shape, larger.stride(), start), alpha=weight)
        return done
    kernels = torch.zeros(len(x), tall, wide)
    for kernel, angle in zip(kernels, angles.tolist(), strict=True):
        for (down, right), weight in _steps(angle, weights).items():
            kernel[up + down, left + right] = weight
    return correlate(x, kernel_spectra(kernels.to(x.device), *x.shape[-2:]), (up, left), "nearest")


def _steps(angle: float, weights: list[float]) -> dict[tuple[int, int], float]:
    """Offsets (down, right) of the steps of a motion, and their weights, with sum one."""
    total, offsets = sum(weights), defaultdict[tuple[int, int], float](float)
    for step, weight in enumerate(weights):
        down = math.ceil(step * math.sin(angle) - 0.5)
        right = math.ceil(step * math.cos(angle) - 0.5)
        offsets[down, right] += weight / total
    return offsets
