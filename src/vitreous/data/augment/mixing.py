"""Mixup and CutMix with soft targets, with one decision per batch as in timm.

Image i of n is mixed with image n - 1 - i. One draw decides whether the batch is mixed, by which of
the two, and how much. Label smoothing is part of the targets, mixed or not.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.config import Augment
from vitreous.data.augment.distributions import beta, integer

NUMBERS = 8


class Mix(NamedTuple):
    """How a batch is mixed; every field is a tensor without dimensions."""

    image: Tensor  # weight of an image's pixels; 1 for CutMix
    target: Tensor  # weight of its target
    top: Tensor  # of the rectangle pasted from the partner; empty for mixup
    bottom: Tensor
    left: Tensor
    right: Tensor


def settle(uniform: Tensor, augment: Augment, image: tuple[int, int]) -> Mix:
    """The mix of a batch from `NUMBERS` uniform numbers."""
    height, width = image
    happens, switch, first, second, third, fourth, down, along = uniform.unbind()
    both = augment.mixup > 0 and augment.cutmix > 0
    cut_share = augment.switch_prob if both else float(augment.cutmix > 0)
    cut = (switch < cut_share) & (happens < augment.mix_prob)
    one = torch.ones_like(happens)
    blended = beta(first, second, augment.mixup) if augment.mixup > 0 else one
    pasted = beta(third, fourth, augment.cutmix) if augment.cutmix > 0 else one
    side = torch.where(cut, (1 - pasted).clamp(min=0).sqrt(), 0)
    tall, wide = (height * side).long(), (width * side).long()
    y, x = integer(down, height), integer(along, width)
    top, bottom = (y - tall // 2).clamp(0, height), (y + (tall + 1) // 2).clamp(0, height)
    left, right = (x - wide // 2).clamp(0, width), (x + (wide + 1) // 2).clamp(0, width)
    share = torch.where(cut | (happens >= augment.mix_prob), one, blended)
    kept = 1 - (bottom - top) * (right - left) / (height * width)
    return Mix(share, torch.where(cut, kept, share), top, bottom, left, right)


def mix_images(images: Tensor, partners: Tensor, mix: Mix) -> Tensor:
    """Blend each image and its partner, or paste the partner's rectangle."""
    y = torch.arange(images.shape[2], device=images.device).view(-1, 1)
    x = torch.arange(images.shape[3], device=images.device)
    inside = (y >= mix.top) & (y < mix.bottom) & (x >= mix.left) & (x < mix.right)
    share = torch.where(inside, 0.0, mix.image)
    return images * share + partners * (1 - share)


def mix_targets(targets: Tensor, partners: Tensor, mix: Mix) -> Tensor:
    """Blend targets in the proportion of the pixels."""
    return targets * mix.target + partners * (1 - mix.target)


def targets(labels: Tensor, classes: int, smoothing: float) -> Tensor:
    """Probabilities (image, class): `smoothing` is spread over all classes, the rest goes to the
    label."""
    off = smoothing / classes
    on_class = labels[:, None] == torch.arange(classes, device=labels.device)
    return torch.where(on_class, 1 - smoothing + off, off)
