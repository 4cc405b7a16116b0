"""`Result`: one tidy table, what its columns mean, how to draw it, and where it came from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.errors import UnknownName, VitreousError
from vitreous.palette import Theme
from vitreous.results.arrays import equal_arrays, native_copy
from vitreous.results.column import Column, column_order
from vitreous.results.files import load_result, save_result
from vitreous.results.replicates import Replicates
from vitreous.results.view import View

if TYPE_CHECKING:
    import altair as alt
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from vitreous.results.latex import IntervalStyle

# Imports within methods keep pandas and the drawing libraries out of start-up.

RUN_METADATA = ("seconds", "date")
"""Metadata in which two runs of the same measurement differ."""


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The outcome of one measurement: a tidy table with declared columns, metadata and views.

    Each row is one measured value. The order of the columns is the same everywhere: model, unit,
    kind, stage, depth; then those of the measurement; then value, low, high, n. The constructor
    checks the table against the declared columns.

    Examples
    --------
    >>> result = vitreous.inspect("nano:vit", probes="variance", limit=16)["variance"]
    >>> len(result.table), [column.name for column in result.columns][-4:]
    (13, ['value', 'low', 'high', 'n'])
    >>> figure, axes = result.plot()
    """

    name: str
    """The name of the measurement, such as `attention_distance`."""
    table: pd.DataFrame
    columns: tuple[Column, ...]
    views: tuple[View, ...] = ()
    """Ways to draw it; the first is the main one."""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Images and maps, which do not fit into a table."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Metadata that JSON can hold: models, data, options, seed, versions, seconds and date.
    `left_out` has the models and units that could not be measured, with the reason. `units` lists
    name, kind and depth of all units of each model, for the bands behind an axis of depth. `beside`
    lists all models measured together, so that each has one colour everywhere."""
    replicates: Mapping[str, Replicates] = field(default_factory=dict)
    """Bootstrap replicates by column, a row for each row of the table."""

    def __post_init__(self) -> None:
        declared = {column.name: column for column in self.columns}
        self._check_table(declared)
        names = column_order(tuple(declared))
        in_order = names == tuple(self.table.columns)
        table = self.table.copy() if in_order else self.table[list(names)]
        try:
            about = json.loads(json.dumps(dict(self.about), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise VitreousError(
                f"The metadata of result {self.name!r} does not fit into JSON: {error}."
            ) from None
        cleaned = {
            "columns": tuple(declared[name] for name in names),
            "table": table,
            "views": tuple(self.views),
            "replicates": dict(self.replicates),
            "arrays": {key: native_copy(key, array) for key, array in self.arrays.items()},
            "about": about,
        }
        for name, value in cleaned.items():
            object.__setattr__(self, name, value)  # the dataclass is frozen
        self._check_replicates(declared)
        self._check_views(declared)

    def _check_table(self, declared: Mapping[str, Column]) -> None:
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

        present = [str(name) for name in self.table.columns]
        repeated = len(declared) < len(self.columns) or len(set(present)) < len(present)
        if repeated or set(present) != set(declared):
            absent = [name for name in declared if name not in present]
            undeclared = [name for name in present if name not in declared]
            problems = []
            if absent:
                problems.append(f"declared but not in the table: {', '.join(absent)}")
            if undeclared:
                problems.append(f"in the table but not declared: {', '.join(undeclared)}")
            raise VitreousError(
                f"The columns of result {self.name!r} do not agree; "
                f"{'; '.join(problems) or 'one is there twice'}."
            )
        if not self.table.index.is_unique:
            raise VitreousError(
                f"Two rows of result {self.name!r} have the same index; call "
                "reset_index(drop=True) first."
            )
        for name, dtype in zip(present, self.table.dtypes, strict=True):
            numeric = is_numeric_dtype(dtype) and not is_bool_dtype(dtype)
            if declared[name].kind == "quantity" and not numeric:
                raise VitreousError(
                    f"Column {name!r} of result {self.name!r} is a quantity and holds {dtype}; "
                    "it takes numbers."
                )

    def _check_replicates(self, declared: Mapping[str, Column]) -> None:
        for name, each in self.replicates.items():
            if name not in declared or len(each) != len(self.table):
                raise VitreousError(
                    f"Result {self.name!r} has replicates of {name!r} for {len(each)} rows; its "
                    f"table has {len(self.table)} rows and the columns {', '.join(declared)}."
                )

    def _check_views(self, declared: Mapping[str, Column]) -> None:
        for view in self.views:
            view.check(declared, self.arrays)
            if view.mark != "tiles":
                continue
            rows = int(self.table[view.where].astype(bool).sum()) if view.where else len(self.table)
            images = len(self.arrays[view.array])
            if rows != images:
                raise VitreousError(
                    f"Array {view.array!r} of result {self.name!r} has {images} images and the "
                    f"table {rows} rows; tiles are one image a row."
                )

    def __repr__(self) -> str:
        count = self.table["model"].nunique() if "model" in self.table else 0
        models = f", {count} model{'s' * (count > 1)}" if count else ""
        columns = ", ".join(self.table.columns)
        return f"Result({self.name!r}: {len(self.table)} rows of {columns}{models})"

    def __eq__(self, other: object) -> bool:
        """Whether the content is the same; date and duration do not count."""
        if not isinstance(other, Result):
            return NotImplemented
        return (
            (self.name, self.columns, self.views) == (other.name, other.columns, other.views)
            and _without_run_metadata(self.about) == _without_run_metadata(other.about)
            and self.table.dtypes.equals(other.table.dtypes)
            and self.table.equals(other.table)
            and self.arrays.keys() == other.arrays.keys()
            and all(equal_arrays(array, other.arrays[key]) for key, array in self.arrays.items())
            and self.replicates == other.replicates
        )

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> Column:
        """Return the declaration of a column."""
        for column in self.columns:
            if column.name == name:
                return column
        known = self.table.columns
        raise UnknownName("column", name, known, f"Columns are {', '.join(known)}.")

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns of the table."""
        return tuple(map(str, self.table.columns))

    @property
    def row_count(self) -> int:
        """The number of rows of the table."""
        return len(self.table)

    def entries(self, column: str) -> np.ndarray:
        """Return the entries of a column as an array."""
        return self.table[column].to_numpy()

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of the table."""
        return self.table.copy()

    def to_numpy(self, *axes: str) -> np.ndarray:
        """Return the values as an array.

        Parameters
        ----------
        *axes
            Names of columns. Each becomes an axis, its entries in the order in which they first
            occur (default: one axis, the rows).

        Returns
        -------
        Array of float64, NaN where there is no row.

        Examples
        --------
        >>> result.to_numpy("model", "unit").shape
        (2, 25)
        """
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
                f"Several rows of result {self.name!r} share one {', '.join(axes)}; name more "
                "columns, or select rows first."
            )
        dense = np.full(shape, np.nan)
        dense.flat[cells] = values
        return dense

    def view(self, index: int = 0) -> View:
        """Return one of the views."""
        if not -len(self.views) <= index < len(self.views):
            raise VitreousError(
                f"Result {self.name!r} has {len(self.views)} views, counted from 0, and none "
                f"is view {index}."
            )
        return self.views[index]

    def rows_of(self, view: View) -> Result:
        """Return the result with only the rows that a view shows."""
        return self.select(self.table[view.where].astype(bool).to_numpy()) if view.where else self

    def select(self, mask: np.ndarray) -> Result:
        """Return the result with only the rows where `mask` is True, and without views."""
        replicates = {name: each.take(mask) for name, each in self.replicates.items()}
        return replace(self, table=self.table[mask], views=(), replicates=replicates)

    def draws(self, column: str = "value", rows: ArrayLike | None = None) -> np.ndarray:
        """Return a column as measured and on each bootstrap resample of the images.

        Parameters
        ----------
        column
            A column with replicates.
        rows
            Positions of the rows to return; all by default.

        Returns
        -------
        Array (1 + replicates, rows) of float64; the first row is the column itself. Row r of two
        columns, or of two results on the same images, belongs to the same resample: compute any
        statistic along the rows, and its spread over r is its bootstrap distribution.

        Examples
        --------
        >>> draws = result.draws()
        >>> draws[1:].mean(1).std()  # standard error of the mean over rows
        """
        import numpy as np

        if column not in self.replicates:
            known = ", ".join(self.replicates) or "none"
            raise VitreousError(
                f"Result {self.name!r} has no replicates of {column!r} (it has {known}); results "
                "of Vitreous 0.1 have none, measure them again."
            )
        values = np.asarray(self.entries(column), dtype=np.float64)
        replicates = self.replicates[column]
        if rows is not None:
            values, replicates = values[np.asarray(rows)], replicates.take(rows)
        return np.concatenate([values[None], replicates.around(values).T])

    def between(self, one: str, other: str | None = None, column: str = "value") -> pd.DataFrame:
        """Return the comparison of two models, or of one with itself, as a matrix.

        Parameters
        ----------
        one, other
            Names of models; without the second the first is compared with itself. Rows are the
            units of the first and columns those of the second.
        column
            The numbers: `value`, `low` or `high`.

        Examples
        --------
        >>> inspection["cka"].between("nano:vit", "nano:resnet").loc["blocks.0.attn", "stem"]
        """
        from vitreous.results.pairs import matrix_between  # pandas comes with it

        return matrix_between(self, one, one if other is None else other, column)

    def to_latex(
        self,
        columns: Sequence[str] | None = None,
        *,
        interval: IntervalStyle = "brackets",
        caption: str = "",
        label: str = "",
    ) -> str:
        """Return the table as LaTeX with booktabs; one of more than a page is a longtable.

        Parameters
        ----------
        columns
            Names of columns (default: model, those that distinguish its rows, and the value). The
            interval of a column is shown with it.
        interval
            "brackets" for `0.93 [0.90, 0.95]`, "pm" for `0.93 ± 0.03`, or "none".
        caption, label
            With one of them the table floats.

        Examples
        --------
        >>> print(result.to_latex(["model", "unit", "value"], label="tab:variance"))
        """
        from vitreous.results.latex import result_latex  # pandas comes with it

        return result_latex(self, columns, interval, caption, label)

    def save(self, path: str | Path) -> Path:
        """Save to a folder, as `NAME.json` and the files it names, or to the `.json` given.

        An interrupted save leaves what was there before. Returns the path of the `.json`.
        """
        return save_result(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Load what `save` wrote: the `.json`, or a folder with one result in it."""
        return load_result(cls, Path(path))

    @staticmethod
    def join(results: Sequence[Result]) -> Result:
        """Return one result with the rows of several models' results of the same measurement."""
        from vitreous.results.joining import join  # pandas comes with it

        return join(results)

    def plot(
        self, ax: Axes | None = None, view: int = 0, theme: Theme = "light"
    ) -> tuple[Figure, Any]:
        """Draw a view with matplotlib.

        Parameters
        ----------
        ax
            Where to draw (default: a new figure); only for views with one panel.
        view
            Which of the views.
        theme
            "light" or "dark".

        Returns
        -------
        The figure and its axes; an array of axes if the view has several panels.

        Examples
        --------
        >>> figure, ax = result.plot()
        >>> figure.savefig("variance.pdf")
        """
        from vitreous.results.plots import plot  # matplotlib comes with it

        return plot(self, self.view(view), ax, theme)

    def chart(self, view: int = 0, theme: Theme = "light") -> alt.TopLevelMixin:
        """Return a view as an Altair chart that contains its data."""
        from vitreous.results.charts import chart  # Altair comes with it

        return chart(self, self.view(view), theme)

    def figure(self, path: str | Path, view: int = 0, theme: Theme = "light") -> Path:
        """Save a view as `.svg`, `.pdf` or `.png` (two pixels to a point); needs no browser."""
        from vitreous.results.charts import save_chart  # Altair comes with it

        return save_chart(self.chart(view, theme), Path(path))

    def _repr_html_(self) -> str:
        from vitreous.results.notebook import result_html  # Altair comes with it

        return result_html(self)


def _without_run_metadata(about: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in about.items() if key not in RUN_METADATA}
