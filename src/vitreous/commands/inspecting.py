"""What `vitreous inspect` and the commands of single analyses do: look, then write what was seen, also when it was
interrupted."""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from vitreous.claims.facts import parse_roles
from vitreous.claims.reading import unjudged
from vitreous.commands.judge import judgement, note_failures
from vitreous.commands.options import Alone, Looking, Options
from vitreous.commands.request import check_roles, chosen, report_file
from vitreous.measure import analyses
from vitreous.measure.engine import analyse, inspect
from vitreous.measure.inspection import Inspection
from vitreous.measure.partial import Interrupted
from vitreous.report import write
from vitreous.report.findings import findings
from vitreous.report.guard import Guard
from vitreous.report.models import named
from vitreous.report.origin import images_of
from vitreous.report.verdicts import plain, warnings
from vitreous.results import Result

NANO = Path(__file__).parents[1] / "report" / "nano"
"""Results that took too long for everybody to make them again."""
TAG = re.compile("<[^>]+>")
REASONS = 6
"""Lines about what could not be asked; the report has them all."""


def run(models: Sequence[str], options: Options | Alone, console: Console, only: str = "") -> None:
    """Look, print the summary and write what was asked for. What was seen is kept beside the report until then. `only`
    is the one analysis that a command of its own asks."""
    out = report_file(options, only)
    asked, deep = chosen(options, only)
    others = [stored(folder) for folder in options.also]
    check_roles(options, [*models, *(name for other in others for name in named(other))])
    keep = out.with_name(f"{out.name}.partial")
    talks = int(os.environ.get("RANK", "0")) == 0  # one of the processes that torchrun started
    found, guard = Inspection({}), Guard()
    how: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("skip_corrupt", "image", "pretrained", "device", "seed")
    }
    try:
        if asked:
            shown: dict[str, Any] = {
                "limit": options.limit or 512,
                "split": options.split,
                "batch": options.batch,
            }
            found = inspect(list(models), options.data, asked, **shown, keep=keep, **how)
        if deep and talks:
            batch = {"batch": options.batch} if options.batch else {}
            shown = {"limit": options.limit, "split": options.split, **batch}
            found |= analyse(
                list(models), options.data, deep, **shown, keep=keep / "analyses", **how
            )
    except Interrupted as stop:
        found |= stop.inspection or Inspection({})
        if talks and found:
            _write(found, out, options, console, guard)
            console.print(Text("\n".join(guard.sentences()), style="red"), soft_wrap=True)
        raise
    if talks:
        for other in others:
            found = beside(found, other)
        _write(found, out, options, console, guard)
        shutil.rmtree(keep, ignore_errors=True)
        guard.check()


def stored(folder: str) -> Inspection:
    """What lies in a folder; `nano` is the one that comes with the package."""
    return Inspection.load(NANO if folder == "nano" else folder)


def beside(found: Inspection, other: Inspection) -> Inspection:
    """Both in one report, a model having one colour everywhere. The models are those of the first, which was asked for;
    of a question that both were asked, its answer."""
    names = list(found.anatomies)
    more = {}
    for name, result in other.items():
        if name not in found:
            known = [
                *names,
                *(each for each in result.about.get("beside", []) if each not in names),
            ]
            more[name] = replace(result, about={**result.about, "beside": known})
    return Inspection({**found, **more}, found.left_out, found.anatomies)


def _write(found: Inspection, out: Path, options: Looking, console: Console, guard: Guard) -> None:
    """The results first, which took the time, then the page, the figures and the terminal; whatever of it fails is left
    to `guard`."""
    wrote = [out]
    if options.results is not None:
        wrote.append(found.save(options.results))
    judged = guard.run(
        "The verdicts", lambda: judgement(found, parse_roles(options.role)), lambda _: None
    )
    if judged is not None:
        note_failures(judged.verdicts, guard)
    console.print(summary(found, guard))
    if judged is not None:
        console.print(guard.run("The verdicts on the terminal", lambda: Text(plain(judged)), Text))
    write(found, out, figures=options.figures, judgement=judged, guard=guard)
    if options.figures is not None:
        wrote.append(options.figures)
    if (
        guard.failures and options.results is None
    ):  # or mending what failed would mean measuring again
        wrote.append(found.save(out.with_name(f"{out.stem}-results")))
    console.print(f"Wrote {', '.join(map(str, wrote))}", highlight=False, soft_wrap=True)


