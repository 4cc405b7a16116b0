"""What `vitreous study` does before the findings are judged: plan, and run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from vitreous.claims import of_study
from vitreous.errors import VitreousError
from vitreous.store import Run, explained
from vitreous.studies import executors
from vitreous.studies.plan import Cell, plan
from vitreous.studies.realise import describe
from vitreous.studies.running import Report
from vitreous.studies.scales import Scale, scale_named

INDEX = "study.json"


def study(
    name: str, data: str, scale: str, seeds: int, out: Path, *, image: int | None, workers: int, device: str,
    dry_run: bool, console: Console,
) -> list[str]:  # fmt: skip
    """Plan the cells of a study and do what is not done; the ids of the claims that can be judged then."""
    if seeds < 1 or workers < 1:
        raise VitreousError(f"A study takes at least one seed and one worker, and not {seeds} and {workers}.")
    size = scale_named(scale)
    about = of_study(name)
    cells = plan(about, size, data, range(seeds), image)
    if dry_run:
        show(cells, executors.left(cells, out), console)
        return []
    remember(out, {"data": data, "scale": scale, "image": image})
    report = work(cells, out, size, device, workers, console)
    for key, why in report.failed.items():
        console.print(f"[red]failed[/red] {key}: {why}", highlight=False)
    return [claim.id for claim in about]


def remember(out: Path, settings: dict[str, object]) -> None:
    """What all studies in a folder have in common, so that results that cannot be compared do not meet there."""
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    home = Run(out)
    if not (out / INDEX).is_file():
        home.write(INDEX, settings)
        return
    known = json.loads((out / INDEX).read_text(encoding="utf-8"))
    for name, value in settings.items():
        if known.get(name) != value:
            raise VitreousError(
                f"{str(out)!r} holds studies with {name}={known.get(name)!r}, and this one has {value!r}; choose "
                "another --out."
            )


def work(cells: Sequence[Cell], out: Path, scale: Scale, device: str, workers: int, console: Console) -> Report:
    """With a bar that says which model is at work."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("cells", total=len(cells))

        def told(cell: Cell, state: str) -> None:
            progress.update(bar, description=title(cell)[:60] if state == "begun" else None)
            if state != "begun":
                progress.advance(bar)

        if workers == 1:
            return executors.serial(cells, out, scale, device, told)
        return executors.processes(cells, out, scale, device, told, workers)


def title(cell: Cell) -> str:
    """What a cell is about, in a few words."""
    return describe(cell.sittings[0].facts) if cell.sittings else f"{cell.training.model if cell.training else ''}"


def show(cells: Sequence[Cell], left: Sequence[Cell], console: Console) -> None:
    """The cells, what is measured on each, which claims it serves."""
    todo = {cell.key for cell in left}
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "cell", "model", "measured", "serves"):
        table.add_column(name)
    for cell in cells:
        measured = sorted({result for sitting in cell.sittings for result in sitting.results})
        mark = "" if cell.key in todo else "✓"
        table.add_row(mark, cell.key[:12], title(cell), ", ".join(measured), _few(cell.serves))
    console.print(table)
    trainings = sum(cell.training is not None for cell in cells)
    console.print(f"{len(cells)} cells, {trainings} of them trainings; {len(todo)} to be done.", highlight=False)


def _few(ids: Sequence[str], most: int = 4) -> str:
    shown = " ".join(ids[:most])
    return f"{shown} and {len(ids) - most} more" if len(ids) > most else shown
