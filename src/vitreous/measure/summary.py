"""An inspection in a few lines: a row of numbers for each model, and what was left out."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pandas as pd

from vitreous.errors import VitreousError
from vitreous.results import Column, Result
from vitreous.results.weight_origin import model_records

if TYPE_CHECKING:
    from vitreous.measure.inspection import Inspection

COLUMNS = (
    Column("model", "category", "The model."),
    Column("weights", "category", "Where its weights come from."),
    Column("units", "quantity", "Number of units."),
    Column("parameters", "quantity", "Number of parameters."),
    Column("gflops", "quantity", "Operations of one image.", label="GFLOPs"),
    Column("speed", "quantity", "Images per second.", label="images/s"),
    Column("speed_low", "quantity", "Lower end of its 95 % interval."),
    Column("speed_high", "quantity", "Upper end of its 95 % interval."),
    Column("accuracy", "quantity", "Top-1 accuracy."),
    Column("accuracy_low", "quantity", "Lower end of its 95 % interval."),
    Column("accuracy_high", "quantity", "Upper end of its 95 % interval."),
    Column("nll", "quantity", "Negative log-likelihood.", label="NLL"),
    Column("nll_low", "quantity", "Lower end of its 95 % interval."),
    Column("nll_high", "quantity", "Upper end of its 95 % interval."),
    Column("ece", "quantity", "Expected calibration error.", label="ECE"),
    Column("ece_low", "quantity", "Lower end of its 95 % interval."),
    Column("ece_high", "quantity", "Upper end of its 95 % interval."),
)
"""Columns in which no model has a number are left out."""
MOST_REASONS = 3
"""Maximum number of reasons in an error."""


def summary_result(inspection: Inspection) -> Result:
    """A table with a row for each model: accuracy, calibration and cost, as far as measured."""
    rows: dict[str, dict[str, Any]] = {}
    for model, about in model_records(inspection):
        rows.setdefault(model, {})["weights"] = about.get("weights") or ""
    for model, anatomy in inspection.anatomies.items():
        numbers = {"units": len(anatomy.units), "parameters": anatomy.parameters}
        rows.setdefault(model, {}).update(numbers)
    for name, column, which in (
        ("cost", "speed", {}),
        ("accuracy", "accuracy", {"measure": "top-1", "overall": True}),
        ("calibration", "nll", {"measure": "NLL", "overall": True}),
        ("calibration", "ece", {"measure": "ECE", "overall": True}),
    ):
        for row in _rows_of(inspection, name, which):
            values = rows.setdefault(str(row["model"]), {})
            values |= {column: row["value"]}
            values |= {f"{column}_{end}": row.get(end, math.nan) for end in ("low", "high")}
            values |= {"gflops": row["gflops"]} if "gflops" in row else {}
    table = pd.DataFrame([{"model": model, **values} for model, values in rows.items()])
    columns = tuple(
        column for column in COLUMNS if column.name in table and table[column.name].notna().any()
    )
    return Result("summary", table[[column.name for column in columns]], columns)


def _rows_of(inspection: Inspection, name: str, entries: dict[str, Any]) -> list[dict[Any, Any]]:
    """The rows of a result with these entries in columns; empty if it has no such columns."""
    if name not in inspection:
        return []
    table = inspection[name].table
    if not {"model", "value", *entries} <= set(table.columns):
        return []
    for column, value in entries.items():
        table = table[table[column] == value]
    return table.to_dict("records")


def left_out_lines(inspection: Inspection) -> list[str]:
    """One line per reason why measurements of a model were left out."""
    return [f"Left out: {what}. {why}" for what, why in _left_out(inspection)]


def nothing_measured(inspection: Inspection) -> VitreousError:
    """The error for an inspection without any result, with the reasons."""
    reasons = [f"{what}: {why}" for what, why in _left_out(inspection)]
    more = len(reasons) - MOST_REASONS
    shown = [*reasons[:MOST_REASONS], *([f"and {more} more reasons."] if more > 0 else [])]
    return VitreousError(f"Nothing could be measured, so no report is written. {' '.join(shown)}")


def _left_out(inspection: Inspection) -> list[tuple[str, str]]:
    """Measurements that were left out, such as "cka of nano:vit, nano:resnet", with the reason."""
    left_out = {name: result.about.get("left_out", {}) for name, result in inspection.items()}
    measurements: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, models in (left_out | inspection.left_out).items():
        for model, why in models.items():
            if isinstance(why, str):  # otherwise it concerns some of its units only
                measurements[model, why].append(name)
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (model, why), names in measurements.items():
        grouped[", ".join(names), why].append(model)
    return [(f"{names} of {', '.join(models)}", why) for (names, why), models in grouped.items()]
