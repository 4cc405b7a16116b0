"""Random erasing: replace a rectangle of the normalised image by noise (timm's mode "pixel")."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitreous.data.augment.distributions import between, first_valid, hashed_noise, integer
from vitreous.data.augment.stage import apply_where

TRIES = 10
AREA = (0.02, 1 / 3)
RATIOS = (0.3, 1 / 0.3)


class Erasing:
    """Erase a rectangle of some images; none if ten random shapes do not fit."""

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
        return apply_where(
            settings[2] > 0, _erase, images, images, *settings, share=self.probability
        )


def _erase(
    images: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, seed: Tensor
) -> Tensor:
    """Replace one rectangle per image by noise."""
    top, left, height, width = (each.view(-1, 1, 1, 1) for each in (top, left, height, width))
    y = torch.arange(images.shape[2], device=images.device).view(-1, 1)
    x = torch.arange(images.shape[3], device=images.device)
    inside = (y >= top) & (y < top + height) & (x >= left) & (x < left + width)
    channels, rows, columns = images.shape[1:]
    return torch.where(inside, hashed_noise(seed, (channels, rows, columns)), images)
