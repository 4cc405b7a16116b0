"""Tables of the models: their units, cost and accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vitreous.measure.inspection import Inspection
from vitreous.report.packing import compact_json
from vitreous.results.names import ROOMY, short_names
from vitreous.results.weight_origin import model_records, weights_label
from vitreous.results.words import escape, format_number, format_percent, join_words, plural
from vitreous.specimen.anatomy import Anatomy
from vitreous.specimen.drawing_svg import count
from vitreous.unit_kinds import KINDS

Column = tuple[str, Callable[[str], str]]
"""A heading, and a function from the name of a model to its cell."""


def inspected_models(inspection: Inspection) -> list[str]:
    """Return the names of the models that the results of an inspection mention."""
    names = [model for model, _ in model_records(inspection)]
    names += [model for why in inspection.left_out.values() for model in why]
    return list(dict.fromkeys(names)) or ["models"]


MANY = 6
"""Number of models above which the rows of the first screen are one line high."""
SHORT = ("accuracy", "parameters", "GFLOPs")
"""Columns of the table on the first screen."""


def models_table(inspection: Inspection, names: list[str], short: bool = False) -> str:
    """Return a table with a row for each model; columns without any entry are left out.

    The short table, on the first screen, draws the model's units as a strip instead of counting
    them.
    """
    columns = [column for column in _columns(inspection) if any(column[1](name) for name in names)]
    if short:
        columns = [column for label in SHORT for column in columns if column[0] == label]
    heads = "".join(
        f'<th scope="col" class="number">{escape(heading)}</th>' for heading, _ in columns
    )
    drawn = short and bool(inspection.anatomies)
    heads = ('<th scope="col">units</th>' if drawn else "") + heads
    rows = ""
    shown = short_names(names, ROOMY)
    for i, name in enumerate(names):
        cells = f"<td>{thumbnail(inspection, name)}</td>" if drawn else ""
        cells += "".join(f'<td class="number">{cell(name) or "–"}</td>' for _, cell in columns)
        dot = f'<i class="dot model-{i}"></i>'
        rows += (
            f'<tr data-models="{escape(compact_json([name]))}"><th scope="row" '
            f'title="{escape(name)}">{dot}<span>{escape(shown[name])}</span></th>{cells}</tr>'
        )
    kind = "models short" if short else "models"
    if short and len(names) > MANY:
        kind += " many"
    label = "The models in short" if short else "Table of the models"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="{kind}"><thead><tr><th scope="col">model</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def thumbnail(inspection: Inspection, name: str) -> str:
    """Return the units of a model as a strip of boxes in the colours of their kinds."""
    anatomy = inspection.anatomies.get(name)
    if anatomy is None:
        return ""
    boxes = ""
    for i, unit in enumerate(anatomy):
        boxes += (
            f'<rect class="box kind-{unit.kind}" x="{i}" width="0.84" height="10" '
            f'data-model="{escape(name)}" data-unit="{escape(unit.name)}"/>'
        )
    counted = join_words([f"{number} {kind}" for kind, number in anatomy.counts().items()])
    return (
        f'<svg class="units" viewBox="0 0 {len(anatomy)} 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(counted)}">{boxes}</svg>'
    )


def kinds_legend(inspection: Inspection) -> str:
    """Return the legend of the colours of units, for the kinds that occur."""
    present = {unit.kind for anatomy in inspection.anatomies.values() for unit in anatomy}
    marks = "".join(
        f'<span><i class="swatch kind-{kind}"></i>{kind}</span>'
        for kind in KINDS
        if kind in present
    )
    return f'<p class="kinds">{marks}</p>' if marks else ""


def _columns(inspection: Inspection) -> Iterator[Column]:
    anatomies = inspection.anatomies

    def of(cell: Callable[[Anatomy], str]) -> Callable[[str], str]:
        return lambda name: cell(anatomies[name]) if name in anatomies else ""

    known = dict(model_records(inspection))
    yield "weights", lambda name: escape(weights_label(known.get(name, {})))
    yield "image", of(lambda a: f"{a.image[1]}×{a.image[2]}")
    yield "parameters", of(lambda a: count(a.parameters))
    mixers = ["mixer"] if any(a.counts().get("mixer") for a in anatomies.values()) else []
    for kind in ("attention", "conv", "mlp", "token-mlp", *mixers):
        yield kind, of(lambda a, kind=kind: str(a.counts().get(kind, "")))  # type: ignore[misc]
    yield "GFLOPs", _measured(inspection, "cost", {}, lambda row: format_number(row["gflops"]))
    yield "images/s", _measured(inspection, "cost", {}, lambda row: _with_ends(row, format_number))
    top = {"measure": "top-1", "overall": True}
    yield (
        "accuracy",
        _measured(inspection, "accuracy", top, lambda row: _with_ends(row, format_percent)),
    )
    error = {"measure": "ECE", "overall": True}
    yield (
        "calibration error",
        _measured(inspection, "calibration", error, lambda row: _with_ends(row, format_percent)),
    )


def _measured(
    inspection: Inspection, name: str, which: Mapping[str, object], cell: Callable[[Any], str]
) -> Callable[[str], str]:
    """Return a function from a model to its cell, which is "" if the result has no row for it."""
    if name not in inspection:
        return lambda model: ""
    rows = inspection[name].table
    if not {"model", "value", "low", "high", *which} <= set(rows.columns):
        return lambda model: ""
    for column, wanted in which.items():
        rows = rows[rows[column] == wanted]
    cells = {str(row["model"]): cell(row) for row in rows.to_dict("records")}
    return lambda model: cells.get(model, "")


def _with_ends(row: Mapping[str, Any], show: Callable[[Any], str]) -> str:
    if row["low"] != row["low"]:
        return show(row["value"])
    low, high = (show(row[end]).removesuffix("\u00a0%") for end in ("low", "high"))
    return f"{show(row['value'])}<small>{low} to {high}</small>"


def units_tables(inspection: Inspection) -> Iterator[str]:
    """Yield a table of the units of each model, folded."""
    for name, anatomy in inspection.anatomies.items():
        rows = ""
        for unit, label in zip(anatomy, anatomy.labels, strict=True):
            grid = f"{unit.grid[0]}×{unit.grid[1]}" if unit.grid else ""
            attends = " ".join(filter(None, [str(unit.heads or ""), unit.reach or ""]))
            prefix = f"{len(unit.prefix)}+" if unit.prefix and grid else ""
            rows += (
                f'<tr data-model="{escape(name)}" data-unit="{escape(unit.name)}">'
                f"<td>{label}</td><td><code>{escape(unit.name)}</code></td>"
                f'<td><i class="swatch kind-{unit.kind}"></i>{unit.kind}</td>'
                f'<td class="number">{prefix}{grid}</td>'
                f'<td>{attends}</td><td class="number">{unit.channels or ""}</td>'
                f'<td class="number">{unit.parameters:,}</td></tr>'
            )
        heads = ""
        for head in ("", "unit", "kind", "tokens", "heads", "channels", "parameters"):
            numeric = head in ("tokens", "channels", "parameters")
            heads += f'<th scope="col"{" class=number" if numeric else ""}>{head}</th>'
        yield (
            f"<details><summary>{plural(len(anatomy), 'unit')} of {escape(name)}</summary>"
            f'<div class="scroll" tabindex="0" role="region" aria-label="Units of {escape(name)}">'
            f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>"
        )
