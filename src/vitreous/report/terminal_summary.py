"""The summary of an inspection on the terminal: images, a row for each model, findings."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import partial
from html import unescape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vitreous.claims.loading import unjudged
from vitreous.measure import analyses
from vitreous.measure.inspection import Inspection
from vitreous.measure.report_section import sentences_of
from vitreous.measure.summary import left_out_lines
from vitreous.report.guard import Guard
from vitreous.report.judgement import warnings
from vitreous.report.origin import class_count, images_of
from vitreous.results import Result
from vitreous.results.weight_origin import model_records, weights_label
from vitreous.results.words import plural

MAX_REASONS = 6
"""Maximum number of lines about what was left out; the report has all of them."""


def terminal_summary(inspection: Inspection, guard: Guard) -> RenderableType:
    """Return a screenful about an inspection; `guard` notes a part that cannot be rendered."""
    parts: list[RenderableType] = []
    for what, make in (
        ("The line on the images", _images),
        ("The warnings", _warnings),
        ("The table on the terminal", _table),
        ("The checkpoints", _checkpoints),
        ("The preprocessing", _preprocessing),
        ("The line on the labels", _labels),
    ):
        parts += guard.run(what, partial(make, inspection), lambda _: [])
    for name in inspection:
        if name in analyses.names():  # the probes have the table
            what = f"The findings of {name}"
            parts += guard.run(what, partial(_findings, inspection[name]), lambda _: [])
    what = "The list of what was left out"
    parts += guard.run(what, partial(_left_out, inspection), lambda _: [])
    return Group(*parts)


def _images(inspection: Inspection) -> list[RenderableType]:
    if not inspection:
        return []
    data = next(iter(inspection.values())).about["data"]
    count = class_count(data)
    classes = f", {plural(count, 'class', 'classes')}" if count else ""
    line = f"{plural(len(inspection), 'measurement')} on {images_of(data)}{classes}"
    return [Text(line)]


def _warnings(inspection: Inspection) -> list[RenderableType]:
    return [Text(sentence, style="yellow") for sentence in warnings(unjudged(inspection))]


def _table(inspection: Inspection) -> list[RenderableType]:
    columns = {name: cells for name, cells in _columns(inspection).items() if cells}
    table = Table(box=None, header_style="bold")
    table.add_column("model")
    for name in columns:
        table.add_column(name, justify="right")
    for model in inspection.anatomies:
        table.add_row(Text(model), *(cells.get(model, "–") for cells in columns.values()))
    return [table]


def _labels(inspection: Inspection) -> list[RenderableType]:
    """Return a line on how labels were matched with the scores of the models."""
    sentences = {result.about.get("data", {}).get("labels", "") for result in inspection.values()}
    return [Text(f"Labels: {words}", style="dim") for words in sorted(filter(None, sentences))]


def _checkpoints(inspection: Inspection) -> list[RenderableType]:
    """Return a line for each model whose weights come from a file."""
    lines: dict[str, Text] = {}
    for model, about in model_records(inspection):
        if loaded := about.get("checkpoint"):
            style = "yellow" if loaded["missing"] else "dim"
            lines[model] = Text(f"Weights of {model}: {loaded['sentence']}", style=style)
    return [*lines.values()]


def _preprocessing(inspection: Inspection) -> list[RenderableType]:
    """Return a line for each way of preprocessing, with the models that use it."""
    grouped: dict[str, dict[str, None]] = defaultdict(dict)
    for model, about in model_records(inspection):
        if about.get("preprocessing"):
            grouped[about["preprocessing"]][model] = None
    everyone = len(grouped) == 1
    lines = []
    for words, models in grouped.items():
        whose = "" if everyone else f" of {', '.join(models)}"
        lines.append(Text(f"Images{whose}: {words}", style="dim"))
    return [*lines]


def _columns(inspection: Inspection) -> dict[str, dict[str, str]]:
    """Return the cells of the table by column and model."""
    cells: dict[str, dict[str, str]] = defaultdict(dict, weights={}, units={}, parameters={})
    for model, about in model_records(inspection):
        if about.get("weights"):
            cells["weights"][model] = weights_label(about)
    for model, anatomy in inspection.anatomies.items():
        cells["units"][model] = str(len(anatomy.units))
        cells["parameters"][model] = _short(anatomy.parameters)
    if "cost" in inspection:
        for row in inspection["cost"].table.itertuples():
            cells["GFLOPs"][str(row.model)] = f"{row.gflops:.3g}"
            cells["images/s"][str(row.model)] = f"{row.value:.4g}"
    if "accuracy" in inspection:
        table = inspection["accuracy"].table
        for row in table[table["overall"] & (table["measure"] == "top-1")].itertuples():
            cells["accuracy"][str(row.model)] = f"{row.value:.1%}"
    if "calibration" in inspection:
        table = inspection["calibration"].table
        for measure in ("NLL", "ECE"):
            for row in table[table["measure"] == measure].itertuples():
                cells[measure][str(row.model)] = f"{row.value:.3f}"
    return cells


def _short(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:g}"


def _findings(result: Result) -> list[RenderableType]:
    """Return the sentences on an analysis, without their HTML."""
    plain = [unescape(re.sub("<[^>]+>", "", sentence)) for sentence in sentences_of(result)]
    return [Text(sentence.replace("\u00a0", " ")) for sentence in plain]


def _left_out(inspection: Inspection) -> list[RenderableType]:
    """Return lines on measurements that could not be made on a model, grouped by their reason."""
    lines = left_out_lines(inspection)
    if len(lines) > MAX_REASONS:
        more = len(lines) - MAX_REASONS
        lines[MAX_REASONS:] = [f"… and {more} more, which the report lists."]
    return [Text(line, style="dim") for line in lines]
