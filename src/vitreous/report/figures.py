"""Every figure and every table of an inspection as a file, for papers and for other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from vitreous.measure.inspection import Inspection
from vitreous.report.cards import table_csv
from vitreous.report.guard import Guard
from vitreous.report.surface import loss_grids
from vitreous.results import Result
from vitreous.results.charts import SUFFIXES, save_chart
from vitreous.results.view import View
from vitreous.specimen.drawing import save
from vitreous.storage.atomic_files import explain_write_errors
from vitreous.storage.file_names import UniqueNames, name_models

Make = Callable[[], list[Path]]


TABLES = (".csv", ".parquet", ".tex")


def write_figures(inspection: Inspection, folder: Path, guard: Guard) -> list[Path]:
    """Write all figures and tables to a folder; return their paths.

    Figures are SVG, PDF and PNG, and are called after the measurement, what they show, and the
    models: `attention_distance-by-depth-nano_vit.svg`, `cka-layer-by-other_layer-within-….svg`,
    `anatomy-….svg`. Tables are CSV, parquet and LaTeX: `attention_distance-nano_vit.csv`, and
    `summary-….csv` for all models.
    """
    written: list[Path] = []
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for what, make in _files(inspection, folder):
            written += guard.run(what, make, lambda _: [], let=OSError)
    return written


def _files(inspection: Inspection, folder: Path) -> Iterator[tuple[str, Make]]:
    """Yield what to write, and a function that writes it and returns the paths."""
    names = UniqueNames()
    for name, result in inspection.items():
        models = name_models(_models_of(result))
        for i in range(len(result.views) if len(result.table) else 0):
            stem = names(name, *view_words(result.views[i]), models)
            yield f"File {i + 1} of {name}", partial(_chart, result, i, folder / stem)
        if name == "landscape":
            for model in loss_grids(result):
                stem = names(name, "surface", name_models([model]))
                what = f"Files of the surface of {model}"
                yield what, partial(_surface, result, model, folder / stem)
        yield f"Table file of {name}", partial(_tables, result, folder / names(name, models))
    if inspection.anatomies:
        everyone = name_models(list(inspection.anatomies))
        stem = names("anatomy", everyone)
        yield "Files of the anatomy", partial(_anatomy, inspection, folder / stem)
        stem = names("summary", everyone)
        yield "Table file of the summary", partial(_summary, inspection, folder / stem)


def view_words(view: View) -> list[str]:
    """The parts of a file name that say what a view shows, independent of the other views.

    >>> view_words(View("line", x="depth", y="relative"))
    ['relative-by-depth']
    """
    if view.mark == "tiles":
        return ["pictures"]
    what = "" if view.y in ("", "value") else f"{view.y}-"
    return [f"{what}by-{view.x}", view.where]


def _models_of(result: Result) -> list[str]:
    """The models of a result, in its order; none if it is not about models."""
    if "model" not in result.table:
        return []
    return [str(model) for model in dict.fromkeys(result.table["model"])]


def _with_ending(stem: Path, ending: str) -> Path:
    return stem.with_name(f"{stem.name}{ending}")  # names of models may have dots


def _chart(result: Result, i: int, stem: Path) -> list[Path]:
    drawn = result.chart(i)
    return [save_chart(drawn, _with_ending(stem, suffix)) for suffix in SUFFIXES]


def _tables(result: Result, stem: Path) -> list[Path]:
    text, parquet, latex = (_with_ending(stem, ending) for ending in TABLES)
    text.write_text(table_csv(result), encoding="utf-8")
    result.table.to_parquet(parquet)
    latex.write_text(result.to_latex(), encoding="utf-8")
    return [text, parquet, latex]


def _summary(inspection: Inspection, stem: Path) -> list[Path]:
    return _tables(inspection.summary(), stem)


def _anatomy(inspection: Inspection, stem: Path) -> list[Path]:
    named = [replace(anatomy, model=name) for name, anatomy in inspection.anatomies.items()]
    return [save(named, _with_ending(stem, suffix)) for suffix in SUFFIXES]


def _surface(result: Result, model: str, stem: Path) -> list[Path]:
    """Draw the landscape of a model in three dimensions."""
    from matplotlib import pyplot

    from vitreous.measure.curvature.relief import surface  # torch comes with it

    drawn = surface(result, model)
    written = [_with_ending(stem, suffix) for suffix in SUFFIXES]
    for path in written:
        drawn.savefig(path, dpi=200)
    pyplot.close(drawn)
    return written
