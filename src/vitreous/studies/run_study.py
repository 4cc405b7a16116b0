"""`vitreous study` up to the judging of findings: plan the cells, and run them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from vitreous.claims import claims_of_study
from vitreous.claims.loading import EXHIBITS, INDEX, read_exhibit
from vitreous.devices import choose_device
from vitreous.errors import VitreousError
from vitreous.storage.atomic_files import Damaged, explain_write_errors, read_json, write_json
from vitreous.studies import alternet_search, executors, run_cells
from vitreous.studies.dry_run import cell_title, format_seconds, print_forecast
from vitreous.studies.estimates import count_classes, estimate_times
from vitreous.studies.measuring import STUDY
from vitreous.studies.plan import FEW_CLASSES, Cell, plan
from vitreous.studies.run_cells import Limits, OnState, Report
from vitreous.studies.scales import scale_named

log = logging.getLogger("vitreous")
Executor = Literal["processes", "ray"]


class CellsFailed(VitreousError):
    """A study has ended, and some of its cells failed."""

    def __init__(self, keys: Sequence[str], out: Path) -> None:
        more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
        cells = "1 cell" if len(keys) == 1 else f"{len(keys)} cells"
        super().__init__(
            f"{cells} of the study failed ({', '.join(keys[:3])}{more}), so findings may be "
            f"missing; the reasons are in {str(out / 'failed')!r}, and the same command tries "
            "again."
        )


def conduct_study(
    name: str, data: str, scale: str, seeds: int, out: Path, *, image: int | None,
    workers: int | None, device: str, executor: Executor, address: str | None, dry_run: bool,
    console: Console, until: float | None = None, stack: bool | None = None,
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Plan the cells of a study and run those that are not finished.

    Parameters
    ----------
    until
        Minutes: a cell that would end later, by its estimate, is not started.
    stack
        Whether the seeds of one configuration are trained in one step (default: on GPUs).

    Returns
    -------
    ids, failed
        The ids of the claims that can be judged now, and the keys of the cells that failed. Both
        are empty after a dry run, and after the search `build-up`, which judges nothing.
    """
    deadline = inf if until is None else time.time() + 60 * until
    stack = choose_device(device).type == "cuda" if stack is None else stack
    workers = executors.default_workers(device) if workers is None else workers
    _check_arguments(seeds, workers, executor, address)
    about = [] if name == alternet_search.NAME else claims_of_study(name)
    size = scale_named(scale)
    execute = choose_executor(executor, workers, address)

    def run(cells: Sequence[Cell]) -> Report:
        check_settings(out, {"data": data, "scale": scale, "image": image})
        limits = _limits(cells, out, device, deadline, stack)
        report = _run_with_bar(
            cells, lambda on_state: execute(cells, out, size, device, on_state, limits), console
        )
        if report.left:
            seconds = sum(limits.seconds(key) for key in report.left)
            console.print(
                f"{len(report.left)} cells are left, about {format_seconds(seconds)}: they would "
                "not have ended in time. Run the same command again.",
                highlight=False,
            )
        return report

    if name == alternet_search.NAME:
        search = alternet_search.BuildUp(size, data, range(seeds), out, image)
        if dry_run:
            print_forecast(search.upcoming(), out, device, workers, console)
            console.print(search.remaining_text(), highlight=False)
        else:
            search.report(search.follow(run), console)
        return [], []
    cells = plan(about, size, data, range(seeds), image, _classes(data, scale, dry_run))
    if dry_run:
        print_forecast(cells, out, device, workers, console)
        return [], []
    report = run(cells)
    _print_failures(report, out, console)
    return [claim.id for claim in about], list(report.failed)


def _check_arguments(seeds: int, workers: int, executor: Executor, address: str | None) -> None:
    """Raise for arguments that no study can be run with."""
    if seeds < 1 or workers < 1:
        raise VitreousError(
            f"A study takes at least one seed and one worker, and not {seeds} and {workers}."
        )
    if address is not None and executor != "ray":
        raise VitreousError(
            f"An address, as {address!r}, is that of a Ray cluster: say --executor ray, or no "
            "address."
        )


def _classes(data: str, scale: str, dry_run: bool) -> int:
    """The number of classes of the study's images, which decides what claims read."""
    if scale == "sanity" or data.startswith("world:"):
        return FEW_CLASSES
    try:
        return count_classes(data)
    except VitreousError:
        if dry_run:  # the forecast prints this error below its table
            return FEW_CLASSES
        raise


def _print_failures(report: Report, out: Path, console: Console) -> None:
    """Print why cells failed."""
    for key, why in report.failed.items():
        console.print(f"[red]failed[/red] {key}: {escape(why)}", highlight=False)
    if report.failed:
        console.print(
            f"More is in {str(out / 'failed')!r}; the same command tries them again.",
            highlight=False,
        )


def _limits(cells: Sequence[Cell], out: Path, device: str, deadline: float, stack: bool) -> Limits:
    """The limits of a run; only with a deadline are times estimated, which takes seconds."""
    if deadline == inf:
        return Limits(stack=stack)
    times = estimate_times(run_cells.unfinished_cells(cells, out), out, device, stack)
    training = {key: each.training for key, each in times.items()}
    return Limits(deadline, training, {key: each.measuring for key, each in times.items()}, stack)


def check_settings(out: Path, settings: dict[str, object]) -> None:
    """Write the settings that all studies in a folder share, or raise if it has other ones.

    So a folder never mixes results that cannot be compared.
    """
    with explain_write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    known = _written_settings(out, settings)
    for each in [*([known] if known else []), *_measured_settings(out)]:
        for name, value in settings.items():
            if each.get(name) != value:
                raise VitreousError(
                    f"{str(out)!r} holds studies with {name}={each.get(name)!r}, and this one has "
                    f"{value!r}; choose another --out."
                )
    if known is None:
        write_json(out / STUDY, settings)


def _written_settings(out: Path, settings: Mapping[str, object]) -> dict[str, Any] | None:
    """The content of `study.json`; None, with a warning, if it is damaged."""
    path = out / STUDY
    if not path.exists():
        return None
    try:
        known = read_json(path)
        if settings.keys() <= known.keys():
            return known
        why = f"it does not say {', '.join(settings.keys() - known.keys())}"
    except Damaged as error:
        why = error.why
    log.warning("%s is damaged (%s) and is written again.", path, why)
    return None


def _measured_settings(out: Path) -> Iterator[dict[str, Any]]:
    """The settings of the studies whose evidence is in a folder."""
    for path in sorted((out / EXHIBITS).glob(f"*/{INDEX}")):
        try:
            settings = read_exhibit(path.parent).get("study")
        except VitreousError:
            continue  # it will be measured again
        if settings:
            yield settings


def choose_executor(executor: Executor, workers: int, address: str | None) -> Callable[..., Report]:
    """Return a function like `run_cells.run_cells` that runs cells in these processes."""
    if executor == "ray":
        return partial(executors.run_cluster, workers=workers, address=address)
    if workers == 1:
        return run_cells.run_cells
    return partial(executors.run_processes, workers=workers)


def _run_with_bar(
    cells: Sequence[Cell], run: Callable[[OnState], Report], console: Console
) -> Report:
    """Run cells under a progress bar that names the network at work."""
    bar, count = BarColumn(), MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), bar, count, TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("cells", total=len(cells))

        def on_state(cell: Cell, state: str) -> None:
            progress.update(task, description=cell_title(cell)[:60] if state == "begun" else None)
            if state != "begun":
                progress.advance(task)

        return run(on_state)
