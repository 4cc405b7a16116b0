"""One trained model, and the rows of its results that claims read numbers off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.claims.facts import Facts, describe_facts
from vitreous.claims.no_replicates import Remedy, check_replicates
from vitreous.claims.quantity import Array, replicates_from_interval
from vitreous.claims.student_t import widening_factor
from vitreous.results import Result

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class EvidenceItem:
    """One trained model at one checkpoint, and the results measured on it.

    Parameters
    ----------
    facts
        Facts about the model and its training.
    results
        Results by the name of the measurement.
    name
        The name of the model in the results.
    other
        The name of the second model, if two were measured together.
    classes
        Number of classes of its images; 0 if it has to be read from the results.
    known
        The value of `marks`, if it is known without reading the results.
    left_out
        Why a measurement does not apply to the model, by its name.
    remedy
        How to measure a result again, if results without replicates are refused. None if intervals
        are accepted.
    """

    facts: Facts
    results: Mapping[str, Result]
    name: str
    other: str = ""
    classes: int = 0
    known: Mapping[str, tuple[str, str]] | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    remedy: Remedy | None = None

    @property
    def seed(self) -> int:
        return int(self.facts.get("seed", 0))

    def marks(self) -> Mapping[str, tuple[str, str]]:
        """The version that measured each result, and the fingerprint of its images."""
        if self.known is not None:
            return self.known
        return {name: marks(result) for name, result in self.results.items()}

    def count_classes(self) -> int:
        """Number of classes of its images."""
        counts = (r.about.get("data", {}).get("classes", 0) for r in self.results.values())
        return self.classes or max(counts, default=0)

    @cached_property
    def readings(self) -> dict[Any, Array]:
        """Cache of the numbers that claims have read off it; many claims share them."""
        return {}

    @cached_property
    def _rows_by_result(self) -> dict[str, Rows]:
        """Cache of `rows`."""
        return {}

    def rows(self, measurement: str) -> Rows:
        """The rows of a result that are about this model."""
        if measurement not in self._rows_by_result:
            rows = Rows(self, self.results[measurement])
            if self.name and "model" in rows.result.column_names:
                rows = rows.where(model=self.name)
            self._rows_by_result[measurement] = rows
        return self._rows_by_result[measurement]


def marks(result: Result) -> tuple[str, str]:
    """The version that measured a result and the fingerprint of its images.

    Results are compared only if they agree in both.
    """
    version = result.about.get("versions", {}).get("vitreous", "")
    return str(version), str(result.about.get("data", {}).get("fingerprint", ""))


class Unreadable(Exception):
    """A result does not contain what a claim reads."""


@dataclass(frozen=True)
class Rows:
    """Some rows of one result. `EvidenceItem.rows` returns those about its model.

    A study has hundreds of results, and a reading often uses one row of each. So this holds only
    the positions of the selected rows, and builds a table only on demand.
    """

    item: EvidenceItem
    result: Result
    positions: NDArray[np.intp] | None = None
    """Positions of the rows in the result's table, in any order; None for all."""

    @cached_property
    def table(self) -> pd.DataFrame:
        """The rows as a table."""
        table = self.result.table
        return table if self.positions is None else table.iloc[self.positions]

    def __len__(self) -> int:
        return self.result.row_count if self.positions is None else len(self.positions)

    def same_numbers(self, other: Rows) -> bool:
        """Whether both have the same rows, apart from the name of the model, and replicates."""
        one, two = (
            rows.table.drop(columns="model", errors="ignore").astype(object).reset_index(drop=True)
            for rows in (self, other)
        )
        if not one.equals(two) or set(self.result.replicates) != set(other.result.replicates):
            return False
        return all(
            np.array_equal(
                self.result.draws(column, self.positions),
                other.result.draws(column, other.positions),
                equal_nan=True,
            )
            for column in self.result.replicates
        )

    def where(self, **wanted: Any) -> Rows:
        """The rows with these entries; a tuple matches any of its entries."""
        chosen = np.ones(len(self), bool)
        for column, value in wanted.items():
            entries = self.entries(column)
            if isinstance(value, (tuple, list)):
                chosen &= np.logical_or.reduce([entries == each for each in value])
            else:
                chosen &= entries == value
        return self.select(chosen)

    def select(self, which: ArrayLike) -> Rows:
        """Select rows by a mask with an entry for each of them, or by their positions in order."""
        chosen = np.asarray(which)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.intp)
        positions = chosen if self.positions is None else self.positions[chosen]
        return Rows(self.item, self.result, positions)

    def entries(self, column: str) -> NDArray[Any]:
        """The entries of a column."""
        entries = self.result.entries(column)
        return entries if self.positions is None else entries[self.positions]

    def numbers(self, column: str = "value") -> Array:
        """The entries of a column as numbers."""
        return np.asarray(self.entries(column), dtype=np.float64)

    def replicates(self, column: str = "value") -> Array | None:
        """(1 + replicates, rows) of a column: the values, then one row per replicate.

        With few images, the deviations of replicates are widened by `widening_factor`. None if the
        result has no replicates of this column.
        """
        if column not in self.result.replicates:
            return None
        draws = self.result.draws(column, self.positions)
        if not np.isfinite(draws[1:]).any():
            return None
        factors = np.array([widening_factor(int(count)) for count in self._images])
        return draws[:1] + factors * (draws - draws[:1]) if (factors > 1).any() else draws

    @property
    def _images(self) -> Array:
        """Number of images of each row; 0 if it is not known."""
        known = "n" in self.result.column_names
        return np.nan_to_num(self.numbers("n")) if known else np.zeros(len(self))

    def draws(self, column: str = "value") -> Array:
        """(1 + replicates, rows) of a column; simulated from its interval if it has no
        replicates."""
        if not len(self):
            facts = describe_facts(self.item.facts)
            raise Unreadable(f"{self.result.name} of {facts} has no such rows")
        replicates = self.replicates(column)
        if replicates is not None:
            return replicates
        ends = ("low", "high") if column == "value" else (f"{column}_low", f"{column}_high")
        values = self.numbers(column)
        low, high = (
            self.numbers(end) if end in self.result.column_names else values for end in ends
        )
        if self.item.remedy is not None and (low < high).any():
            check_replicates(self.result, self.item.facts, self.item.remedy)
        first = 0 if self.positions is None else self.positions[0]
        place = (self.result.name, column, str(len(values)), str(first))
        name = "/".join((describe_facts(self.item.facts), *place))
        return replicates_from_interval(name, values, low, high)

    def one(self, column: str = "value") -> Array:
        """(1 + replicates,) of the only row."""
        if len(self) != 1:
            facts = describe_facts(self.item.facts)
            raise Unreadable(
                f"{self.result.name} of {facts} has {len(self)} rows where one is read"
            )
        return self.draws(column)[:, 0]
