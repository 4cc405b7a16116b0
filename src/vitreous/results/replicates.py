"""Bootstrap replicates of a result: what its numbers would be on resampled images.

Replicate r of every row, and of every model measured on the same images with the same seed, is computed on the same
resample. So any statistic of a result (a difference of two models, a share of units, a rank correlation over layers)
has replicates too, computed row by row, and from those its interval.

They are kept as deviations from the value in units of their own spread, in half precision: 400 bytes a number instead
of 1,600, and an error of at most a two-thousandth of the spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd

    from vitreous.results.column import Column

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Replicates:
    """Those of one column, a row for each row of the table."""

    deviations: NDArray[np.float16]
    """(rows, replicates) in units of `spread`; NaN where a resample gave no value."""
    spread: Array
    """(rows,)"""

    @classmethod
    def of(cls, values: ArrayLike, replicates: ArrayLike) -> Replicates:
        """From values (rows,) and their replicates (rows, replicates)."""
        middle, drawn = (
            np.asarray(values, dtype=np.float64),
            np.asarray(replicates, dtype=np.float64),
        )
        away = drawn - middle[:, None]
        known = np.isfinite(away)
        squares = np.where(known, np.square(away), 0.0).sum(1) / np.maximum(known.sum(1), 1)
        spread = np.sqrt(squares)
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = np.where(
                spread[:, None] > 0, away / spread[:, None], np.where(known, 0.0, np.nan)
            )
        return cls(scaled.astype(np.float16), spread)

    def around(self, values: ArrayLike) -> Array:
        """(rows, replicates) of a column with these values."""
        middle = np.asarray(values, dtype=np.float64)[:, None]
        return np.asarray(middle + self.deviations.astype(np.float64) * self.spread[:, None])

    def take(self, rows: ArrayLike) -> Replicates:
        """Those of some rows, by number or by a mask."""
        chosen = np.asarray(rows)
        return Replicates(self.deviations[chosen], self.spread[chosen])

    def __len__(self) -> int:
        return len(self.spread)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Replicates):
            return NotImplemented
        pairs = ((self.deviations, other.deviations), (self.spread, other.spread))
        return all(np.array_equal(one, two, equal_nan=True) for one, two in pairs)

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def joined(parts: Sequence[Replicates]) -> Replicates:
        """One under the other."""
        return Replicates(
            np.concatenate([each.deviations for each in parts]),
            np.concatenate([each.spread for each in parts]),
        )


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval and its replicates; or an array of such numbers, to be indexed."""

    value: Any
    low: Any
    high: Any
    replicates: Array
    """(replicates, …)"""

    def __getitem__(self, place: Any) -> Estimate:
        inside = place if isinstance(place, tuple) else (place,)
        return Estimate(
            self.value[place],
            self.low[place],
            self.high[place],
            self.replicates[(slice(None), *inside)],
        )


def tabulate(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[Column]
) -> tuple[pd.DataFrame, dict[str, Replicates]]:
    """The table of some rows, in which an `Estimate` fills three columns, and the replicates of such columns.

    An estimate under `value` also fills `low` and `high`, one under `change` also `change_low` and `change_high`. Rows
    that have a plain number there instead get replicates of NaN.
    """
    import pandas as pd

    plain: list[dict[str, Any]] = []
    drawn: dict[str, dict[int, Array]] = {}
    for number, row in enumerate(rows):
        entries: dict[str, Any] = {}
        for name, entry in row.items():
            if isinstance(entry, Estimate):
                low, high = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
                entries |= {
                    name: float(entry.value),
                    low: float(entry.low),
                    high: float(entry.high),
                }
                drawn.setdefault(name, {})[number] = entry.replicates
            else:
                entries[name] = entry
        plain.append(entries)
    names = [column.name for column in columns]
    table = pd.DataFrame(plain or np.empty((0, len(names))), columns=names)
    found = {}
    for name, known in drawn.items():
        every = np.full((len(table), len(next(iter(known.values())))), np.nan)
        every[list(known)] = np.stack(list(known.values()))
        found[name] = Replicates.of(table[name].to_numpy(dtype=np.float64), every)
    return table, found
