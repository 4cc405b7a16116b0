"""Colour operations on batches of uint8 images, with the same results as Pillow."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.augment.distributions import between, integer, lookup

ORDERS = tuple(itertools.permutations(range(3)))


def _grey(images: Tensor) -> Tensor:
    """Luminance (image, 1, height, width), int32, by Pillow's fixed-point weights of red, green
    and blue."""
    red, green, blue = images.int().split(1, dim=1)
    return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16


def _mean_grey(images: Tensor) -> Tensor:
    """The mean luminance (image, 1, 1, 1), rounded to a level."""
    pixels = images.shape[2] * images.shape[3]
    total = _grey(images).sum((2, 3), keepdim=True)
    return (2 * total + pixels) // (2 * pixels)


def _blend(start: Tensor, end: Tensor, factor: Tensor) -> Tensor:
    """start + factor · (end - start), clamped and truncated to uint8."""
    begin = start.float()
    return (begin + factor * (end.float() - begin)).clamp(0, 255).to(torch.uint8)


def _per_image(argument: Tensor) -> Tensor:
    """Reshape (image,) to (image, 1, 1, 1), to broadcast over pixels."""
    return argument.view(-1, 1, 1, 1)


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black; one factor per image, 1 for no change."""
    return _blend(torch.zeros_like(images), images, _per_image(factor))


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean grey of the image."""
    return _blend(_mean_grey(images), images, _per_image(factor))


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey image."""
    return _blend(_grey(images), images, _per_image(factor))


def adjust_sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the smoothed image; the outermost pixels stay."""
    levels = images.int()
    rows = levels[:, :, :-2] + levels[:, :, 1:-1] + levels[:, :, 2:]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    middle = levels[:, :, 1:-1, 1:-1]
    # Weights 1 and, in the middle, 5, over 13; rounded.
    smooth = (2 * (box + 4 * middle) + 13) // 26
    return _blend(levels + F.pad(smooth - middle, (1, 1, 1, 1)), images, _per_image(factor))


def invert(images: Tensor, _: Tensor) -> Tensor:
    """Invert all levels."""
    return 255 - images


def solarise(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert levels from `threshold` on."""
    return torch.where(images < _per_image(threshold), images, 255 - images)


def solarise_add(images: Tensor, extra: Tensor) -> Tensor:
    """Add `extra` to levels below 128."""
    return torch.where(
        images < 128, (images + _per_image(extra)).clamp(max=255).to(torch.uint8), images
    )


def posterise(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest bits; 0 bits give black (newer versions of Pillow raise an error)."""
    merged = torch.exp2(8 - _per_image(bits))
    return (images - images % merged).to(torch.uint8)


def auto_contrast(images: Tensor, _: Tensor) -> Tensor:
    """Stretch each channel to 0 … 255; in float64 as in Pillow, so that truncation agrees."""
    exact = torch.float32 if images.device.type == "mps" else torch.float64
    low, high = (
        edge.to(exact)
        for edge in (images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True))
    )
    scale = 255 / (high - low)  # infinite for a constant channel, which is not changed
    stretched = (images * scale - low * scale).clamp(0, 255).to(torch.uint8)
    return torch.where(high > low, stretched, images)


def equalise(images: Tensor, _: Tensor) -> Tensor:
    """Equalise the histogram of each channel."""
    places = images.flatten(2).long()
    counts = torch.zeros(*places.shape[:2], 256, dtype=torch.int32, device=images.device)
    counts = counts.scatter_add(2, places, torch.ones_like(places, dtype=torch.int32))
    lightest = counts.gather(2, places.amax(2, keepdim=True))
    step = (places.shape[2] - lightest) // 255
    below = counts.cumsum(2, dtype=torch.int32) - counts
    even = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, even, torch.arange(256, dtype=torch.int32, device=images.device))
    return table.gather(2, places).view_as(images).to(torch.uint8)


class Jitter:
    """Change brightness, contrast and saturation, in random order, each by a random factor in
    1 ± `strength`."""

    numbers = 4

    def __init__(self, strength: float) -> None:
        self.low, self.high = max(0.0, 1 - strength), 1 + strength

    def settle(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """The factors (image, 3), and the order of the three operations (image, 3)."""
        which = integer(uniform[:, 3], len(ORDERS))
        turns = [lookup(which, [float(order[turn]) for order in ORDERS]) for turn in range(3)]
        return between(uniform[:, :3], self.low, self.high), torch.stack(turns, 1).long()

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor:
        factors, turns = settings
        for turn in turns.split(1, dim=1):
            kind = _per_image(turn)
            start = torch.where(
                kind == 2, _grey(images), torch.where(kind == 1, _mean_grey(images), 0)
            )
            images = _blend(start, images, _per_image(factors.gather(1, turn)))
        return images
