"""One training on many processes: `torchrun --nproc-per-node 4 -m vitreous train …`, and nothing changes but the speed.

Every process holds the data and draws the numbers of the whole batch, and computes its own rows of it; gradients are
averaged by DDP. So the result is that of one process with the same batch, up to the order of additions. Two things a
batch shares are not divided exactly: batch-norm statistics (made global on GPUs; on CPUs torch cannot, and each process
normalises with its own rows) and dropout or drop-path masks, which differ from those of one process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitreous.errors import VitreousError

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """Which of how many processes this is."""

    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this process writes and talks."""
        return self.rank == 0

    def rows(self, batch: int) -> slice:
        """This process's part of a batch."""
        if batch % self.world:
            raise VitreousError(
                f"A batch of {batch} images cannot be divided among {self.world} processes."
            )
        share = batch // self.world
        return slice(self.rank * share, (self.rank + 1) * share)

    def total(self, sums: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.world > 1:
            dist.all_reduce(sums)
        return sums

    def most(self, number: Tensor) -> int:
        """The largest of all processes' numbers."""
        if self.world > 1:
            number = number.clone()
            dist.all_reduce(number, dist.ReduceOp.MAX)
        return int(number)

    def any(self, holds: bool) -> bool:
        """Whether it holds for any process."""
        return (
            holds
            if self.world == 1
            else self.most(torch.tensor(int(holds), device=self.device)) > 0
        )

    def shared(self, value: T) -> T:
        """What the first process has, for all of them."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, device=self.device)
        return box[0]

    def wait(self) -> None:
        """Until everyone is here."""
        if self.world > 1:
            dist.barrier()

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective with gradients averaged over processes; itself where there is one."""
        if self.world == 1:
            return objective
        if self.device.type == "cuda":
            return DistributedDataParallel(
                nn.SyncBatchNorm.convert_sync_batchnorm(objective), device_ids=[self.device.index]
            )
        return DistributedDataParallel(objective)


def processes(device: torch.device) -> Processes:
    """Join the others that `torchrun` has started, or be alone. Once joined a process stays so until it ends: leaving
    and joining again would find the addresses of the first time.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Processes()
    if not dist.is_initialized():
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo", timeout=timedelta(minutes=30)
        )
        atexit.register(dist.destroy_process_group)
    return Processes(dist.get_rank(), dist.get_world_size(), device)


@contextlib.contextmanager
def interruptible(team: Processes) -> Iterator[list[int]]:
    """While inside, Ctrl-C and a request to terminate are noted, not obeyed, so that a step is finished and saved.

    The second one is obeyed at once. Among several processes nothing is caught: they would not stop at the same step.
    """
    caught: list[int] = []
    if team.world > 1 or threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def note(number: int, frame: object) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def place(device: str | torch.device) -> torch.device:
    """`auto` is this process's GPU if there is one, then Apple's, then the CPU."""
    if device != "auto":
        try:
            chosen = torch.device(device)
        except RuntimeError:
            raise VitreousError(
                f"There is no device {str(device)!r}; say auto, cpu, cuda, cuda:1 or mps."
            ) from None
        if chosen.type == "cuda" and not torch.cuda.is_available():
            raise VitreousError(
                f"The device {str(device)!r} was asked for and no GPU is to be seen; `vitreous doctor`."
            )
        return chosen
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
