"""What happens when memory runs out: the same work again with half as many images at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

log = logging.getLogger("vitreous")
T = TypeVar("T")


class Batched(Protocol):
    """Work that takes `batch` images (or copies of a model) at a time."""

    batch: int


def halving(
    work: Batched, images: int, attempt: Callable[[], T], again: Callable[[], None] = lambda: None
) -> T:
    """What `attempt` returns, tried with half of `work.batch` for as long as memory does not suffice.

    `images` is how many there are at most; `again` is called before every further attempt.
    """
    while True:
        try:
            return attempt()
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not out_of_memory(error) or min(work.batch, images) == 1:
                raise
            work.batch = max(1, min(work.batch, images) // 2)
            log.warning("Out of memory; trying again with %d at a time.", work.batch)
        again()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def out_of_memory(error: BaseException) -> bool:
    """Torch has an error of its own for GPUs only; on a CPU the message differs from system to system."""
    messages = ("can't allocate memory", "not enough memory")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(
        part in str(error) for part in messages
    )
