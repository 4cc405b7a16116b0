"""Change images: corruption, low-pass and high-pass, noise in a frequency band, occluding boxes.

Changes are made to 8-bit pixels at the model's image size, before normalisation, so the picture on
the page is exactly what the model gets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.corruptions import corrupt
from vitreous.data.frequency import band_noise, high_pass, low_pass
from vitreous.explorer.state import Changes, Noise, Rectangle


@torch.no_grad()
def change_images(
    images: Tensor,
    changes: Changes,
    size: tuple[int, int],
    mean: Sequence[float],
    first: int = 0,
) -> Tensor:
    """Images after some changes, at a model's size, before they are normalised.

    Parameters
    ----------
    images
        uint8 (n, 3, h, w) of any size.
    changes
        What to do, in this order: corruption, low-pass, high-pass, noise, boxes.
    size
        Height and width of the model's images.
    mean
        Mean of the model's channels in [0, 1]: the colour of boxes and of what high-pass removes.
    first
        Place of the first image in its dataset, on which random corruptions depend.

    Returns
    -------
    Tensor
        uint8 (n, 3, *size); the images themselves, of their own size, if nothing is changed.

    Examples
    --------
    >>> images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    >>> change_images(images, Changes(boxes=(Rectangle(0, 0, 0.5, 1),)), (32, 32), (1, 1, 1)).max()
    tensor(255, dtype=torch.uint8)
    """
    if not changes:
        return images
    images = fit_images(images, size)
    if changes.corruption is not None:
        name, severity = changes.corruption
        images = corrupt(images, name, severity, first=first)
    if changes == Changes(corruption=changes.corruption):
        return images
    levels = images.float() / 255
    colour = torch.tensor(list(mean) * (3 if len(mean) == 1 else 1), device=levels.device)
    colour = colour.view(1, 3, 1, 1)
    if changes.low_pass < 1:
        levels = low_pass(levels, changes.low_pass * math.pi)
    if changes.high_pass > 0:
        levels = high_pass(levels, changes.high_pass * math.pi) + colour
    if changes.noise is not None:
        levels = levels + _noise(levels, changes.noise, first)
    for box in changes.boxes:
        rows, columns = box_pixels(box, size)
        levels[:, :, rows, columns] = colour
    return _pixels(levels)


def fit_images(images: Tensor, size: tuple[int, int]) -> Tensor:
    """uint8 images resized as `Subject.prepare` does, rounded to whole levels."""
    if tuple(images.shape[2:]) == tuple(size):
        return images
    levels = images.float() / 255
    resized = F.interpolate(
        levels, size=tuple(size), mode="bicubic", antialias=True, align_corners=False
    )
    return _pixels(resized)


def box_pixels(box: Rectangle, size: tuple[int, int]) -> tuple[slice, slice]:
    """Rows and columns of a box in an image of this height and width.

    >>> box_pixels(Rectangle(0, 0.25, 0.5, 1), (32, 32))
    (slice(0, 16, None), slice(8, 32, None))
    """
    rows = slice(round(box.top * size[0]), round(box.bottom * size[0]))
    return rows, slice(round(box.left * size[1]), round(box.right * size[1]))


def _noise(levels: Tensor, noise: Noise, first: int) -> Tensor:
    shape = (len(levels), 3, int(levels.shape[2]), int(levels.shape[3]))
    wave = 2 / max(shape[2:])
    width = max(round(noise.width / wave), 1) * wave  # whole waves, so that no band is empty
    return band_noise(
        shape,
        noise.frequency * math.pi,
        noise.strength,
        width=width * math.pi,
        definition="equal",
        first=first,
        device=levels.device,
    )


def _pixels(levels: Tensor) -> Tensor:
    return (levels.clamp(0, 1) * 255).round().to(torch.uint8)
