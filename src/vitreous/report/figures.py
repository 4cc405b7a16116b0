"""Every picture and every table of an inspection as files of their own, for papers and for other programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vitreous.errors import VitreousError
from vitreous.inspection.inspection import Inspection
from vitreous.report.sections import csv
from vitreous.report.surface import grids
from vitreous.results import Result
from vitreous.results.charts import SUFFIXES
from vitreous.results.charts import write as write_chart
from vitreous.specimen.drawing_svg import svg


def write_figures(inspection: Inspection, folder: Path) -> list[Path]:
    """`NAME.svg`, `.pdf` and `.png` (`NAME-2.svg` for a second view), `NAME.csv` and `.parquet`, and `anatomy.svg`; of
    landscapes also `landscape-surface.svg`, `landscape-surface-2.svg` for a second model."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, result in inspection.items():
            for i in range(len(result.views) if len(result.table) else 0):
                drawn = result.chart(i)
                stem = name if i == 0 else f"{name}-{i + 1}"
                written += [write_chart(drawn, folder / f"{stem}{suffix}") for suffix in SUFFIXES]
            written += _surfaces(result, folder) if name == "landscape" else []
            written += [folder / f"{name}.csv", folder / f"{name}.parquet"]
            written[-2].write_text(csv(result), encoding="utf-8")
            result.table.to_parquet(written[-1])
        if inspection.anatomies:
            written.append(folder / "anatomy.svg")
            named = [replace(anatomy, model=name) for name, anatomy in inspection.anatomies.items()]
            written[-1].write_text(svg(named), encoding="utf-8")
    except OSError as error:
        raise VitreousError(f"Cannot write figures to {str(folder)!r}: {error.strerror}.") from error
    return written


def _surfaces(result: Result, folder: Path) -> list[Path]:
    """A landscape of every model in three dimensions."""
    from matplotlib import pyplot

    from vitreous.analyses.relief import surface

    written = []
    for i, model in enumerate(grids(result)):
        drawn = surface(result, model)
        for suffix in SUFFIXES:
            written.append(folder / f"landscape-surface{f'-{i + 1}' if i else ''}{suffix}")
            drawn.savefig(written[-1], dpi=200)
        pyplot.close(drawn)
    return written
