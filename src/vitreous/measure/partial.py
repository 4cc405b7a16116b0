"""Finished pieces of a measurement, in memory or in a folder, so that an interrupted one resumes.

A piece is a shard of the images for probes; for analyses it is a lesioned unit or a point of a
landscape, for example. Its outcome is a dict of tensors, and results are computed from those alone.
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
"""Tensors by name: the outcome of a piece."""
DISK_SPACE = 64 << 20
"""Bytes that must be free on the disk to start."""


class Interrupted(KeyboardInterrupt):
    """A measurement was interrupted; `inspection` has the results so far, if any."""

    def __init__(
        self, what: str, done: int, total: int, kept: bool, inspection: Inspection | None = None
    ) -> None:
        after = " Run the same command again: it resumes." if kept else ""
        super().__init__(f"Stopped after {done} of {total} {what}.{after}")
        self.inspection = inspection


class Partial:
    """Finished pieces by key, each also stored as a file if there is a folder.

    Entering it as a context locks the folder and reads its pieces. Of several processes only the
    first does so; for the others `reads` is False.
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
            self._open.enter_context(self.run.hold(self.identity, DISK_SPACE, "measuring"))
            self.read(self.run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if value is not None and self.run is not None and self.reads and not self.pieces:
            # nothing to resume, so the next run may differ, for example by a corrected plugin
            self.run.forget_identity()
        self._open.close()

    def read(self, run: Run) -> None:
        """Read the pieces of a folder; damaged ones are deleted and computed again."""
        for path in sorted(run.folder.glob("piece-*.safetensors")):
            try:
                numbers, notes = run.load(path.name)
                self.pieces[notes["piece"]] = numbers
            except Damaged as error:
                log.warning("%s is damaged (%s); it is computed again.", path, error.why)
                path.unlink()

    def add(self, key: str, numbers: Numbers, replaced: Iterable[str] = ()) -> None:
        """Add a piece, and remove the pieces that it replaces."""
        self.pieces[key] = {name: value.detach().cpu() for name, value in numbers.items()}
        if self.run is not None:
            self.run.save(_file(key), self.pieces[key], piece=key)
        for old in replaced:
            self.remove(old)

    def remove(self, key: str) -> None:
        """Remove a piece."""
        del self.pieces[key]
        if self.run is not None:
            (self.run.folder / _file(key)).unlink(missing_ok=True)


def _file(key: str) -> str:
    plain = re.fullmatch(r"[\w-]{1,60}", key)
    return f"piece-{key if plain else checksum(key)[:8]}.safetensors"


Block = tuple[int, int]
"""Consecutive shards that are summed: the first, and how many. The latter is a power of two and
divides the former."""


class Shards:
    """Sums of the shards of a pass over images.

    Shards are summed in pairs, pairs in fours, and so on, as in a binary tree. So the order of
    additions, and with it every digit of the sums, does not depend on which process computed which
    shard, nor on interruptions.
    """

    def __init__(self, partial: Partial, team: Processes) -> None:
        self.partial, self.team = partial, team
        for first, count in sorted(self.blocks, key=lambda block: -block[1]):
            larger = [(f, c) for f, c in self.blocks if c > count]
            if any(f <= first < f + c for f, c in larger):
                # interrupted after the larger block was written and before this one was removed
                partial.remove(_key((first, count)))
        self.stored: frozenset[int] = team.shared(self.done)
        """Shards that the first process read from the folder, known to all processes."""

    @property
    def blocks(self) -> list[Block]:
        """Finished blocks, in order."""
        return sorted(_block(key) for key in self.partial.pieces)

    @property
    def done(self) -> frozenset[int]:
        """Numbers of the finished shards."""
        return frozenset(
            number for first, count in self.blocks for number in range(first, first + count)
        )

    @property
    def sums(self) -> dict[str, Tensor]:
        """Sums over all finished shards."""
        total: dict[str, Tensor] = {}
        for block in self.blocks:
            total = _added(total, self.partial.pieces[_key(block)])
        return total

    def remaining(self, shards: int) -> list[int]:
        """The remaining shards of this process: consecutive ones, which merge into few blocks."""
        done = self.done | self.stored
        remaining = [number for number in range(shards) if number not in done]
        rank, world, count = self.team.rank, self.team.world, len(remaining)
        return remaining[count * rank // world : count * (rank + 1) // world]

    def add(self, number: int, sums: Numbers) -> None:
        """Add the sums of a shard."""
        self._insert((number, 1), sums)

    def _insert(self, block: Block, sums: Numbers) -> None:
        """Add a block; merge it with its sibling in the tree, and so on upwards, if finished."""
        replaced = []
        while _key(sibling := _sibling(block)) in self.partial.pieces:
            sibling_sums = self.partial.pieces[_key(sibling)]
            in_order = (sibling_sums, sums) if sibling < block else (sums, sibling_sums)
            sums = _added(*in_order)
            replaced.append(_key(sibling))
            block = (min(sibling[0], block[0]), 2 * block[1])
        self.partial.add(_key(block), sums, replaced)

    def gathered(self) -> Shards:
        """The shards of all processes, gathered in each process."""
        if self.team.world == 1:
            return self
        parts: list[Any] = [None] * self.team.world
        pieces = {
            key: {name: value.numpy() for name, value in sums.items()}
            for key, sums in self.partial.pieces.items()
        }
        dist.all_gather_object(parts, pieces)
        joined = Shards(Partial(None, {}), Processes())
        for part in parts:
            for key, arrays in part.items():
                sums = {name: torch.from_numpy(array) for name, array in arrays.items()}
                joined._insert(_block(key), sums)
        return joined


def _key(block: Block) -> str:
    return f"{block[0]}-{block[1]}"


def _block(key: str) -> Block:
    first, count = map(int, key.split("-"))
    return first, count


def _sibling(block: Block) -> Block:
    """The block that forms a block of twice the size together with this one."""
    first, count = block
    return (first ^ count, count)


def _added(left: Numbers, right: Numbers) -> dict[str, Tensor]:
    total = dict(left)
    for name, value in right.items():
        total[name] = total[name] + value if name in total else value
    return total
