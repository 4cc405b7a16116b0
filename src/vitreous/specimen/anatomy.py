"""What a model is made of: an ordered list of units. Plain data, no torch, so that it can be stored, drawn and judged
anywhere.

A `Unit` is one residual branch, or a piece of the trunk between residual branches (stem, downsample, head, and blocks
that have no skip).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, overload

from vitreous.errors import UnknownName
from vitreous.unit_kinds import KINDS, Kind, Reach, Weights

if TYPE_CHECKING:
    import pandas as pd

Grid = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of a model, in the order in which an image passes through it.

    `name` is the module path a user knows; `label` is the short address `stage.position`, both from the graph.
    """

    name: str
    kind: Kind
    index: int
    stage: int
    """0 is the stem; a new stage begins wherever the grid changes."""
    depth: float
    """Position among the units, 0 for the first and 1 for the last."""
    grid: Grid | None
    """Rows and columns of positions after the unit; None once positions are gone (after pooling) or cannot be told."""
    channels: int | None
    prefix: tuple[str, ...] = ()
    """Tokens in front of the grid: 'class', 'distillation', 'register' or 'prefix' where the name does not tell."""
    heads: int | None = None
    reach: Reach | None = None
    """Over what an attention unit attends. 'channel' and 'linear' have no attention distance; 'class' has only
    prefix tokens or learned queries; 'reduced' has keys on a coarser grid than the queries."""
    skip: bool = True
    """Whether a skip connection runs around it. Without one, a lesion passes the input on (or zeros, where the shape
    changes)."""
    parameters: int = 0
    weights: Weights | None = None
    """What attention multiplies values with, where it can be seen: 'probabilities', 'mixed' (heads are mixed after the
    softmax), 'positive' (rows do not sum to one) or 'signed'."""
    reason: str = ""
    """Why attention cannot be seen, or why its weights are no probabilities."""

    @property
    def tokens(self) -> int | None:
        """Prefix tokens and grid positions together."""
        return None if self.grid is None else len(self.prefix) + self.grid[0] * self.grid[1]


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The units of one model at one input size."""

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
            found = self.find(which)
            if len(found) > 1:
                names = ", ".join(u.name for u in found[:4])
                raise UnknownName(
                    "single unit", which, (), f"The pattern matches {len(found)}: {names} …"
                )
            return found[0]
        return self.units[which]

    def find(self, pattern: str) -> tuple[Unit, ...]:
        """Units by module path, glob (`blocks.*.attn`), kind, or short label (`2.1`), in order; at least one."""
        labels = self.labels
        hits = tuple(
            u
            for u in self.units
            if pattern in (u.kind, labels[u.index]) or fnmatchcase(u.name, pattern)
        )
        if not hits:
            known = [u.name for u in self.units]
            raise UnknownName(
                "unit", pattern, known, "Units go by path, glob, kind or label; print the anatomy."
            )
        return hits

    @property
    def labels(self) -> tuple[str, ...]:
        """Short addresses: stage, and position within the stage counted from 0."""
        seen: Counter[int] = Counter()
        labels = []
        for unit in self.units:
            labels.append(f"{unit.stage}.{seen[unit.stage]}")
            seen[unit.stage] += 1
        return tuple(labels)

    @property
    def stages(self) -> int:
        """Number of stages, the stem not counted."""
        return max((u.stage for u in self.units), default=0)

    def counts(self) -> dict[str, int]:
        """Units per kind, in the order of `KINDS`, without the zeros."""
        tally = Counter(u.kind for u in self.units)
        return {kind: tally[kind] for kind in KINDS if tally[kind]}

    def to_frame(self) -> pd.DataFrame:
        """One row a unit."""
        import pandas as pd

        frame = pd.DataFrame([asdict(u) for u in self.units])
        frame.insert(0, "label", self.labels)
        return frame

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Anatomy:
        raw: dict[str, Any] = json.loads(text)
        units = tuple(Unit(**_tuples(u)) for u in raw.pop("units"))
        return cls(units=units, **_tuples(raw))


def _tuples(raw: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
