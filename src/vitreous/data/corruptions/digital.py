"""Digital corruptions: contrast, brightness, saturation, elastic transform, pixels, JPEG."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from vitreous.data.corruptions.filters import (
    Blocks,
    diagonal_blocks,
    gaussian_smooth,
    multiply_columns,
    multiply_rows,
)
from vitreous.data.corruptions.published import EPSILON, published
from vitreous.data.random_streams import RandomStreams


@published(cifar=[0.05, 0.1, 0.15, 0.2, 0.3], imagenet=[0.1, 0.2, 0.3, 0.4, 0.5])
def brightness(images: Tensor, more: float) -> Tensor:
    """Raise V of the HSV colours by `more`, at most to one.

    Hue and saturation are ratios of the channels, so all three are multiplied alike; black becomes
    grey.
    """
    value = images.amax(1, keepdim=True)
    raised = (value + 255 * more).clamp_(max=255)
    return images.mul_(raised / value.clamp(min=1)).add_(raised.mul_(value == 0))


@published(cifar=[0.75, 0.5, 0.4, 0.3, 0.15], imagenet=[0.4, 0.3, 0.2, 0.1, 0.05])
def contrast(images: Tensor, factor: float) -> Tensor:
    """Bring every channel nearer to its mean by this factor."""
    return torch.lerp(images.mean((2, 3), keepdim=True), images, factor)


@published(
    cifar=[(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)],
    imagenet=[(0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)],
)
def saturate(images: Tensor, factor: float, more: float) -> Tensor:
    """Multiply S of the HSV colours by `factor` and add `more`; severities 1 and 2 desaturate.

    At constant hue and value the channels keep their proportions below the largest. Grey has no
    hue; red, as published.
    """
    value, least = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    saturation = least.neg_().add_(value).div_(value.clamp(min=1))
    wanted = (saturation * factor).add_(more).clamp_(0, 1)
    grey = (value * wanted).mul_(saturation == 0)
    images.sub_(value).mul_(wanted.div_(saturation.clamp_(min=1 / 255))).add_(value)
    images[:, 1:] -= grey
    return images


@published(
    cifar=[
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ],
    imagenet=[
        tuple(244 / 224 * part for part in parts)  # 244 stands in the published code for 224
        for parts in (
            (2, 0.7, 0.1),
            (2, 0.08, 0.2),
            (0.05, 0.01, 0.02),
            (0.07, 0.01, 0.02),
            (0.12, 0.01, 0.02),
        )
    ],
)
def elastic_transform(
    images: Tensor, rng: RandomStreams, strength: float, sigma: float, corners: float
) -> Tensor:
    """Move three corners of a square at random, then every pixel by a smoothed random field.

    Arguments are relative to the side of the image.
    """
    height, width = images.shape[-2:]
    side = min(height, width)
    images = _sample(images, _affine(rng, height, width, corners * side), last=True)
    if strength == 0:
        return images
    field = gaussian_smooth(
        rng.coarse(2, height, width, low=-1, high=1), sigma * side, "reflect", truncate=3
    )
    right, down = field.unbind(1)
    right.mul_(strength * side * 2 / width).add_(_middles(width, images.device))
    down.mul_(strength * side * 2 / height).add_(_middles(height, images.device)[:, None])
    return _sample(images, field, last=False)


@lru_cache(maxsize=8)
def _middles(length: int, device: torch.device) -> Tensor:
    """Centres of pixels, with the edges at -1 and 1."""
    return (2 * torch.arange(length, device=device) + 1) / length - 1


def _affine(rng: RandomStreams, height: int, width: int, most: float) -> Tensor:
    """The source (x, y) of each pixel (n, 2, h, w), if three corners move by at most `most`.

    Coordinates go from -1, the middle of the first pixel, to 1, the middle of the last.
    """
    third = min(height, width) // 3
    before = [width // 2, height // 2] + third * np.array([[1, 1], [1, -1], [-1, -1]])
    after = before + np.array(rng.uniform(3, 2, low=-most, high=most).tolist()).reshape(-1, 3, 2)
    ones = np.ones((len(after), 3, 1))
    # From (x, y, 1) to (x, y).
    back = np.linalg.solve(np.concatenate([after, ones], 2), np.broadcast_to(before, after.shape))
    back *= 2 / np.maximum([width - 1, height - 1], 1)
    back[:, 2] -= 1
    x_part, y_part, rest = (
        torch.from_numpy(back).to(rng.keys.device, torch.float32)[..., None, None].unbind(1)
    )
    x, y = (
        torch.arange(length, device=rest.device, dtype=torch.float32) for length in (width, height)
    )
    return (x_part * x + rest) + y_part * y[:, None]


def _sample(images: Tensor, grid: Tensor, *, last: bool) -> Tensor:
    """Sample images at (x, y) of a grid (n, 2, h, w).

    Outside they are mirrored at the last pixel if `last`, else at the edge.
    """
    grid = grid.movedim(1, 3)
    return F.grid_sample(
        images, grid, mode="bilinear", padding_mode="reflection", align_corners=last
    )


@published(cifar=[0.95, 0.9, 0.85, 0.75, 0.65], imagenet=[0.6, 0.5, 0.4, 0.3, 0.25], uint8=True)
def pixelate(images: Tensor, share: float) -> Tensor:
    """Shrink to this share of the side, with means over pixels as in Pillow's box filter, and
    enlarge again."""
    sizes = [(length, max(int(length * share), 1)) for length in images.shape[-2:]]
    (down, y), (right, x) = (_boxes(*each, images.device) for each in sizes)
    # A half is rounded upwards.
    narrow = multiply_rows(images.float(), right).add_(0.5 + EPSILON).floor_()
    small = multiply_columns(narrow, down).add_(0.5 + EPSILON).byte()
    return small.gather(3, x.expand(*small.shape[:3], -1)).index_select(2, y)


@lru_cache(maxsize=32)
def _boxes(length: int, fewer: int, device: torch.device) -> tuple[Blocks, Tensor]:
    """The matrix (fewer, length) of a mean over the pixels whose centres each large pixel covers,
    and the index of the large pixel for each small one."""
    places = torch.arange(length)
    middle = (torch.arange(fewer).double() + 0.5) * (length / fewer)
    apart = places + 0.5 - middle[:, None]
    covered = ((apart > -0.5 * length / fewer) & (apart <= 0.5 * length / fewer)).double()
    return diagonal_blocks(covered / covered.sum(1, keepdim=True), device), (
        (2 * places + 1) * fewer // (2 * length)
    ).to(device)


@published(cifar=[80, 65, 58, 50, 40], imagenet=[25, 18, 15, 10, 7], uint8=True)
def jpeg_compression(images: Tensor, quality: int) -> Tensor:
    """Write and read a JPEG of this quality, with Pillow, one image at a time on the CPU."""
    done = images.cpu().numpy().copy()
    for channels in done:
        file = BytesIO()
        Image.merge("RGB", [Image.fromarray(each) for each in channels]).save(
            file, "JPEG", quality=quality
        )
        with Image.open(file, formats=("JPEG",)) as read:
            channels[:] = [np.asarray(each) for each in read.split()]
    return torch.from_numpy(done).to(images.device)
