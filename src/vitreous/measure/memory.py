"""Repeat work with half the batch size when memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

log = logging.getLogger("vitreous")
T = TypeVar("T")


class Batched(Protocol):
    """Work with a batch size: the number of images, or copies of a model, at a time."""

    batch: int


def halving(
    work: Batched, images: int, attempt: Callable[[], T], reset: Callable[[], None] = lambda: None
) -> T:
    """Return `attempt()`; if memory runs out, halve `work.batch` and try again.

    `images` is the largest useful batch; `reset` is called before every further attempt.
    """
    while True:
        try:
            return attempt()
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not out_of_memory(error) or min(work.batch, images) == 1:
                raise
            work.batch = max(1, min(work.batch, images) // 2)
            log.warning("Out of memory; trying again with %d at a time.", work.batch)
        reset()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out.

    Torch has an exception class for GPUs only; on a CPU the message depends on the system.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)
