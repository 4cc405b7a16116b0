"""Results of several models side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from vitreous.errors import VitreousError
from vitreous.results.replicates import Replicates
from vitreous.results.result import Result


def join(results: Sequence[Result]) -> Result:
    """Rows one under the other; views of the first; what is known about each, merged where it is a dict by model."""
    if not results:
        raise VitreousError("There is nothing to join: no result was given, pass at least one.")
    first = results[0]
    for other in results[1:]:
        if other.name != first.name:
            raise VitreousError(
                f"Results {first.name!r} and {other.name!r} answer different questions; join like with like."
            )
        different = set(first.columns) ^ set(other.columns)
        if different:
            names = ", ".join(sorted({column.name for column in different}))
            raise VitreousError(
                f"Two results {first.name!r} differ in their columns ({names}); measure both anew with one version."
            )
    tables = [result.table for result in results]
    for name in first.table.columns:
        if any(isinstance(table[name].dtype, pd.CategoricalDtype) for table in tables):
            tables = _one_set_of_categories(tables, name)
    arrays = {
        name: _stacked(name, results)
        for name in dict.fromkeys(key for result in results for key in result.arrays)
    }
    about: dict[str, Any] = {}
    for result in results:
        about = _merged(about, result.about)
    shared = [
        name for name in first.replicates if all(name in result.replicates for result in results)
    ]
    replicates = {
        name: Replicates.joined([result.replicates[name] for result in results]) for name in shared
    }
    table = pd.concat(tables, ignore_index=True)
    return Result(first.name, table, first.columns, first.views, arrays, about, replicates)


def _one_set_of_categories(tables: list[pd.DataFrame], name: str) -> list[pd.DataFrame]:
    """Without this, pandas would turn categories that differ into plain objects."""
    known = [pd.Categorical(table[name]).categories for table in tables]
    entries = list(dict.fromkeys(entry for categories in known for entry in categories))
    ordered = all(pd.Categorical(table[name]).ordered for table in tables)
    return [table.astype({name: pd.CategoricalDtype(entries, ordered=ordered)}) for table in tables]


def _stacked(name: str, results: Sequence[Result]) -> np.ndarray:
    found = [result.arrays[name] for result in results if name in result.arrays]
    shapes = {array.shape[1:] if array.ndim else None for array in found}
    if len(found) > 1 and (len(shapes) > 1 or None in shapes):
        sizes = ", ".join(str(array.shape) for array in found)
        raise VitreousError(
            f"Arrays {name!r} of shapes {sizes} do not fit under each other; give them names of their own."
        )
    return np.concatenate(found) if len(found) > 1 else found[0]


def _merged(one: Any, other: Any) -> Any:
    """Dicts are merged and lists put together; of two values that differ both are kept, numbers of seconds added."""
    if one == {} or one == other:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        both = {
            key: _merged(one[key], other[key])
            for key in one.keys() & other.keys()
            if key != "seconds"
        }
        added = (
            {"seconds": one["seconds"] + other["seconds"]}
            if "seconds" in one and "seconds" in other
            else {}
        )
        return {**one, **other, **both, **added}
    ones, others = (value if isinstance(value, list) else [value] for value in (one, other))
    return [*ones, *(value for value in others if value not in ones)]
