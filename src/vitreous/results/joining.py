"""Joining the results of several models into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vitreous.errors import VitreousError
from vitreous.results.replicates import Replicates

if TYPE_CHECKING:
    from vitreous.results.result import Result


def join(results: Sequence[Result]) -> Result:
    """Return one result with the rows of all, the views of the first and the merged metadata."""
    if not results:
        raise VitreousError("There is nothing to join: no result was given, pass at least one.")
    first = results[0]
    for other in results[1:]:
        if other.name != first.name:
            raise VitreousError(
                f"Results {first.name!r} and {other.name!r} are of different measurements; join "
                "results of one."
            )
        different = set(first.columns) ^ set(other.columns)
        if different:
            names = ", ".join(sorted({column.name for column in different}))
            raise VitreousError(
                f"Two results {first.name!r} differ in their columns ({names}); measure both again "
                "with one version."
            )
    tables = [result.table for result in results]
    for name in first.table.columns:
        if any(isinstance(table[name].dtype, pd.CategoricalDtype) for table in tables):
            tables = _with_all_categories(tables, name)
    array_names = dict.fromkeys(name for result in results for name in result.arrays)
    about: dict[str, Any] = {}
    for result in results:
        about = _merge(about, result.about)
    replicates = {
        name: Replicates.joined([result.replicates[name] for result in results])
        for name in first.replicates
        if all(name in result.replicates for result in results)
    }
    return replace(
        first,
        table=pd.concat(tables, ignore_index=True),
        arrays={name: _stack(name, results) for name in array_names},
        about=about,
        replicates=replicates,
    )


def _with_all_categories(tables: list[pd.DataFrame], name: str) -> list[pd.DataFrame]:
    """Give a column the categories of all tables, or pandas would join them as plain objects."""
    known = [pd.Categorical(table[name]).categories for table in tables]
    entries = list(dict.fromkeys(entry for categories in known for entry in categories))
    ordered = all(pd.Categorical(table[name]).ordered for table in tables)
    return [table.astype({name: pd.CategoricalDtype(entries, ordered=ordered)}) for table in tables]


def _stack(name: str, results: Sequence[Result]) -> np.ndarray:
    """Concatenate the arrays of one name along their first axis."""
    arrays = [result.arrays[name] for result in results if name in result.arrays]
    if len(arrays) == 1:
        return arrays[0]
    shapes = {array.shape[1:] if array.ndim else None for array in arrays}
    if len(shapes) > 1 or None in shapes:
        sizes = ", ".join(str(array.shape) for array in arrays)
        raise VitreousError(
            f"Arrays {name!r} of shapes {sizes} cannot be concatenated; give them different names."
        )
    return np.concatenate(arrays)


def _merge(one: Any, other: Any) -> Any:
    """Merge metadata: dicts by key, seconds by adding, other values that differ into a list."""
    if one == {} or one == other:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        merged = {**one, **other}
        for key in one.keys() & other.keys():
            both = one[key], other[key]
            merged[key] = sum(both) if key == "seconds" else _merge(*both)
        return merged
    ones = one if isinstance(one, list) else [one]
    others = other if isinstance(other, list) else [other]
    return [*ones, *(value for value in others if value not in ones)]
