"""One training on many processes: `torchrun --nproc-per-node 4 -m vitreous train …`.

Every process holds the data, draws the random numbers of the full batch and computes its rows of
it; DDP averages the gradients. The result is that of one process with the same batch, up to the
order of additions, with two exceptions: batch-norm statistics are global on GPUs only (torch cannot
do that on CPUs), and dropout masks differ.
"""

from __future__ import annotations

import atexit
import os
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
    """The processes of one training, seen from this one: its rank, their number, its device."""

    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def rows(self, batch: int) -> slice:
        """This process's rows of a batch."""
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

    def maximum(self, number: Tensor) -> int:
        """The maximum over all processes."""
        if self.world > 1:
            number = number.clone()
            dist.all_reduce(number, dist.ReduceOp.MAX)
        return int(number)

    def any(self, flag: bool) -> bool:
        """Whether the flag is true in any process."""
        if self.world == 1:
            return flag
        return self.maximum(torch.tensor(int(flag), device=self.device)) > 0

    def shared(self, value: T) -> T:
        """The first process's value, in all of them."""
        if self.world == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, device=self.device)
        return values[0]

    def wait(self) -> None:
        """Wait for all processes."""
        if self.world > 1:
            dist.barrier()

    def wrap(self, objective: nn.Module) -> nn.Module:
        """The objective with gradients averaged over processes; unchanged if there is only one."""
        if self.world == 1:
            return objective
        if self.device.type == "cuda":
            return DistributedDataParallel(
                nn.SyncBatchNorm.convert_sync_batchnorm(objective), device_ids=[self.device.index]
            )
        return DistributedDataParallel(objective)


def join_processes(device: torch.device) -> Processes:
    """Join the processes that `torchrun` started, if any.

    A process stays joined until it ends: joining a second time would find the addresses of the
    first.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Processes()
    if not dist.is_initialized():
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo", timeout=timedelta(minutes=30)
        )
        atexit.register(dist.destroy_process_group)
    return Processes(dist.get_rank(), dist.get_world_size(), device)
