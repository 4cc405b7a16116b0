"""Saved results that are read lazily.

Judging a study needs a number or two from each of hundreds of results. Building complete `Result`s
for that, with their columns, views and pandas tables, takes four times as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.results.column import Column
from vitreous.results.files import (
    Header,
    check_format,
    explain_damage,
    find_header,
    read_arrow_table,
    read_data,
    read_header,
    read_replicates,
    to_pandas,
)
from vitreous.results.replicates import Replicates
from vitreous.results.result import Result
from vitreous.results.view import View

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


class StoredResult(Result):
    """A result whose table, arrays and replicates are read when they are first used.

    Every file is checked against its checksum when it is read.

    Examples
    --------
    >>> result = StoredResult.open("results/mine/accuracy.json")
    >>> result.entries("value")
    """

    _header: Header
    _path: Path

    @classmethod
    def open(cls, path: str | Path, expected: str | None = None) -> StoredResult:
        """Open the result of a `.json`; `expected` is its checksum, if known."""
        path = find_header(Path(path).expanduser())
        return cls.of_header(read_header(path, expected), path)

    @classmethod
    def of_header(cls, header: Header, path: Path) -> StoredResult:
        """Open the result of a header that is in the file `path`."""
        check_format(header, path)
        stored = object.__new__(cls)
        with explain_damage(path):
            parts = {"name": header["name"], "about": header["about"], "_header": header}
        stored.__dict__.update(parts, _path=path)  # the class is frozen
        return stored

    @cached_property
    def _arrow(self) -> Any:
        """The table as pyarrow reads it."""
        return read_arrow_table(self._header, self._path)

    @cached_property
    def table(self) -> pd.DataFrame:
        return to_pandas(self._arrow)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        with explain_damage(self._path):
            return tuple(Column(**column) for column in self._header["columns"])

    @cached_property
    def views(self) -> tuple[View, ...]:
        with explain_damage(self._path):
            return tuple(View.from_dict(view) for view in self._header["views"])

    @cached_property
    def arrays(self) -> Mapping[str, np.ndarray]:
        from safetensors.numpy import load  # it takes long to import

        with explain_damage(self._path):
            files = self._header["files"]
            return load(read_data(self._path, **files["arrays"])) if "arrays" in files else {}

    @cached_property
    def replicates(self) -> Mapping[str, Replicates]:
        replicates = read_replicates(self._header, self._path)
        with explain_damage(self._path):
            for name, each in replicates.items():
                if len(each) != self.row_count:
                    raise ValueError(f"replicates of {name} have {len(each)} rows")
        return replicates

    @property
    def column_names(self) -> tuple[str, ...]:
        with explain_damage(self._path):
            return tuple(str(column["name"]) for column in self._header["columns"])

    @property
    def row_count(self) -> int:
        return int(self._arrow.num_rows)

    def entries(self, column: str) -> np.ndarray:
        """Return the entries of a column, without pandas."""
        kept: dict[str, np.ndarray] = self.__dict__.setdefault("_entries", {})
        if column not in kept:
            kept[column] = _as_array(self._arrow.column(column))
        return kept[column]


def _as_array(column: Any) -> np.ndarray:
    """Return a column of pyarrow as an array; its own `to_numpy` imports pandas, which takes a
    tenth of the time in which a study is judged."""
    import numpy as np
    from pyarrow import types  # type: ignore[import-untyped]

    numeric = types.is_floating(column.type) or types.is_integer(column.type)
    if numeric and not column.null_count and column.num_chunks == 1:
        return np.from_dlpack(column.chunk(0))
    entries = column.to_pylist()
    if numeric:
        return np.array(entries, dtype=np.float64 if column.null_count else None)
    if types.is_boolean(column.type) and not column.null_count:
        return np.array(entries, dtype=bool)
    array = np.empty(len(entries), dtype=object)
    array[:] = entries
    return array
