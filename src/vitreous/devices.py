"""Devices: choosing one, and copies to and from a GPU that do not make it wait.

`to_device` and `to_memory` start a copy through pinned memory on a stream of its own, and return a
function that returns the tensor. A plain `.to()` or `.cpu()` first waits for all work that the GPU
was given so far, after which the GPU waits for the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from vitreous.errors import VitreousError

PendingCopy = Callable[[], Tensor]
"""A copy under way: call it when the tensor is needed."""


def choose_device(device: str | torch.device) -> torch.device:
    """The device of a name; `auto` is this process's GPU if there is one, then Apple's, then the
    CPU."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise VitreousError(
            f"There is no device {str(device)!r}; say auto, cpu, cuda, cuda:1 or mps."
        ) from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise VitreousError(
            f"The device {str(device)!r} was asked for, but there is no GPU; run `vitreous doctor`."
        )
    return chosen


def choose_double_precision(device: str | torch.device) -> torch.device:
    """The device, or the CPU instead of Apple's GPU, which cannot add in double precision."""
    chosen = choose_device(device)
    if chosen.type != "mps":
        return chosen
    if device == "auto":
        return torch.device("cpu")
    raise VitreousError(
        "Inspecting needs double precision, which the device 'mps' does not have; use cpu."
    )


def to_device(tensor: Tensor, device: torch.device) -> PendingCopy:
    """Start copying a tensor to a device.

    The returned function makes the GPU's current stream wait for the copy; the CPU does not wait.
    """
    if device.type != "cuda" or tensor.device.type != "cpu":  # only main memory can be pinned
        copy = tensor.to(device)
        return lambda: copy
    stream = _copy_stream(device, "to the GPU")
    with torch.cuda.stream(stream):
        copy = tensor.pin_memory().to(device, non_blocking=True)
        copied = stream.record_event()

    def wait_for_copy() -> Tensor:
        current = torch.cuda.current_stream(device)
        current.wait_event(copied)
        # The allocator would otherwise reuse this memory once the copy stream is done with it.
        copy.record_stream(current)
        return copy

    return wait_for_copy


def to_memory(tensor: Tensor) -> PendingCopy:
    """Start copying a tensor to main memory.

    The returned function waits for this copy, and not for work that the GPU is given later. Do not
    change the tensor in between. The copy of a GPU tensor is in scarce pinned memory: clone it to
    keep it.
    """
    if tensor.device.type != "cuda":
        return tensor.cpu
    stream = _copy_stream(tensor.device, "from the GPU")
    stream.wait_stream(torch.cuda.current_stream(tensor.device))
    with torch.cuda.stream(stream):
        copy = torch.empty_like(tensor, device="cpu", pin_memory=True)
        copy.copy_(tensor, non_blocking=True)
        copied = stream.record_event()
    tensor.record_stream(stream)

    def wait_for_copy() -> Tensor:
        copied.synchronize()
        return copy

    return wait_for_copy


@cache
def _copy_stream(
    device: torch.device, direction: Literal["to the GPU", "from the GPU"]
) -> torch.cuda.Stream:
    """One stream per direction, so that a copy to the GPU need not wait for pending results."""
    return torch.cuda.Stream(device)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread inside the block: for thousands of tiny tensors a second only costs time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def ordinary_torch(dtype: torch.dtype | None = torch.float32) -> Iterator[None]:
    """Inside the block, torch has this default type (None: the session's), neither autocast nor
    inference mode.

    Otherwise numbers, and what is cached for later calls, would depend on what a session chose for
    its own code.
    """
    before = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if dtype not in (None, before):
            torch.set_default_dtype(dtype)
            stack.callback(torch.set_default_dtype, before)
        yield
