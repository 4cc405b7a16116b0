"""The interface of augmentation stages, and a function that applies one to some images only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Stage(Protocol):
    """One step of an augmentation, applied to every image with its own settings.

    `settle` turns uniform numbers (image, `numbers`) into settings, tensors with one row per image.
    Calling the stage applies them. These are two steps because settings are always computed for the
    complete batch, but images perhaps only for a part of it, on which a row must not depend.
    """

    @property
    def numbers(self) -> int: ...

    def settle(self, uniform: Tensor) -> tuple[Tensor, ...]: ...

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor: ...


def apply_where(
    needed: Tensor,
    transform: Callable[..., Tensor],
    before: Tensor,
    images: Tensor,
    *settings: Tensor,
    share: float,
) -> Tensor:
    """Replace the `needed` images by those of `transform(before, *settings)`; in place on a CPU.

    An operation of RandAugment applies to one image in thirty, so transforming all images would be
    wasteful. A CPU transforms only the needed ones. On a GPU, or compiled, shapes must not depend
    on the data: `capacity` rows are transformed, the needed ones first, and other results dropped.
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
    """Rows to reserve if each of `count` is needed with probability `share`.

    This is ten standard deviations above the mean. More are needed less than once in 10^18 batches;
    the excess images would stay unchanged.
    """
    mean = count * share
    return min(count, math.ceil(mean + 10 * math.sqrt(mean * (1 - share))) + 10)


def first(needed: Tensor, count: int) -> Tensor:
    """Indices of the first `count` needed rows, padded with 0."""
    place = needed.cumsum(0) - 1
    place = torch.where(needed & (place < count), place, count)
    rows = torch.zeros(count + 1, dtype=torch.int64, device=needed.device)
    return rows.scatter(0, place, torch.arange(len(needed), device=needed.device))[:count]


def picks(images: Tensor) -> bool:
    """Whether shapes may depend on the data: on a CPU, and not compiled."""
    return images.device.type == "cpu" and not torch.compiler.is_compiling()
