"""The output of `vitreous study --dry-run`: cells, the claims they serve, and estimated times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vitreous.claims.facts import title_of
from vitreous.errors import VitreousError
from vitreous.studies.estimates import TimeEstimate, estimate_times, makespan
from vitreous.studies.plan import Cell
from vitreous.studies.run_cells import unfinished_cells


def print_forecast(
    cells: Sequence[Cell], out: Path, device: str, workers: int, console: Console
) -> None:
    """Print the cells, and an estimate of the time of the unfinished ones, if there is one."""
    left = unfinished_cells(cells, out)
    try:
        estimates, problem = estimate_times(left, out, device), ""
    except VitreousError as error:
        estimates, problem = {}, str(error)
    console.print(_cell_table(cells, left, estimates))
    trainings = sum(cell.training is not None for cell in cells)
    console.print(
        f"{len(cells)} cells, {trainings} of them trainings; {len(left)} to be done.",
        highlight=False,
    )
    for cell in left:
        if why := estimates.get(cell.key, TimeEstimate()).why:
            console.print(f"[red]cannot be done[/red] {cell.key}: {why}", highlight=False)
    for line in time_lines(left, estimates, workers):
        console.print(line, highlight=False)
    if problem:
        console.print(f"How long that takes is not known: {problem}", highlight=False)


def cell_title(cell: Cell) -> str:
    """A cell in a few words."""
    if cell.items:
        return title_of(cell.items[0].facts)
    return cell.training.model if cell.training else ""


def _cell_table(
    cells: Sequence[Cell], left: Sequence[Cell], estimates: Mapping[str, TimeEstimate]
) -> Table:
    """One row per cell: measurements, training speed, time, and the claims that need it."""
    unfinished = {cell.key for cell in left}
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "cell", "model", "measured", "images/s", "time", "serves"):
        table.add_column(name, justify="right" if name in ("images/s", "time") else "left")
    for cell in cells:
        estimate = estimates.get(cell.key, TimeEstimate())
        results = sorted({result for item in cell.items for result in item.results})
        table.add_row(
            "" if cell.key in unfinished else "✓",
            cell.key[:12],
            cell_title(cell),
            ", ".join(results),
            f"{estimate.speed.rate:,.0f}" if estimate.speed else "",
            format_seconds(estimate.total) if estimate.total else "",
            _few(cell.serves),
        )
    return table


def time_lines(
    left: Sequence[Cell], estimates: Mapping[str, TimeEstimate], workers: int
) -> list[str]:
    """Sentences on the total time, where the estimates come from, and what they leave out."""
    if not left or not estimates:
        return []
    every = list(estimates.values())
    training, total = sum(each.training for each in every), sum(each.total for each in every)
    lines = []
    if total:
        share = (
            f", {format_seconds(training)} of it training" if total > training else " of training"
        )
        line = f"About {format_seconds(total)}{share}"
        if workers > 1:
            seconds = {key: each.total for key, each in estimates.items()}
            together = format_seconds(makespan(left, seconds, workers))
            line += f"; {together} with {workers} workers"
        lines.append(f"{line}.")
    speeds = [each.speed for each in every if each.speed is not None]
    if speeds:
        before = sum(each.finished for each in speeds)
        known = {
            "finished trainings of the same networks": before,
            "a few steps, just now": len(speeds) - before,
        }
        sources = " and ".join(f"{how} ({count})" for how, count in known.items() if count)
        lines.append(f"Throughput is from {sources}.")
    if unknown := sorted({name for each in every for name in each.unknown}):
        lines.append(
            f"Not included, as none has been measured in this folder yet: {', '.join(unknown)}."
        )
    return lines


def format_seconds(seconds: float) -> str:
    """`14 s`, `3 min`, `2 h 10 min`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s" if seconds >= 0.95 else "1 s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours / 24:.1f} days"


def _few(ids: Sequence[str], most: int = 4) -> str:
    shown = " ".join(ids[:most])
    return f"{shown} and {len(ids) - most} more" if len(ids) > most else shown
