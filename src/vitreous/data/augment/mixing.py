"""Mixup and CutMix with their soft targets, decided once for a whole batch as in timm (A3.09).

Image i of n is mixed with image n - 1 - i. One draw decides whether the batch is mixed, by which of
the two, and how much; label smoothing is part of the targets, mixed or not.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.config import Augment
from vitreous.data.augment.chance import beta, integer

NUMBERS = 8


class Mix(NamedTuple):
    """How a batch is mixed; every field is a tensor without dimensions."""

    image: Tensor  # an image's own share of its pixels; 1 for CutMix
    target: Tensor  # and of its target
    top: Tensor  # of the rectangle that comes from the partner; empty for mixup
    bottom: Tensor
    left: Tensor
    right: Tensor


def settle(uniform: Tensor, augment: Augment, image: tuple[int, int]) -> Mix:
    """A batch's mix from `NUMBERS` uniform numbers."""
    height, width = image
    happens, switch, first, second, third, fourth, down, along = uniform.unbind()
    both = augment.mixup > 0 and augment.cutmix > 0
    cut = (switch < (augment.switch_prob if both else float(augment.cutmix > 0))) & (
        happens < augment.mix_prob
    )
    whole = torch.ones_like(happens)
    blended = beta(first, second, augment.mixup) if augment.mixup > 0 else whole
    pasted = beta(third, fourth, augment.cutmix) if augment.cutmix > 0 else whole
    side = torch.where(cut, (1 - pasted).clamp(min=0).sqrt(), 0)
    tall, wide = (height * side).long(), (width * side).long()
    y, x = integer(down, height), integer(along, width)
    top, bottom = (y - tall // 2).clamp(0, height), (y + (tall + 1) // 2).clamp(0, height)
    left, right = (x - wide // 2).clamp(0, width), (x + (wide + 1) // 2).clamp(0, width)
    share = torch.where(cut | (happens >= augment.mix_prob), whole, blended)
    kept = 1 - (bottom - top) * (right - left) / (height * width)
    return Mix(share, torch.where(cut, kept, share), top, bottom, left, right)


def mix_images(images: Tensor, partners: Tensor, mix: Mix) -> Tensor:
    """Pixels of each image and its partner: blended, or the partner's inside the rectangle."""
    y = torch.arange(images.shape[2], device=images.device).view(-1, 1)
    x = torch.arange(images.shape[3], device=images.device)
    inside = (y >= mix.top) & (y < mix.bottom) & (x >= mix.left) & (x < mix.right)
    share = torch.where(inside, 0.0, mix.image)
    return images * share + partners * (1 - share)


def mix_targets(own: Tensor, partners: Tensor, mix: Mix) -> Tensor:
    """Targets in the proportion of the pixels."""
    return own * mix.target + partners * (1 - mix.target)


def targets(labels: Tensor, classes: int, smoothing: float) -> Tensor:
    """Probabilities (image, class): `smoothing` is spread over all classes, the rest is the
    label's."""
    off = smoothing / classes
    return torch.where(
        labels[:, None] == torch.arange(classes, device=labels.device), 1 - smoothing + off, off
    )
