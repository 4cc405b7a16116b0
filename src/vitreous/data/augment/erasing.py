"""Random erasing: a rectangle of the normalised image becomes noise (timm's mode "pixel",
A3.09)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitreous.data.augment.chance import between, first_valid, integer, noise
from vitreous.data.augment.stage import only

TRIES = 10
AREA = (0.02, 1 / 3)
RATIOS = (0.3, 1 / 0.3)


class Erasing:
    """Some images lose a rectangle; its shape is drawn anew up to ten times until it fits, then
    nothing happens."""

    numbers = 2 * TRIES + 4

    def __init__(self, probability: float, image: tuple[int, int]) -> None:
        self.probability = probability
        self.height, self.width = image

    def settle(self, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Top, left, height and width (0 for nothing) of each rectangle, and the seed of its
        noise."""
        happens, down, along, seed = uniform[:, 2 * TRIES :].unbind(1)
        area = between(uniform[:, :TRIES], *AREA) * (self.height * self.width)
        ratio = between(uniform[:, TRIES : 2 * TRIES], *map(math.log, RATIOS)).exp()
        heights, widths = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()
        valid = (heights < self.height) & (widths < self.width)
        height, width = first_valid(valid, heights, widths)
        top, left = integer(down, self.height - height + 1), integer(along, self.width - width + 1)
        erased = valid.any(1) & (happens <= self.probability)
        return top, left, torch.where(erased, height, 0), torch.where(erased, width, 0), seed

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor:
        return only(settings[2] > 0, erase, images, images, *settings, share=self.probability)


def erase(
    images: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, seed: Tensor
) -> Tensor:
    """The rectangles of (image,) replaced."""
    top, left, height, width = (each.view(-1, 1, 1, 1) for each in (top, left, height, width))
    y = torch.arange(images.shape[2], device=images.device).view(-1, 1)
    x = torch.arange(images.shape[3], device=images.device)
    inside = (y >= top) & (y < top + height) & (x >= left) & (x < left + width)
    channels, rows, columns = images.shape[1:]
    return torch.where(inside, noise(seed, (channels, rows, columns)), images)
