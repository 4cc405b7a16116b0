"""What `vitreous study --dry-run` prints: the cells, whom they serve, and how long what is left will take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vitreous.errors import VitreousError
from vitreous.studies.estimates import Estimate, estimate, makespan
from vitreous.studies.plan import Cell
from vitreous.studies.realise import describe
from vitreous.studies.running import finished


def foresee(cells: Sequence[Cell], out: Path, device: str, workers: int, console: Console) -> None:
    """What would be done, and how long that takes as far as can be known."""
    left = [cell for cell in cells if not finished(cell, out)]
    try:
        show(cells, left, estimate(left, out, device), workers, console)
    except VitreousError as error:
        show(cells, left, {}, workers, console)
        console.print(f"How long that takes is not known: {error}", highlight=False)


def title(cell: Cell) -> str:
    """What a cell is about, in a few words."""
    return (
        describe(cell.sittings[0].facts)
        if cell.sittings
        else f"{cell.training.model if cell.training else ''}"
    )


def show(
    cells: Sequence[Cell],
    left: Sequence[Cell],
    estimates: Mapping[str, Estimate],
    workers: int,
    console: Console,
) -> None:
    """The cells, what is measured on each, which claims it serves, and how long what is left will take."""
    todo = {cell.key for cell in left}
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "cell", "model", "measured", "images/s", "time", "serves"):
        table.add_column(name, justify="right" if name in ("images/s", "time") else "left")
    for cell in cells:
        measured = sorted({result for sitting in cell.sittings for result in sitting.results})
        mark, own = "" if cell.key in todo else "✓", estimates.get(cell.key, Estimate())
        rate = f"{own.speed.rate:,.0f}" if own.speed else ""
        time = spoken(own.total) if own.total else ""
        table.add_row(
            mark, cell.key[:12], title(cell), ", ".join(measured), rate, time, _few(cell.serves)
        )
    console.print(table)
    trainings = sum(cell.training is not None for cell in cells)
    console.print(
        f"{len(cells)} cells, {trainings} of them trainings; {len(todo)} to be done.",
        highlight=False,
    )
    for cell in left:
        if why := estimates.get(cell.key, Estimate()).why:
            console.print(f"[red]cannot be done[/red] {cell.key}: {why}", highlight=False)
    for line in told_times(left, estimates, workers):
        console.print(line, highlight=False)


def told_times(left: Sequence[Cell], estimates: Mapping[str, Estimate], workers: int) -> list[str]:
    """How long it will take, what that is known from, and what it leaves out."""
    if not left or not estimates:
        return []
    own = list(estimates.values())
    training, whole = sum(each.training for each in own), sum(each.total for each in own)
    line = f"About {spoken(whole)}" + (
        f", {spoken(training)} of it training" if whole > training else " of training"
    )
    if workers > 1:
        together = makespan(left, {key: each.total for key, each in estimates.items()}, workers)
        line += f"; {spoken(together)} with {workers} workers"
    speeds = [each.speed for each in own if each.speed is not None]
    before = sum(each.finished for each in speeds)
    known = {
        "finished trainings of the same networks": before,
        "a few steps, just now": len(speeds) - before,
    }
    lines = [f"{line}."] if whole else []
    if speeds:
        lines.append(
            "Throughput is from "
            + " and ".join(f"{how} ({n})" for how, n in known.items() if n)
            + "."
        )
    if unknown := sorted({name for each in own for name in each.unknown}):
        lines.append(
            f"Not included, as none has been measured in this folder yet: {', '.join(unknown)}."
        )
    return lines


def spoken(seconds: float) -> str:
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
