"""Bootstrap replicates of a result: what its numbers would be on resampled images.

Replicate r of every row, and of every model measured on the same images with the same seed, is
computed on the same resample. So any statistic of a result (a difference of two models, a share of
units, a rank correlation over layers) has replicates too, and from them its interval.

They are stored as deviations from the value in units of their spread, in half precision: 400 bytes
a number instead of 1,600, with an error of at most a two-thousandth of the spread.
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
    """The replicates of one column, a row for each row of the table."""

    deviations: NDArray[np.float16]
    """(rows, replicates), in units of `spread`; NaN where a resample gave no value."""
    spread: Array
    """(rows,): the root mean square of the deviations."""

    @classmethod
    def of(cls, values: ArrayLike, replicates: ArrayLike) -> Replicates:
        """Return the replicates (rows, replicates) of values (rows,) in the form that is stored."""
        middle = np.asarray(values, dtype=np.float64)[:, None]
        deviations = np.asarray(replicates, dtype=np.float64) - middle
        known = np.isfinite(deviations)
        squares = np.where(known, np.square(deviations), 0.0).sum(1)
        spread = np.sqrt(squares / np.maximum(known.sum(1), 1))
        constant = np.where(known, 0.0, np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = np.where(spread[:, None] > 0, deviations / spread[:, None], constant)
        return cls(scaled.astype(np.float16), spread)

    def around(self, values: ArrayLike) -> Array:
        """Return the replicates (rows, replicates) of a column with these values (rows,)."""
        middle = np.asarray(values, dtype=np.float64)[:, None]
        return np.asarray(middle + self.deviations.astype(np.float64) * self.spread[:, None])

    def take(self, rows: ArrayLike) -> Replicates:
        """Return the replicates of some rows, given by numbers or a mask."""
        index = np.asarray(rows)
        return Replicates(self.deviations[index], self.spread[index])

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
        """Return the rows of all parts, in order."""
        return Replicates(
            np.concatenate([each.deviations for each in parts]),
            np.concatenate([each.spread for each in parts]),
        )


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval and replicates, or an array of such numbers.

    Indexing an array of numbers gives the estimate of one of them.
    """

    value: Any
    low: Any
    high: Any
    replicates: Array
    """(replicates, …), the other axes as those of `value`."""

    def __getitem__(self, index: Any) -> Estimate:
        axes = index if isinstance(index, tuple) else (index,)
        replicates = self.replicates[(slice(None), *axes)]
        return Estimate(self.value[index], self.low[index], self.high[index], replicates)


def tabulate(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[Column]
) -> tuple[pd.DataFrame, dict[str, Replicates]]:
    """Return a table and the replicates of its columns, from rows that may hold an `Estimate`.

    An estimate under `value` also fills the columns `low` and `high`, one under `change` also
    `change_low` and `change_high`. Rows with a plain number there get replicates of NaN.

    Parameters
    ----------
    rows
        One dict for each row: entries by column name.
    columns
        The columns of the table, in order.
    """
    import pandas as pd

    entries: list[dict[str, Any]] = []
    estimates: dict[str, dict[int, Array]] = {}
    for number, row in enumerate(rows):
        entries.append({})
        for name, entry in row.items():
            if not isinstance(entry, Estimate):
                entries[-1][name] = entry
                continue
            low, high = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
            ends = {low: float(entry.low), high: float(entry.high)}
            entries[-1] |= {name: float(entry.value), **ends}
            estimates.setdefault(name, {})[number] = entry.replicates
    names = [column.name for column in columns]
    table = pd.DataFrame(entries or np.empty((0, len(names))), columns=names)
    replicates = {}
    for name, by_row in estimates.items():
        drawn = np.full((len(table), len(next(iter(by_row.values())))), np.nan)
        drawn[list(by_row)] = np.stack(list(by_row.values()))
        replicates[name] = Replicates.of(table[name].to_numpy(dtype=np.float64), drawn)
    return table, replicates
