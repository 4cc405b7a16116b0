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
        What is known of the model and its training.
    results
        Results by the name of the measurement.
    name
        What the results call the model.
    other
        What they call the second model, where two were measured together.
    classes
        Number of classes of its images; 0 where only the results say it.
    known
        What `marks` returns, where it is known without reading the results.
    left_out
        Measurements that do not apply to the model, and why.
    remedy
        How one of its results is measured again, where they have to have replicates. None if
        intervals will do.
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
        """For every result the version that measured it and the fingerprint of its images."""
        if self.known is not None:
            return self.known
        return {name: marks(result) for name, result in self.results.items()}

    def count_classes(self) -> int:
        """Number of classes of its images."""
        counts = (r.about.get("data", {}).get("classes", 0) for r in self.results.values())
        return self.classes or max(counts, default=0)

    @cached_property
    def readings(self) -> dict[Any, Array]:
        """Numbers that claims have read off it; many claims begin with the same one."""
        return {}

    @cached_property
    def about_it(self) -> dict[str, NDArray[np.bool_] | None]:
        """By result, which rows are about this model; None for all."""
        return {}

    def rows(self, measurement: str) -> Rows:
        """The rows of a result that are about this model."""
        result = self.results[measurement]
        if measurement not in self.about_it:
            chosen = None
            if self.name and "model" in result.column_names:
                chosen = np.asarray(result.entries("model") == self.name)
            self.about_it[measurement] = None if chosen is None or chosen.all() else chosen
        return Rows(self, result, chosen=self.about_it[measurement])


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
    """Rows of one result that are about one model.

    A study has hundreds of results, and a reading often looks at one row of each: which rows are
    chosen is kept as a mask, and a table is made only if it is asked for.
    """

    item: EvidenceItem
    result: Result
    source: pd.DataFrame | None = None
    """Rows of the result's table; None for all."""
    chosen: NDArray[np.bool_] | None = None
    """Which rows of `source`; None for all."""

    @cached_property
    def table(self) -> pd.DataFrame:
        """The chosen rows."""
        source = self.result.table if self.source is None else self.source
        return source if self.chosen is None else source[self.chosen]

    def __len__(self) -> int:
        return self._source_length if self.chosen is None else int(self.chosen.sum())

    @property
    def _source_length(self) -> int:
        return self.result.row_count if self.source is None else len(self.source)

    def _source_entries(self, column: str) -> NDArray[Any]:
        if self.source is None:
            return self.result.entries(column)
        return np.asarray(self.source[column].to_numpy())

    def where(self, **wanted: Any) -> Rows:
        """The rows with these entries; a tuple stands for any of its entries."""
        chosen = np.ones(self._source_length, bool) if self.chosen is None else self.chosen.copy()
        for column, value in wanted.items():
            entries = self._source_entries(column)
            if isinstance(value, (tuple, list)):
                chosen &= np.logical_or.reduce([entries == each for each in value])
            else:
                chosen &= entries == value
        return Rows(self.item, self.result, self.source, chosen)

    def select(self, mask: ArrayLike) -> Rows:
        """The rows where a mask, an entry for each of these rows, is true."""
        wanted = np.asarray(mask, dtype=bool)
        chosen = wanted
        if self.chosen is not None:
            chosen = self.chosen.copy()
            chosen[self.chosen] = wanted
        return Rows(self.item, self.result, self.source, chosen)

    def entries(self, column: str) -> NDArray[Any]:
        """The entries of a column."""
        found = self._source_entries(column)
        return found if self.chosen is None else found[self.chosen]

    def numbers(self, column: str = "value") -> Array:
        """The entries of a column as numbers."""
        return np.asarray(self.entries(column), dtype=np.float64)

    def replicates(self, column: str = "value") -> Array | None:
        """(1 + replicates, rows) of a column: the values, then one row per resample; None if not
        kept."""
        if column not in self.result.replicates:
            return None
        drawn = self.result.draws(column, self._positions)
        return drawn if np.isfinite(drawn[1:]).any() else None

    @property
    def _positions(self) -> NDArray[np.intp] | None:
        """The numbers of its rows in the result's table; None for all."""
        if self.source is None:
            return None if self.chosen is None else np.flatnonzero(self.chosen)
        index = self.source.index if self.chosen is None else self.source.index[self.chosen]
        return np.asarray(self.result.table.index.get_indexer(index))

    @property
    def _first(self) -> int:
        """The number of its first row."""
        positions = self._positions
        return 0 if positions is None else int(positions[0])

    def draws(self, column: str = "value") -> Array:
        """(1 + replicates, rows) of a column, made up from its interval where no replicates are
        kept."""
        if not len(self):
            facts = describe_facts(self.item.facts)
            raise Unreadable(f"{self.result.name} of {facts} has no such rows")
        kept = self.replicates(column)
        if kept is not None:
            return kept
        ends = ("low", "high") if column == "value" else (f"{column}_low", f"{column}_high")
        values = self.numbers(column)
        low, high = (
            self.numbers(end) if end in self.result.column_names else values for end in ends
        )
        if self.item.remedy is not None and (low < high).any():
            check_replicates(self.result, self.item.facts, self.item.remedy)
        place = (self.result.name, column, str(len(values)), str(self._first))
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
