"""What is done of a measurement, in memory or in a folder, so that an interrupted one resumes.

Probes and analyses alike are done piece by piece: a shard of the images, a lesioned unit, a point of a landscape. A
piece leaves tensors behind, and a result is made of those alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from vitreous.distributed import Processes
from vitreous.storage.atomic_files import Damaged, log
from vitreous.storage.fingerprints import checksum
from vitreous.storage.run_folder import Run

if TYPE_CHECKING:
    from vitreous.measure.inspection import Inspection

Numbers = Mapping[str, Tensor]
"""What a piece leaves behind: tensors by name."""
NEED = 64 << 20
"""Bytes that the pieces of a measurement may take on disk."""


class Interrupted(KeyboardInterrupt):
    """A measurement was stopped between two pieces. `inspection` has what is known by then, None if that is nothing."""

    def __init__(
        self, what: str, done: int, total: int, kept: bool, inspection: Inspection | None = None
    ) -> None:
        after = " Run the same command again: it resumes." if kept else ""
        super().__init__(f"Stopped after {done} of {total} {what}.{after}")
        self.inspection = inspection


class Partial:
    """Tensors by the key of their piece. A folder has one file for each, complete or absent.

    Enter it to lock the folder and read what is there. `reads` is false for all but the first of several processes,
    which share the folder's lock.
    """

    def __init__(
        self, folder: Path | str | None, identity: Mapping[str, Any], reads: bool = True
    ) -> None:
        self.run = Run(folder) if folder is not None else None
        self.identity, self.reads = identity, reads
        self.pieces: dict[str, Numbers] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        if self.run is not None and self.reads:
            self._open.enter_context(self.run.hold(self.identity, NEED, "measuring"))
            self.read(self.run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._open.close()

    def read(self, run: Run) -> None:
        """Take over the pieces of a folder; a damaged one is removed, to be done again."""
        for path in sorted(run.folder.glob("piece-*.safetensors")):
            try:
                numbers, notes = run.load(path.name)
                self.pieces[notes["piece"]] = numbers
            except Damaged as error:
                log.warning("%s is damaged (%s); it is computed again.", path, error.why)
                path.unlink()

    def add(self, key: str, numbers: Numbers, replaced: Iterable[str] = ()) -> None:
        """One more piece, in place of others that it contains."""
        self.pieces[key] = {name: value.detach().cpu() for name, value in numbers.items()}
        if self.run is not None:
            self.run.save(_file(key), self.pieces[key], piece=key)
        for old in replaced:
            self.remove(old)

    def remove(self, key: str) -> None:
        """Forget a piece."""
        del self.pieces[key]
        if self.run is not None:
            (self.run.folder / _file(key)).unlink(missing_ok=True)


def _file(key: str) -> str:
    plain = re.fullmatch(r"[\w-]{1,60}", key)
    return f"piece-{key if plain else checksum(key)[:8]}.safetensors"


Block = tuple[int, int]
"""Neighbouring shards whose sums are one: the first, and how many, a power of two that divides the first."""


class Shards:
    """Sums of the shards of a pass over images.

    Shards are added up in pairs, pairs in fours, and so on, each at its place. So the order of additions, and with it
    every digit, depends neither on which process saw which shard, nor on how often it was interrupted, nor on what was
    lost and seen again.
    """

    def __init__(self, partial: Partial, team: Processes) -> None:
        self.partial, self.team = partial, team
        for first, count in sorted(self.blocks, key=lambda block: -block[1]):
            if any(
                f <= first < f + c for f, c in self.blocks if c > count
            ):  # its file was about to be removed
                partial.remove(_key((first, count)))
        self.others: frozenset[int] = team.shared(self.done)
        """Shards that the first process has read from the folder, which the others need not see."""

    @property
    def blocks(self) -> list[Block]:
        """What the sums cover, in order."""
        return sorted(_block(key) for key in self.partial.pieces)

    @property
    def done(self) -> frozenset[int]:
        """Numbers of the shards that the sums cover."""
        return frozenset(
            number for first, count in self.blocks for number in range(first, first + count)
        )

    @property
    def sums(self) -> dict[str, Tensor]:
        """Of all shards so far."""
        total: dict[str, Tensor] = {}
        for block in self.blocks:
            total = _added(total, self.partial.pieces[_key(block)])
        return total

    def left(self, shards: int) -> list[int]:
        """This process's share of the shards that nobody has seen: neighbours, which add up to few blocks."""
        left = [number for number in range(shards) if number not in self.done | self.others]
        begin, end = (
            len(left) * rank // self.team.world for rank in (self.team.rank, self.team.rank + 1)
        )
        return left[begin:end]

    def add(self, number: int, sums: Numbers) -> None:
        """The sums of one more shard, all of them or, if interrupted, none."""
        self._insert((number, 1), sums)

    def _insert(self, block: Block, sums: Numbers) -> None:
        """A block, made one with its neighbours."""
        replaced = []
        while _key(other := _neighbour(block)) in self.partial.pieces:
            there = self.partial.pieces[_key(other)]
            sums = _added(there, sums) if other < block else _added(sums, there)
            replaced.append(_key(other))
            block = (min(other[0], block[0]), 2 * block[1])
        self.partial.add(_key(block), sums, replaced)

    def together(self) -> Shards:
        """The sums of all processes; one that had no shard to see has nothing to add."""
        if self.team.world == 1:
            return self
        parts: list[Any] = [None] * self.team.world
        own = {
            key: {name: value.numpy() for name, value in sums.items()}
            for key, sums in self.partial.pieces.items()
        }
        dist.all_gather_object(parts, own)
        joined = Shards(Partial(None, {}), Processes())
        for key, sums in (each for part in parts for each in part.items()):
            joined._insert(
                _block(key), {name: torch.from_numpy(value) for name, value in sums.items()}
            )
        return joined


def _key(block: Block) -> str:
    return f"{block[0]}-{block[1]}"


def _block(key: str) -> Block:
    first, count = map(int, key.split("-"))
    return first, count


def _neighbour(block: Block) -> Block:
    """The block with which this one makes the next larger."""
    first, count = block
    return (first ^ count, count)


def _added(some: Numbers, more: Numbers) -> dict[str, Tensor]:
    return {
        **some,
        **{name: some[name] + value if name in some else value for name, value in more.items()},
    }
