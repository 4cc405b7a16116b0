"""The one thing that leaves a probe or an analysis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.errors import UnknownName, VitreousError
from vitreous.palette import Theme
from vitreous.results.column import Column, ordered
from vitreous.results.view import View

if TYPE_CHECKING:
    import altair as alt
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vitreous.results.replicates import Replicates

FLEETING = ("seconds", "date")
"""What two runs of one thing differ in."""


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A tidy table, what its columns mean, how to look at it, and where it came from.

    One row a measurement. Columns stand in one order everywhere: model, unit, kind, stage, depth; then the result's
    own; then value, low, high, n. Making a result checks it, so that whoever reads one can rely on it.
    """

    name: str
    """The question's one word, such as `attention_distance`."""
    table: pd.DataFrame
    columns: tuple[Column, ...]
    views: tuple[View, ...] = ()
    """The first is the main one."""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Pictures, which do not belong in a table."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What produced it, as JSON can hold it: models, data, options, seed, versions, seconds, date, ids of the
    catalogue, and `left_out`, the units that could not be asked, with the reason. `units` lists, for each model, the
    name, kind and depth of all its units, for the bands behind an axis of depth; `beside` lists all models that were
    looked at together, also those that could not be asked, so that each has one colour everywhere."""
    replicates: Mapping[str, Replicates] = field(default_factory=dict)
    """Column: its bootstrap replicates, a row for each row of the table."""

    def __post_init__(self) -> None:
        declared = {column.name: column for column in self.columns}
        names = ordered(tuple(declared))
        self._check_table(declared)
        object.__setattr__(self, "columns", tuple(declared[name] for name in names))
        in_order = names == tuple(self.table.columns)
        object.__setattr__(
            self, "table", self.table.copy() if in_order else self.table[list(names)]
        )
        object.__setattr__(self, "views", tuple(self.views))
        object.__setattr__(self, "replicates", dict(self.replicates))
        for name, each in self.replicates.items():
            if name not in declared or len(each) != len(self.table):
                raise VitreousError(
                    f"Result {self.name!r} has replicates of {name!r} for {len(each)} rows; its table has "
                    f"{len(self.table)} rows and the columns {', '.join(names)}."
                )
        object.__setattr__(
            self, "arrays", {key: _plain(key, array) for key, array in self.arrays.items()}
        )
        try:
            object.__setattr__(
                self, "about", json.loads(json.dumps(dict(self.about), allow_nan=False))
            )
        except (TypeError, ValueError) as error:
            raise VitreousError(
                f"What result {self.name!r} says about itself does not fit into JSON: {error}."
            ) from None
        for view in self.views:
            view.check(declared, self.arrays)
            if view.mark == "tiles" and len(self.arrays[view.array]) != (
                drawn := len(self._rows(view))
            ):
                raise VitreousError(
                    f"Array {view.array!r} of result {self.name!r} has {len(self.arrays[view.array])} pictures and the "
                    f"table {drawn} rows; tiles are one picture a row."
                )

    def _check_table(self, declared: Mapping[str, Column]) -> None:
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

        found = [str(name) for name in self.table.columns]
        if (
            len(declared) < len(self.columns)
            or len(set(found)) < len(found)
            or set(found) != set(declared)
        ):
            wrong = [
                f"{words} {', '.join(names)}"
                for words, names in (
                    (
                        "declared but not in the table:",
                        [name for name in declared if name not in found],
                    ),
                    (
                        "in the table but not declared:",
                        [name for name in found if name not in declared],
                    ),
                )
                if names
            ]
            raise VitreousError(
                f"The columns of result {self.name!r} do not agree; {'; '.join(wrong) or 'one is there twice'}."
            )
        if not self.table.index.is_unique:
            raise VitreousError(
                f"Two rows of result {self.name!r} have one index; call reset_index(drop=True) first."
            )
        dtypes = dict(zip(found, self.table.dtypes, strict=True))
        for name, column in declared.items():
            dtype = dtypes[name]
            if column.kind == "quantity" and (is_bool_dtype(dtype) or not is_numeric_dtype(dtype)):
                raise VitreousError(
                    f"Column {name!r} of result {self.name!r} is a quantity and holds {dtype}; it takes numbers."
                )

    def __repr__(self) -> str:
        count = self.table["model"].nunique() if "model" in self.table else 0
        models = f", {count} model{'s' * (count > 1)}" if count else ""
        return f"Result({self.name!r}: {len(self.table)} rows of {', '.join(self.table.columns)}{models})"

    def __eq__(self, other: object) -> bool:
        """The same content; when it was measured, and how long that took, does not matter."""
        if not isinstance(other, Result):
            return NotImplemented
        return (
            (self.name, self.columns, self.views) == (other.name, other.columns, other.views)
            and _lasting(self.about) == _lasting(other.about)
            and self.table.dtypes.equals(other.table.dtypes)
            and self.table.equals(other.table)
            and self.arrays.keys() == other.arrays.keys()
            and all(_same(array, other.arrays[key]) for key, array in self.arrays.items())
            and self.replicates == other.replicates
        )

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> Column:
        """The declaration of a column."""
        for column in self.columns:
            if column.name == name:
                return column
        raise UnknownName(
            "column", name, self.table.columns, f"Columns are {', '.join(self.table.columns)}."
        )

    def to_frame(self) -> pd.DataFrame:
        """The table, to do with as one likes."""
        return self.table.copy()

    def to_numpy(self, *axes: str) -> np.ndarray:
        """The values; with names of columns as a dense array that has these axes, in the order in which their entries
        first occur, NaN where there is no row."""
        import numpy as np
        import pandas as pd

        values = self.table[self.column("value").name].to_numpy(dtype=np.float64)
        if not axes:
            return values
        codes, levels = zip(
            *(pd.factorize(self.table[self.column(axis).name]) for axis in axes), strict=True
        )
        shape = tuple(len(level) for level in levels)
        cells = np.ravel_multi_index(codes, shape) if len(values) else np.zeros(0, dtype=np.intp)
        if np.unique(cells).size < values.size:
            raise VitreousError(
                f"Several rows of result {self.name!r} share one {', '.join(axes)}; name more columns, or select "
                "rows first."
            )
        dense = np.full(shape, np.nan)
        dense.flat[cells] = values
        return dense

    def view(self, which: int = 0) -> View:
        """One of the views, with an error that says how many there are."""
        if not -len(self.views) <= which < len(self.views):
            raise VitreousError(
                f"View {which} of result {self.name!r} was asked for; it has {len(self.views)}, counted from 0."
            )
        return self.views[which]

    def narrowed(self, view: View) -> Result:
        """With the rows that a view shows."""
        return self.where(self.table[view.where].astype(bool).to_numpy()) if view.where else self

    def where(self, chosen: np.ndarray) -> Result:
        """With some of the rows, by a mask; without views."""
        replicates = {name: drawn.take(chosen) for name, drawn in self.replicates.items()}
        return replace(self, table=self.table[chosen], views=(), replicates=replicates)

    def draws(self, column: str = "value") -> np.ndarray:
        """(1 + replicates, rows) of a column: as measured, and on each resample of the images.

        Row r of two columns, or of two results on the same images, belongs to the same resample: compute any statistic
        along the rows, and its spread over r is its bootstrap.
        """
        import numpy as np

        if column not in self.replicates:
            known = ", ".join(self.replicates) or "none"
            raise VitreousError(
                f"Result {self.name!r} has no replicates of {column!r} (it has {known}); results of Vitreous 0.1 have "
                "none, measure them again."
            )
        values = self.table[column].to_numpy(dtype=np.float64)
        return np.concatenate([values[None], self.replicates[column].around(values).T])

    def _rows(self, view: View) -> pd.DataFrame:
        return self.table[self.table[view.where].astype(bool)] if view.where else self.table

    def save(self, path: str | Path) -> Path:
        """Write `NAME.json` and the files it names into a folder (or exactly to the `.json` given); returns its path.

        A result is there whole or, if writing was interrupted, as it was before."""
        from vitreous.results.files import save

        return save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read what `save` wrote: the `.json`, or a folder with one result in it."""
        from vitreous.results.files import load

        return load(Path(path))

    @staticmethod
    def join(results: Sequence[Result]) -> Result:
        """One result of several models' results to the same question."""
        from vitreous.results.joining import join

        return join(results)

    def plot(
        self, ax: Axes | None = None, view: int = 0, theme: Theme = "light"
    ) -> tuple[Figure, Any]:
        """Draw with matplotlib; returns figure and axes, an array of axes for a view with several panels."""
        from vitreous.results.plots import plot

        return plot(self, self.view(view), ax, theme)

    def chart(self, view: int = 0, theme: Theme = "light") -> alt.TopLevelMixin:
        """The same as an Altair chart, data inside, to restyle or to put on a page."""
        from vitreous.results.charts import chart

        return chart(self, self.view(view), theme)

    def figure(self, path: str | Path, view: int = 0, theme: Theme = "light") -> Path:
        """Write the chart as `.svg`, `.pdf` or `.png` (two pixels to a point), without a browser."""
        from vitreous.results.charts import write

        return write(self.chart(view, theme), Path(path))

    def _repr_html_(self) -> str:
        from vitreous.results.notebook import html

        return html(self)


def _plain(name: str, array: Any) -> np.ndarray:
    """A copy in row order and native bytes; what a file of arrays can hold."""
    import numpy as np

    given = np.asarray(array)
    if given.dtype.kind not in "biuf":
        raise VitreousError(f"Array {name!r} holds {given.dtype}; arrays of a result hold numbers.")
    return np.array(given, dtype=given.dtype.newbyteorder("="), order="C")


def _lasting(about: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in about.items() if key not in FLEETING}


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    import numpy as np

    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
