"""Exact properties that claims read: they follow from how something is built, without training.

They are computed on the package's own layers and formulas. The folder is the registry: a property
is a function decorated with `exact_property`, in the file of its subject, and the docstring of the
claim that reads it explains it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module
from pkgutil import iter_modules

import pandas as pd

from vitreous.measure.inspection import versions
from vitreous.results import Column, Result
from vitreous.results.intervals import Interval
from vitreous.studies.identities.properties import MEASURES

__all__ = ["MEASURES", "identities"]

for _found in iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")

COLUMNS = (
    Column("measure", "category", "The property, by its name in claims."),
    Column("value", "quantity", "Its value."),
    Column(
        "low",
        "quantity",
        "Lower end of the 95 % interval; the value, where nothing is left to chance.",
    ),
    Column(
        "high",
        "quantity",
        "Upper end of the 95 % interval; the value, where nothing is left to chance.",
    ),
)


def identities(seed: int = 0) -> Result:
    """Compute all exact properties; this takes a quarter of a minute on one core."""
    rows = []
    for name, compute in sorted(MEASURES.items()):
        result = compute(seed)
        rows.append((name, *(result if isinstance(result, Interval) else (result, result, result))))
    table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS])
    table = table.astype({column.name: float for column in COLUMNS if column.kind == "quantity"})
    about = {
        "seed": seed,
        "versions": versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Result("identities", table, COLUMNS, about=about)
