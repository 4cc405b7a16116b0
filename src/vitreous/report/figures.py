"""Every figure and every table of an inspection as a file, for papers and for other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from vitreous.errors import VitreousError
from vitreous.measure.inspection import Inspection
from vitreous.report.guard import Guard
from vitreous.report.sections import table_csv
from vitreous.report.surface import loss_grids
from vitreous.results import Result
from vitreous.results.charts import SUFFIXES, save_chart
from vitreous.specimen.drawing import save

Make = Callable[[], list[Path]]


def write_figures(inspection: Inspection, folder: Path, guard: Guard) -> list[Path]:
    """Write all figures and tables to a folder; return their paths.

    They are `NAME.svg`, `.pdf` and `.png` (`NAME-2.svg` for a second view), `NAME.csv` and
    `.parquet`, `anatomy.svg`, `.pdf` and `.png`, and for landscapes `landscape-surface.svg` and so
    on (`landscape-surface-2.svg` for a second model).
    """
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for what, make in _files(inspection, folder):
            written += guard.run(what, make, lambda _: [], let=OSError)
    except OSError as error:
        raise VitreousError(
            f"Cannot write figures to {str(folder)!r}: {error.strerror or error}."
        ) from error
    return written


def _files(inspection: Inspection, folder: Path) -> Iterator[tuple[str, Make]]:
    """Yield what to write, and a function that writes it and returns the paths."""
    for name, result in inspection.items():
        for i in range(len(result.views) if len(result.table) else 0):
            yield f"File {i + 1} of {name}", partial(_chart, result, i, folder)
        if name == "landscape":
            yield "Files of the surfaces", partial(_surfaces, result, folder)
        yield f"Table file of {name}", partial(_tables, result, folder)
    if inspection.anatomies:
        yield "Files of the anatomy", partial(_anatomy, inspection, folder)


def _chart(result: Result, i: int, folder: Path) -> list[Path]:
    drawn = result.chart(i)
    stem = result.name if i == 0 else f"{result.name}-{i + 1}"
    return [save_chart(drawn, folder / f"{stem}{suffix}") for suffix in SUFFIXES]


def _tables(result: Result, folder: Path) -> list[Path]:
    text, parquet = folder / f"{result.name}.csv", folder / f"{result.name}.parquet"
    text.write_text(table_csv(result), encoding="utf-8")
    result.table.to_parquet(parquet)
    return [text, parquet]


def _anatomy(inspection: Inspection, folder: Path) -> list[Path]:
    named = [replace(anatomy, model=name) for name, anatomy in inspection.anatomies.items()]
    return [save(named, folder / f"anatomy{suffix}") for suffix in SUFFIXES]


def _surfaces(result: Result, folder: Path) -> list[Path]:
    """Draw the landscape of every model in three dimensions."""
    from matplotlib import pyplot

    from vitreous.measure.curvature.relief import surface  # torch comes with it

    written = []
    for i, model in enumerate(loss_grids(result)):
        drawn = surface(result, model)
        for suffix in SUFFIXES:
            written.append(folder / f"landscape-surface{f'-{i + 1}' if i else ''}{suffix}")
            drawn.savefig(written[-1], dpi=200)
        pyplot.close(drawn)
    return written
