"""What a model is made of: an ordered list of units, as plain data without torch.

A `Unit` is one residual branch, or a piece of the trunk between residual branches (stem,
downsample, head, and blocks that have no skip). Tables and drawings show the units in panels, with
identical blocks folded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import TYPE_CHECKING, Any, overload

from vitreous.errors import UnknownName
from vitreous.unit_kinds import KINDS, Kind, Reach, Weights

if TYPE_CHECKING:
    import pandas as pd

Grid = tuple[int, int]
"""Rows and columns of positions."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of a model, in the order in which an image passes through it.

    Examples
    --------
    >>> unit = vitreous.open("nano:vit").anatomy["blocks.3.attn"]
    >>> unit.kind, unit.heads, unit.grid
    ('attention', 4, (8, 8))
    """

    name: str
    """The module path."""
    kind: Kind
    index: int
    """Position among the units, from 0."""
    stage: int
    """0 is the stem; a new stage begins wherever the grid changes."""
    depth: float
    """Position among the units, 0 for the first and 1 for the last."""
    grid: Grid | None
    """Rows and columns of positions after the unit; None after pooling, or if unknown."""
    channels: int | None
    prefix: tuple[str, ...] = ()
    """Tokens in front of the grid: 'class', 'distillation', 'register', or 'prefix' for others."""
    heads: int | None = None
    reach: Reach | None = None
    """What an attention unit attends over. 'channel' and 'linear' have no attention distance;
    'class' has only prefix tokens or learned queries; 'reduced' has keys on a coarser grid."""
    skip: bool = True
    """Whether a skip connection runs around it. Without one, a lesion returns the input (or
    zeros, where the shape changes)."""
    parameters: int = 0
    weights: Weights | None = None
    """What attention multiplies the values by, where it can be observed: 'probabilities', 'mixed'
    (heads are mixed after the softmax), 'positive' (rows do not sum to one) or 'signed'."""
    reason: str = ""
    """Why attention cannot be observed, or why its weights are not probabilities."""

    @property
    def tokens(self) -> int | None:
        """Prefix tokens and grid positions together."""
        return None if self.grid is None else len(self.prefix) + self.grid[0] * self.grid[1]


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The units of one model at one input size.

    Examples
    --------
    >>> anatomy = vitreous.open("nano:vit").anatomy
    >>> anatomy.counts()
    {'stem': 1, 'attention': 6, 'mlp': 6, 'head': 1}
    >>> anatomy["blocks.0.attn"].heads
    4
    """

    model: str
    image: tuple[int, int, int]
    """Channels, height and width the model was opened with."""
    units: tuple[Unit, ...]
    parameters: int

    def __len__(self) -> int:
        return len(self.units)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self.units)

    @overload
    def __getitem__(self, which: int | str) -> Unit: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[Unit, ...]: ...
    def __getitem__(self, which: int | str | slice) -> Unit | tuple[Unit, ...]:
        if isinstance(which, str):
            matches = self.find(which)
            if len(matches) > 1:
                names = ", ".join(u.name for u in matches[:4])
                hint = f"The pattern matches {len(matches)}: {names} …"
                raise UnknownName("single unit", which, (), hint)
            return matches[0]
        return self.units[which]

    def find(self, pattern: str) -> tuple[Unit, ...]:
        """The units that match a module path, glob, kind or short label, in order; error if none.

        Examples
        --------
        >>> [unit.name for unit in specimen.anatomy.find("blocks.1?.attn")]
        ['blocks.10.attn', 'blocks.11.attn']
        """
        matches = []
        for unit, label in zip(self.units, self.labels, strict=True):
            if pattern in (unit.kind, label) or fnmatchcase(unit.name, pattern):
                matches.append(unit)
        if not matches:
            hint = "Units go by path, glob, kind or label; print the anatomy."
            raise UnknownName("unit", pattern, [u.name for u in self.units], hint)
        return tuple(matches)

    @property
    def labels(self) -> tuple[str, ...]:
        """Short labels such as `2.0`: the stage, and the unit's number within it from 0."""
        counts: Counter[int] = Counter()
        labels = []
        for unit in self.units:
            labels.append(f"{unit.stage}.{counts[unit.stage]}")
            counts[unit.stage] += 1
        return tuple(labels)

    @property
    def stages(self) -> int:
        """Number of stages, the stem not counted."""
        return max((u.stage for u in self.units), default=0)

    def counts(self) -> dict[str, int]:
        """Number of units of each kind that occurs, in the order of `KINDS`."""
        tally = Counter(u.kind for u in self.units)
        return {kind: tally[kind] for kind in KINDS if tally[kind]}

    def to_frame(self) -> pd.DataFrame:
        """One row for each unit, one column for each of its fields."""
        import pandas as pd  # here, so that anatomies load without it

        frame = pd.DataFrame([asdict(u) for u in self.units])
        frame.insert(0, "label", self.labels)
        return frame

    def to_json(self) -> str:
        """The anatomy as text that `from_json` reads."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Anatomy:
        """The anatomy that `to_json` wrote."""
        raw: dict[str, Any] = json.loads(text)
        units = tuple(Unit(**_tuples(u)) for u in raw.pop("units"))
        return cls(units=units, **_tuples(raw))


def _tuples(raw: dict[str, Any]) -> dict[str, Any]:
    """Turn lists back into tuples, which JSON cannot store."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}


Slot = tuple[Unit, ...]
"""The units that one box or row stands for: one unit, or all repeats of it in a fold."""
Fold = tuple[Slot, ...]
"""Slots that repeat together as one block; the number of repeats is the length of each slot."""
Panel = tuple[Fold, ...]
"""The folds of one stage, or of a part of it; see `panels`."""


def panels(units: Iterable[Unit], *, fold: bool) -> list[Panel]:
    """One panel per stage, in order; stem, head and a change of prefix tokens begin a new panel."""
    groups = groupby(
        units, lambda u: (u.stage, u.kind if u.kind in ("stem", "head") else "", u.prefix)
    )
    return [tuple(folds(tuple(group), longest=8 if fold else 0)) for _, group in groups]


def folds(units: Sequence[Unit], longest: int = 8) -> Iterator[Fold]:
    """Fold runs of identical blocks of at most `longest` units; other units stay single."""
    signatures = [
        (u.kind, u.grid, u.channels, u.prefix, u.heads, u.reach, u.skip, u.parameters)
        for u in units
    ]
    start = 0
    while start < len(units):
        period, stop = 1, start + 1  # the block length whose repeats cover the most units
        for length in range(1, longest + 1):
            end = start + length
            while signatures[end : end + length] == signatures[start : start + length]:
                end += length
            if end > max(stop, start + length):
                period, stop = length, end
        yield tuple(tuple(units[first:stop:period]) for first in range(start, start + period))
        start = stop


def slot_name(slot: Slot) -> str:
    """The path of a slot's units: `blocks.0…11.attn` if first and last differ in one component."""
    first, last = slot[0].name, slot[-1].name
    start, end = first.split("."), last.split(".")
    pairs = list(zip(start, end, strict=False))
    if len(start) != len(end) or sum(a != b for a, b in pairs) > 1:
        return f"{first} … {last}"
    return ".".join(a if a == b else f"{a}…{b}" for a, b in pairs)
