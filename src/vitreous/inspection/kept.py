"""The sums of an inspection, in memory or in a folder, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

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
        self.so_far: tuple[Sums, frozenset[int]] = {}, frozenset()
        self.team, self.identity = team, {**identity, "processes": team.world}
        self.run = store.Run(folder) if folder is not None else None
        self.file = f"sums-{team.rank}.safetensors"
        self.open = ExitStack()

    @property
    def sums(self) -> Sums:
        return self.so_far[0]

    @property
    def done(self) -> frozenset[int]:
        """Numbers of the shards that the sums cover."""
        return self.so_far[1]

    def __enter__(self) -> Kept:
        if self.run is not None:
            if self.team.first:
                self.open.enter_context(self.run.claimed(self.identity, NEED))
            self.team.wait()
            if (self.run.folder / self.file).is_file():
                sums, notes = store.load(self.run.folder / self.file)
                self.so_far = sums, frozenset(notes["done"])
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.open.close()

    def add(self, number: int, sums: Sums) -> None:
        """The sums of one more shard, all of them or, if interrupted, none."""
        self.so_far = _added(self.sums, sums), self.done | {number}
        if self.run is not None:
            self.run.save(self.file, self.sums, done=sorted(self.done))

    def together(self) -> Kept:
        """The sums of all processes; one that had no shard to see has nothing to add."""
        if self.team.world > 1:
            parts: list[Any] = [None] * self.team.world
            dist.all_gather_object(parts, ({name: value.numpy() for name, value in self.sums.items()}, self.done))
            self.so_far = {}, frozenset()
            for sums, done in parts:
                more = {name: torch.from_numpy(value) for name, value in sums.items()}
                self.so_far = _added(self.sums, more), self.done | done
        return self


def _added(some: Sums, more: Sums) -> Sums:
    return {**some, **{name: some[name] + value if name in some else value for name, value in more.items()}}
