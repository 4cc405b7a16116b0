"""What the stages of an augmentation have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Stage(Protocol):
    """One thing that happens to every image of a batch, to each in its own way.

    `settle` turns uniform numbers (image, `numbers`) into settings, tensors whose rows belong to the images; the call
    applies them. Two steps, because settings are always computed for the whole batch and images for a part of it:
    what a row looks like must not depend on which part it was computed in.
    """

    @property
    def numbers(self) -> int: ...

    def settle(self, uniform: Tensor) -> tuple[Tensor, ...]: ...

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor: ...


def only(needed: Tensor, transform: Callable[..., Tensor], before: Tensor, images: Tensor, *settings: Tensor) -> Tensor:
    """`images` with those that need it taken from `transform(before, *settings)`; on a CPU `images` is overwritten.

    On a GPU, and compiled, all are transformed and most results dropped: picking some would make shapes depend on the
    data. On a CPU some are picked: an operation of RandAugment concerns one image in thirty.
    """
    if not picks(images):
        return torch.where(needed.view(-1, 1, 1, 1), transform(before, *settings), images)
    rows = needed.nonzero().squeeze(1)
    return images.index_copy_(0, rows, transform(before[rows], *(each[rows] for each in settings)))


def picks(images: Tensor) -> bool:
    """Whether images can be picked by their data."""
    return images.device.type == "cpu" and not torch.compiler.is_compiling()
