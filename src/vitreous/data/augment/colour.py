"""Colours of uint8 images, changed as Pillow changes them, in batches: every result is whole
levels again (A3.09)."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.augment.chance import between, choose, integer

ORDERS = tuple(itertools.permutations(range(3)))


def grey(images: Tensor) -> Tensor:
    """Luminance (image, 1, height, width), int32, by Pillow's fixed-point weights of red, green
    and blue."""
    red, green, blue = images.int().split(1, dim=1)
    return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16


def mean_grey(images: Tensor) -> Tensor:
    """The mean luminance (image, 1, 1, 1), rounded to a level."""
    pixels = images.shape[2] * images.shape[3]
    total = grey(images).sum((2, 3), keepdim=True)
    return (2 * total + pixels) // (2 * pixels)


def blend(start: Tensor, end: Tensor, factor: Tensor) -> Tensor:
    """From `start` towards `end` and beyond, cut off to whole levels."""
    begin = start.float()
    return (begin + factor * (end.float() - begin)).clamp(0, 255).to(torch.uint8)


def per_image(argument: Tensor) -> Tensor:
    """(image,) so that it applies to all pixels of the image."""
    return argument.view(-1, 1, 1, 1)


def brighten(images: Tensor, factor: Tensor) -> Tensor:
    """Away from black for factors above 1, towards it below; one factor per image."""
    return blend(torch.zeros_like(images), images, per_image(factor))


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Away from the image's mean grey."""
    return blend(mean_grey(images), images, per_image(factor))


def saturate(images: Tensor, factor: Tensor) -> Tensor:
    """Away from grey."""
    return blend(grey(images), images, per_image(factor))


def sharpen(images: Tensor, factor: Tensor) -> Tensor:
    """Away from smooth; the outermost pixels stay."""
    whole = images.int()
    rows = whole[:, :, :-2] + whole[:, :, 1:-1] + whole[:, :, 2:]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    middle = whole[:, :, 1:-1, 1:-1]
    smooth = (
        2 * (box + 4 * middle) + 13
    ) // 26  # thirteenths, rounded: weights 1 and, in the middle, 5
    return blend(whole + F.pad(smooth - middle, (1, 1, 1, 1)), images, per_image(factor))


def invert(images: Tensor, _: Tensor) -> Tensor:
    """Light for dark."""
    return 255 - images


def solarise(images: Tensor, threshold: Tensor) -> Tensor:
    """Light for dark from a level on."""
    return torch.where(images < per_image(threshold), images, 255 - images)


def solarise_add(images: Tensor, extra: Tensor) -> Tensor:
    """The darker half made lighter."""
    return torch.where(
        images < 128, (images + per_image(extra)).clamp(max=255).to(torch.uint8), images
    )


def posterise(images: Tensor, bits: Tensor) -> Tensor:
    """The highest bits kept; none of them is black (where Pillow's newer versions refuse)."""
    merged = torch.exp2(8 - per_image(bits))
    return (images - images % merged).to(torch.uint8)


def auto_contrast(images: Tensor, _: Tensor) -> Tensor:
    """Each channel stretched to 0 … 255; in float64, because what is cut off depends on Pillow's
    rounding."""
    exact = torch.float32 if images.device.type == "mps" else torch.float64
    low, high = (
        edge.to(exact)
        for edge in (images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True))
    )
    scale = 255 / (high - low)  # of a flat channel: infinite, and not used
    stretched = (images * scale - low * scale).clamp(0, 255).to(torch.uint8)
    return torch.where(high > low, stretched, images)


def equalise(images: Tensor, _: Tensor) -> Tensor:
    """Each channel's levels made as even as whole numbers allow, by a table from its cumulative
    histogram."""
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
    """Brightness, contrast and saturation, each by a factor within `strength` of 1, in any
    order."""

    numbers = 4

    def __init__(self, strength: float) -> None:
        self.low, self.high = max(0.0, 1 - strength), 1 + strength

    def settle(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Factors (image, 3), and which of the three comes first, second and third (image, 3)."""
        which = integer(uniform[:, 3], len(ORDERS))
        turns = [choose(which, [float(order[turn]) for order in ORDERS]) for turn in range(3)]
        return between(uniform[:, :3], self.low, self.high), torch.stack(turns, 1).long()

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor:
        factors, turns = settings
        for turn in turns.split(1, dim=1):
            kind = per_image(turn)
            start = torch.where(
                kind == 2, grey(images), torch.where(kind == 1, mean_grey(images), 0)
            )
            images = blend(start, images, per_image(factors.gather(1, turn)))
        return images
