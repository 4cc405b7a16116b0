"""What the stages of an augmentation have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Stage(Protocol):
    """One thing that happens to every image of a batch, to each in its own way.

    `settle` turns uniform numbers (image, `numbers`) into settings, tensors whose rows belong to
    the images; the call applies them. Two steps, because settings are always computed for the whole
    batch and images for a part of it: what a row looks like must not depend on which part it was
    computed in.
    """

    @property
    def numbers(self) -> int: ...

    def settle(self, uniform: Tensor) -> tuple[Tensor, ...]: ...

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor: ...


def only(
    needed: Tensor,
    transform: Callable[..., Tensor],
    before: Tensor,
    images: Tensor,
    *settings: Tensor,
    share: float,
) -> Tensor:
    """`images` with those that need it taken from `transform(before, *settings)`; on a CPU `images`
    is overwritten.

    An operation of RandAugment concerns one image in thirty, so transforming all would be work for
    nothing. On a CPU just these are picked. On a GPU, and compiled, shapes may not depend on the
    data: there `capacity` rows are transformed, those that need it first, and the results of the
    others are dropped.
    """
    if picks(images):
        rows = needed.nonzero().squeeze(1)
        return images.index_copy_(
            0, rows, transform(before[rows], *(each[rows] for each in settings))
        )
    count = capacity(len(images), share)
    if count < len(images):
        rows = first(needed, count)
        changed = transform(before[rows], *(each[rows] for each in settings))
        return images.index_copy(
            0, rows, torch.where(needed[rows].view(-1, 1, 1, 1), changed, images[rows])
        )
    return torch.where(needed.view(-1, 1, 1, 1), transform(before, *settings), images)


def capacity(count: int, share: float) -> int:
    """Rows to reserve where each of `count` is needed with probability `share`: ten standard
    deviations above the mean.

    That there are more happens less than once in 10^18 batches; the images beyond would stay
    unchanged.
    """
    mean = count * share
    return min(count, math.ceil(mean + 10 * math.sqrt(mean * (1 - share))) + 10)


def first(needed: Tensor, count: int) -> Tensor:
    """The row numbers of the first `count` that are needed; where there are fewer, row 0 again
    and again."""
    place = needed.cumsum(0) - 1
    place = torch.where(needed & (place < count), place, count)
    rows = torch.zeros(count + 1, dtype=torch.int64, device=needed.device)
    return rows.scatter(0, place, torch.arange(len(needed), device=needed.device))[:count]


def picks(images: Tensor) -> bool:
    """Whether images can be picked by their data."""
    return images.device.type == "cpu" and not torch.compiler.is_compiling()
