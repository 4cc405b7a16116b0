"""The sums of an inspection, in memory or in a folder, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from vitreous import store
from vitreous.probes.probe import Sums
from vitreous.processes import Processes

if TYPE_CHECKING:
    from vitreous.inspection.inspection import Inspection

NEED = 64 << 20
"""Bytes that the sums of an inspection may take."""


class Stopped(KeyboardInterrupt):
    """An inspection was interrupted. What the shards seen so far say is in `inspection`, None if there were none."""

    def __init__(self, done: int, shards: int, inspection: Inspection | None, keep: Path | str | None) -> None:
        after = "; the same command goes on from there" if keep is not None else ""
        super().__init__(f"Stopped after {done} of {shards} parts of the images{after}.")
        self.inspection = inspection


class Kept:
    """Sums by key, and the shards they cover. A folder has them after every shard; each process writes a file."""

    def __init__(self, folder: Path | str | None, identity: Mapping[str, Any], team: Processes) -> None:
        self.sums: Sums = {}
        self.done: set[int] = set()
        self.team, self.identity = team, {**identity, "processes": team.world}
        self.run = store.Run(folder) if folder is not None else None
        self.file = f"sums-{team.rank}.safetensors"
        self.open = ExitStack()

    def __enter__(self) -> Kept:
        if self.run is not None:
            if self.team.first:
                self.open.enter_context(self.run.claimed(self.identity, NEED))
            self.team.wait()
            if (self.run.folder / self.file).is_file():
                self.sums, notes = store.load(self.run.folder / self.file)
                self.done = set(notes["done"])
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.open.close()

    def add(self, number: int, sums: Sums) -> None:
        """The sums of one more shard."""
        for name, value in sums.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.done.add(number)
        if self.run is not None:
            self.run.save(self.file, self.sums, done=sorted(self.done))

    def all(self) -> Sums:
        """The sums of all processes; a process that saw no shard has nothing to add."""
        if self.team.world == 1:
            return self.sums
        parts: list[Any] = [None] * self.team.world
        dist.all_gather_object(parts, {name: value.numpy() for name, value in self.sums.items()})
        total: Sums = {}
        for part in parts:
            for name, value in part.items():
                more = torch.from_numpy(value)
                total[name] = total[name] + more if name in total else more
        return total

    def forget(self) -> None:
        """Remove the folder, once the answers are where they belong."""
        if self.run is not None and self.team.first:
            shutil.rmtree(self.run.folder, ignore_errors=True)
