"""Geometric augmentation: shifts, flips, resized crops and affine maps."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.augment.distributions import between, first_valid, integer, lookup

TRIES = 10
RATIOS = (3 / 4, 4 / 3)


class Shift:
    """torchvision's RandomCrop with black padding, to the size of the image."""

    numbers = 2

    def __init__(self, padding: int) -> None:
        self.padding = padding

    def settle(self, uniform: Tensor) -> tuple[Tensor, Tensor]:
        top, left = integer(uniform, 2 * self.padding + 1).unbind(1)
        return top, left

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor:
        height, width = images.shape[2:]
        windows = F.pad(images, (self.padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)
        top, left = settings
        return windows[torch.arange(len(images), device=images.device), :, top, left]


class Flip:
    """A horizontal flip."""

    numbers = 1

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def settle(self, uniform: Tensor) -> tuple[Tensor]:
        return (uniform[:, 0] < self.probability,)

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor:
        return torch.where(settings[0].view(-1, 1, 1, 1), images.flip(3), images)


class ResizedCrop:
    """torchvision's RandomResizedCrop, bicubic.

    Shapes that do not fit are drawn again up to ten times, then the largest central crop of a
    permitted shape is used. Resizing is a product with one matrix for rows and one for columns,
    with Pillow's weights (antialiased when shrinking), so that a batch takes two matrix
    products.
    """

    numbers = 2 * TRIES + 2

    def __init__(self, area: tuple[float, float], image: tuple[int, int]) -> None:
        self.area = area
        self.height, self.width = image
        low, high = RATIOS
        ratio = min(max(self.width / self.height, low), high)
        self.middle = (
            min(self.height, round(self.width / ratio)),
            min(self.width, round(self.height * ratio)),
        )

    def settle(self, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Top, left, height and width of each part, in pixels."""
        area = between(uniform[:, :TRIES], *self.area) * (self.height * self.width)
        ratio = between(uniform[:, TRIES:-2], *map(math.log, RATIOS)).exp()
        heights, widths = (area / ratio).sqrt().round().long(), (area * ratio).sqrt().round().long()
        valid = (heights > 0) & (heights <= self.height) & (widths > 0) & (widths <= self.width)
        height, width = first_valid(valid, heights, widths)
        top = integer(uniform[:, -2], self.height - height + 1)
        left = integer(uniform[:, -1], self.width - width + 1)
        fits, (tall, wide) = valid.any(1), self.middle
        return (
            torch.where(fits, top, (self.height - tall) // 2),
            torch.where(fits, left, (self.width - wide) // 2),
            torch.where(fits, height, tall),
            torch.where(fits, width, wide),
        )

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor:
        top, left, height, width = settings
        columns = _resizing_matrices(left, width, self.width)
        rows = _resizing_matrices(top, height, self.height)
        wide = _to_levels(torch.einsum("nchi,noi->ncho", images.float(), columns))
        return _to_levels(torch.einsum("ncih,noi->ncoh", wide, rows)).to(torch.uint8)


def _to_levels(values: Tensor) -> Tensor:
    """Round to levels, half up as Pillow does."""
    return (values + 0.5).floor().clamp(0, 255)


def _resizing_matrices(start: Tensor, length: Tensor, size: int) -> Tensor:
    """Matrices (image, size, size) that resize `length` values from `start` on to `size` values."""
    place = torch.arange(size, device=start.device)
    begin, span = start.view(-1, 1, 1), length.view(-1, 1, 1)
    scale = span / size
    centre = begin + (place.view(-1, 1) + 0.5) * scale
    weights = _bicubic((place + 0.5 - centre) / scale.clamp(min=1))
    weights = torch.where((place >= begin) & (place < begin + span), weights, 0)
    return weights / weights.sum(2, keepdim=True)


def _bicubic(distance: Tensor) -> Tensor:
    """Keys' cubic kernel with a = -1/2, Pillow's for resizing."""
    x = distance.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


def affine(
    images: Tensor, matrix: Tensor, fill: tuple[float, float, float], *, cubic: bool
) -> Tensor:
    """Sample each pixel (x, y) at (a x + b y + c, d x + e y + f), as Pillow's transform does.

    `matrix` (image, 6) holds a … f, in pixels with centres at half-integers. Positions outside get
    `fill`; neighbours beyond the edge repeat the edge. Bilinear, or bicubic if `cubic`. The
    identity is exact.
    """
    height, width = images.shape[2:]
    a, b, c, d, e, f = (each.view(-1, 1, 1) for each in matrix.unbind(1))
    y = torch.arange(height, device=images.device).view(-1, 1) + 0.5
    x = torch.arange(width, device=images.device) + 0.5
    column, row = a * x + b * y + c, d * x + e * y + f
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    columns, across = _neighbours(column, width, cubic)
    rows, down = _neighbours(row, height, cubic)
    pixels = images.float().flatten(2)
    lines = []
    for each in rows.unbind(1):
        places = (each[:, None] * width + columns).flatten(1)[:, None]
        values = pixels.gather(2, places.expand(-1, 3, -1)).unflatten(2, across.shape[1:])
        lines.append(_weighted_mean(values, across[:, None]))
    sampled = (
        _weighted_mean(torch.stack(lines, 2), down[:, None])
        .clamp(0, 255)
        .to(torch.uint8)
        .view_as(images)
    )
    colour = lookup(torch.arange(3, device=images.device).view(3, 1, 1), fill).to(torch.uint8)
    return torch.where(inside[:, None], sampled, colour)


def _neighbours(place: Tensor, size: int, cubic: bool) -> tuple[Tensor, Tensor]:
    """The two (cubic: four) pixels around each position along one axis, and their weights.

    Both are (image, pixel, place). The cubic is Keys' with a = -1, Pillow's for transforms.
    """
    place = place.flatten(1)[:, None] - 0.5
    steps = torch.arange(-1 if cubic else 0, 3 if cubic else 2, device=place.device).view(-1, 1)
    pixels = place.floor() + steps
    x = (pixels - place).abs()
    weights = torch.where(x < 1, (x - 2) * x * x + 1, ((5 - x) * x - 8) * x + 4) if cubic else 1 - x
    return pixels.long().clamp(0, size - 1), weights


def _weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean over dimension 2, of differences from the first value: exact if all are
    equal."""
    first = values[:, :, :1]
    return first.squeeze(2) + ((values - first) * weights).sum(2)
