"""What `vitreous inspect` does: look, then write what was seen, also when it was interrupted."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from vitreous.errors import VitreousError
from vitreous.inspection.engine import inspect
from vitreous.inspection.inspection import Inspection
from vitreous.inspection.kept import Stopped
from vitreous.inspection.options import Options
from vitreous.report import write
from vitreous.store import explained

REASONS = 6
"""Lines about what could not be asked; the report has them all."""


def run(models: Sequence[str], options: Options, console: Console) -> None:
    """Inspect, print the summary and write what was asked for. What was seen is kept beside the report until then."""
    out = options.out.expanduser()
    check_places(out, options.figures, options.results)
    keep = out.with_name(f"{out.name}.partial")
    talks = int(os.environ.get("RANK", "0")) == 0  # one of the processes that torchrun started
    try:
        found = inspect(
            list(models), options.data, options.probes or None, split=options.split,
            limit=None if options.limit == "all" else options.limit, skip_corrupt=options.skip_corrupt,
            image=options.image, pretrained=options.pretrained, batch=options.batch, device=options.device,
            seed=options.seed, keep=keep,
        )  # fmt: skip
    except Stopped as stop:
        if talks and stop.inspection is not None:
            _write(stop.inspection, out, options, console)
        raise
    if talks:
        _write(found, out, options, console)
        shutil.rmtree(keep, ignore_errors=True)


def check_places(out: Path, *folders: Path | None) -> None:
    """Whether everything can be written, before an hour is spent on it."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise VitreousError(f"A report is written as HTML, and {out.name!r} ends otherwise; call it report.html.")
    if out.is_dir():
        raise VitreousError(f"{str(out)!r} is a folder; name a file for the report, {str(out / 'report.html')!r}.")
    for folder in (out.parent, *(folder.expanduser() for folder in folders if folder is not None)):
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()


def _write(found: Inspection, out: Path, options: Options, console: Console) -> None:
    console.print(summary(found))
    write(found, out, figures=options.figures)
    wrote = [out]
    if options.results is not None:
        wrote.append(found.save(options.results))
    if options.figures is not None:
        wrote.append(options.figures)
    console.print(f"Wrote {', '.join(map(str, wrote))}", highlight=False, soft_wrap=True)


def summary(found: Inspection) -> RenderableType:
    """A screenful: what was looked at, a row for each model, and what could not be asked."""
    table = Table(box=None, header_style="bold")
    table.add_column("model")
    columns = {name: cells for name, cells in _columns(found).items() if cells}
    for name in columns:
        table.add_column(name, justify="right")
    for model in found.anatomies:
        table.add_row(Text(model), *(cells.get(model, "–") for cells in columns.values()))
    parts: list[RenderableType] = [table]
    first = next(iter(found.values()), None)
    if first is not None:
        data = first.about["data"]
        questions = f"{len(found)} question{'s' * (len(found) > 1)}"
        parts.insert(0, Text(f"{questions} on {data['images']} images of {data['name']} ({data['split']})"))
    reasons = _reasons(found)
    parts += [Text(f"Left out: {why}", style="dim") for why in reasons[:REASONS]]
    if len(reasons) > REASONS:
        parts.append(Text(f"… and {len(reasons) - REASONS} more, which the report says.", style="dim"))
    return Group(*parts)


def _columns(found: Inspection) -> dict[str, dict[str, str]]:
    """Column, model: a number in words."""
    units = {model: str(len(anatomy.units)) for model, anatomy in found.anatomies.items()}
    parameters = {model: _short(anatomy.parameters) for model, anatomy in found.anatomies.items()}
    cells: dict[str, dict[str, str]] = defaultdict(dict, {"units": units, "parameters": parameters})
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
    refused = {name: result.about.get("left_out", {}) for name, result in found.items()} | found.left_out
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