def summary(found: Inspection, guard: Guard) -> RenderableType:
    """A screenful: what was looked at, a row for each model, and what could not be asked."""
    parts = [
        guard.run(what, partial(make, found), lambda _: [])
        for what, make in (
            ("The line on the images", _images), ("The warnings", _warnings), ("The table on the terminal", _table),
            ("The list of what was left out", _left_out),
        )
    ]  # fmt: skip
    said = [
        Text(sentence)
        for name in found
        if name in analyses.names()
        for sentence in guard.run(
            f"What {name} comes to", partial(_sentences, found[name]), lambda _: []
        )
    ]
    return Group(*parts[0], *parts[1], *parts[2], *said, *parts[3])


def _images(found: Inspection) -> list[RenderableType]:
    first = next(iter(found.values()), None)
    if first is None:
        return []
    questions = f"{len(found)} question{'s' * (len(found) > 1)}"
    return [Text(f"{questions} on {images_of(first.about['data'])}")]


def _warnings(found: Inspection) -> list[RenderableType]:
    return [Text(sentence, style="yellow") for sentence in warnings(unjudged(found))]


def _table(found: Inspection) -> list[RenderableType]:
    table = Table(box=None, header_style="bold")
    table.add_column("model")
    columns = {name: cells for name, cells in _columns(found).items() if cells}
    for name in columns:
        table.add_column(name, justify="right")
    for model in found.anatomies:
        table.add_row(Text(model), *(cells.get(model, "–") for cells in columns.values()))
    return [table]


def _left_out(found: Inspection) -> list[RenderableType]:
    reasons = _reasons(found)
    parts: list[RenderableType] = [
        Text(f"Left out: {why}", style="dim") for why in reasons[:REASONS]
    ]
    if len(reasons) > REASONS:
        parts.append(
            Text(f"… and {len(reasons) - REASONS} more, which the report says.", style="dim")
        )
    return parts


def _sentences(result: Result) -> list[str]:
    """What an analysis comes to; probes have the table."""
    return [unescape(TAG.sub("", sentence)).replace("\u00a0", " ") for sentence in findings(result)]


def _columns(found: Inspection) -> dict[str, dict[str, str]]:
    """Column, model: a number in words."""
    units = {model: str(len(anatomy.units)) for model, anatomy in found.anatomies.items()}
    parameters = {model: _short(anatomy.parameters) for model, anatomy in found.anatomies.items()}
    known = [each for result in found.values() for each in result.about.get("models", {}).items()]
    weights = {model: about["weights"] for model, about in known if about.get("weights")}
    cells: dict[str, dict[str, str]] = defaultdict(
        dict, {"weights": weights, "units": units, "parameters": parameters}
    )
    if "cost" in found:
        for row in found["cost"].table.itertuples():
            cells["GFLOPs"][str(row.model)] = f"{row.gflops:.3g}"
            cells["images/s"][str(row.model)] = f"{row.value:.4g}"
    if "accuracy" in found:
        table = found["accuracy"].table
        for row in table[table["overall"] & (table["measure"] == "top-1")].itertuples():
            cells["accuracy"][str(row.model)] = f"{row.value:.1%}"
    if "calibration" in found:
        table = found["calibration"].table
        for measure in ("NLL", "ECE"):
            for row in table[table["measure"] == measure].itertuples():
                cells[measure][str(row.model)] = f"{row.value:.3f}"
    return cells


def _reasons(found: Inspection) -> list[str]:
    """Questions that whole models could not be asked, those with one reason together."""
    probes: dict[tuple[str, str], list[str]] = defaultdict(list)
    refused = {
        name: result.about.get("left_out", {}) for name, result in found.items()
    } | found.left_out
    for probe, why_not in refused.items():
        for model, why in why_not.items():
            if isinstance(why, str):
                probes[model, why].append(probe)
    models: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (model, why), names in probes.items():
        models[", ".join(names), why].append(model)
    return [f"{asked} of {', '.join(names)}. {why}" for (asked, why), names in models.items()]


def _short(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:g}"
