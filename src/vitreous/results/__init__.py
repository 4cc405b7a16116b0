"""Results of measurements: tidy tables with declared columns, intervals, replicates and figures.

Nothing here needs torch, so saved results can be read, drawn and judged anywhere. pandas and the
drawing libraries are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitreous.results.column import UNIT_COLUMNS as UNIT_COLUMNS
    from vitreous.results.column import Column as Column
    from vitreous.results.column import estimate as estimate
    from vitreous.results.intervals import Interval as Interval
    from vitreous.results.intervals import bootstrap_mean as bootstrap_mean
    from vitreous.results.intervals import change_of_sums as change_of_sums
    from vitreous.results.intervals import clustered_share as clustered_share
    from vitreous.results.intervals import from_replicates as from_replicates
    from vitreous.results.intervals import mean_of_few as mean_of_few
    from vitreous.results.intervals import mean_of_sums as mean_of_sums
    from vitreous.results.intervals import paired_change as paired_change
    from vitreous.results.intervals import ratio_of_few as ratio_of_few
    from vitreous.results.intervals import wilson as wilson
    from vitreous.results.replicates import Estimate as Estimate
    from vitreous.results.replicates import Replicates as Replicates
    from vitreous.results.replicates import tabulate as tabulate
    from vitreous.results.result import Result as Result
    from vitreous.results.view import Reference as Reference
    from vitreous.results.view import View as View
    from vitreous.results.view import depth_view as depth_view

_HOMES = {
    "Column": "column",
    "Estimate": "replicates",
    "Interval": "intervals",
    "Reference": "view",
    "Replicates": "replicates",
    "Result": "result",
    "UNIT_COLUMNS": "column",
    "View": "view",
    "bootstrap_mean": "intervals",
    "change_of_sums": "intervals",
    "clustered_share": "intervals",
    "depth_view": "view",
    "estimate": "column",
    "from_replicates": "intervals",
    "mean_of_few": "intervals",
    "mean_of_sums": "intervals",
    "paired_change": "intervals",
    "ratio_of_few": "intervals",
    "tabulate": "replicates",
    "wilson": "intervals",
}

__all__ = [
    "UNIT_COLUMNS", "Column", "Estimate", "Interval", "Reference", "Replicates", "Result", "View",
    "bootstrap_mean", "change_of_sums", "clustered_share", "depth_view", "estimate",
    "from_replicates", "mean_of_few", "mean_of_sums", "paired_change", "ratio_of_few",
    "tabulate", "wilson",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vitreous.results' has no attribute {name!r}")
    return getattr(import_module(f"vitreous.results.{_HOMES[name]}"), name)
