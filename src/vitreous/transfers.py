"""To a GPU and back without making it wait: through pinned memory, on a stream beside the one it computes on.

Each function starts a transfer and returns what to call when the tensor is needed. A plain `.to()` or `.cpu()` first
waits for everything that the GPU was given so far, and then the GPU waits for the next thing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal

import torch
from torch import Tensor

Arriving = Callable[[], Tensor]


def to_device(tensor: Tensor, device: torch.device) -> Arriving:
    """What is called for is there for all that the GPU computes from then on."""
    if device.type != "cuda" or tensor.device.type != "cpu":  # only main memory can be pinned
        there = tensor.to(device)
        return lambda: there
    beside = _beside(device, "there")
    with torch.cuda.stream(beside):
        there = tensor.pin_memory().to(device, non_blocking=True)
        arrived = beside.record_event()

    def arriving() -> Tensor:
        now = torch.cuda.current_stream(device)
        now.wait_event(arrived)
        there.record_stream(now)
        return there

    return arriving


def to_memory(tensor: Tensor) -> Arriving:
    """From wherever it is; calling waits until it has been computed and copied, and for nothing that comes after it.
    The tensor must not be changed any more, and what arrives from a GPU is in pinned memory, to be copied if kept."""
    if tensor.device.type != "cuda":
        return tensor.cpu
    beside = _beside(tensor.device, "back")
    beside.wait_stream(torch.cuda.current_stream(tensor.device))
    with torch.cuda.stream(beside):
        here = torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(
            tensor, non_blocking=True
        )
        arrived = beside.record_event()
    tensor.record_stream(beside)

    def arriving() -> Tensor:
        arrived.synchronize()
        return here

    return arriving


@cache
def _beside(device: torch.device, way: Literal["there", "back"]) -> torch.cuda.Stream:
    """One for each way: what is sent need not wait for what is still to be computed and fetched."""
    return torch.cuda.Stream(device)
