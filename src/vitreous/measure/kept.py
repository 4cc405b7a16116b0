"""The sums of an inspection, in memory or in a folder, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from vitreous import files, store
from vitreous.files import Damaged
from vitreous.measure.probe import Sums
from vitreous.processes import Processes

if TYPE_CHECKING:
    from vitreous.measure.inspection import Inspection

NEED = 64 << 20
"""Bytes that the sums of an inspection may take."""


class Stopped(KeyboardInterrupt):
    """An inspection was interrupted. What the shards seen so far say is in `inspection`, None if there were none."""

    def __init__(self, done: int, shards: int, inspection: Inspection | None, keep: Path | str | None) -> None:
        after = "; the same command goes on from there" if keep is not None else ""
        super().__init__(f"Stopped after {done} of {shards} parts of the images{after}.")
        self.inspection = inspection


FILE = re.compile(r"sums-(\d+)-(\d+)\.safetensors")
Block = tuple[int, int]
"""Shards that were added up: from this number on, so many, a power of two that divides the first."""


class Kept:
    """Sums by key, and the shards they cover.

    Shards are added up in pairs, pairs in fours, and so on, each at its place. So the order of additions, and with it
    every digit, depends neither on which process saw which shard, nor on how often it was interrupted, nor on what was
    lost and seen again. A folder has a file for each block, which is replaced by that of the next larger one.
    """

    def __init__(self, folder: Path | str | None, identity: Mapping[str, Any], team: Processes) -> None:
        self.blocks: dict[Block, Sums] = {}
        self.team, self.identity = team, identity
        self.run = store.Run(folder) if folder is not None else None
        self.others: frozenset[int] = frozenset()
        """Shards that the first process has read from the folder, which the others need not see."""
        self.open = ExitStack()

    @property
    def sums(self) -> Sums:
        """Of all shards so far."""
        total: Sums = {}
        for block in sorted(self.blocks):
            total = _added(total, self.blocks[block])
        return total

    @property
    def done(self) -> frozenset[int]:
        """Numbers of the shards that the sums cover."""
        return frozenset(number for first, count in self.blocks for number in range(first, first + count))

    def __enter__(self) -> Kept:
        if self.run is not None:
            if self.team.first:
                self.open.enter_context(self.run.claimed(self.identity, NEED, "inspecting"))
                self._read(self.run)
            self.others = self.team.shared(self.done)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.open.close()

    def left(self, shards: int) -> list[int]:
        """This process's share of the shards that nobody has seen: neighbours, which add up to few blocks."""
        left = [number for number in range(shards) if number not in self.done | self.others]
        begin, end = (len(left) * rank // self.team.world for rank in (self.team.rank, self.team.rank + 1))
        return left[begin:end]

    def _read(self, run: store.Run) -> None:
        """Blocks that are intact, the largest first; one that is part of another was about to be removed."""
        found = [(match, path) for path in run.folder.iterdir() if (match := FILE.fullmatch(path.name))]
        for match, path in sorted(found, key=lambda each: -int(each[0][2])):
            first, count = map(int, match.groups())
            if first in self.done:
                path.unlink()
                continue
            try:
                self._insert((first, count), run.load(path.name)[0])
            except Damaged as error:
                files.log.warning("%s is damaged (%s); its images are looked at again.", path, error.why)
                path.unlink()

    def add(self, number: int, sums: Sums) -> None:
        """The sums of one more shard, all of them or, if interrupted, none."""
        merged = self._insert((number, 1), sums)
        if self.run is not None:
            block = next(block for block in self.blocks if block[0] <= number < sum(block))
            self.run.save(_file(block), self.blocks[block])
            for old in merged:
                (self.run.folder / _file(old)).unlink(missing_ok=True)

    def _insert(self, block: Block, sums: Sums) -> list[Block]:
        """A block to the others, made one with its neighbours; those that are no more."""
        blocks, merged = dict(self.blocks), []
        while (other := _neighbour(block)) in blocks:
            one, two = (blocks.pop(other), sums) if other < block else (sums, blocks.pop(other))
            merged.append(other)
            sums, block = _added(one, two), (min(other[0], block[0]), 2 * block[1])
        self.blocks = {**blocks, block: sums}
        return merged

    def together(self) -> Kept:
        """The sums of all processes; one that had no shard to see has nothing to add."""
        if self.team.world > 1:
            parts: list[Any] = [None] * self.team.world
            blocks = self.blocks.items()
            plain = {block: {name: value.numpy() for name, value in sums.items()} for block, sums in blocks}
            dist.all_gather_object(parts, plain)
            whole = Kept(None, self.identity, self.team)
            for block, sums in (each for part in parts for each in part.items()):
                whole._insert(block, {name: torch.from_numpy(value) for name, value in sums.items()})
            return whole
        return self


def _file(block: Block) -> str:
    return f"sums-{block[0]}-{block[1]}.safetensors"


def _neighbour(block: Block) -> Block:
    """The block with which this one makes the next larger."""
    first, count = block
    return (first ^ count, count)


def _added(some: Sums, more: Sums) -> Sums:
    return {**some, **{name: some[name] + value if name in some else value for name, value in more.items()}}
