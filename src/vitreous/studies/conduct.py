"""What `vitreous study` does before the findings are judged: plan, and run."""

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

from vitreous.claims import STUDIES, claims_of_study
from vitreous.claims.loading import EXHIBITS, INDEX, read_exhibit
from vitreous.devices import choose_device
from vitreous.errors import UnknownName, VitreousError
from vitreous.storage.atomic_files import Damaged, explain_write_errors, read_json, write_json
from vitreous.studies import build_up, executors, running
from vitreous.studies.dry_run import foresee, spoken, title
from vitreous.studies.estimates import estimate
from vitreous.studies.measuring import STUDY
from vitreous.studies.plan import Cell, plan
from vitreous.studies.running import Limits, Report, Told
from vitreous.studies.scales import scale_named

log = logging.getLogger("vitreous")
Executor = Literal["processes", "ray"]


class CellsFailed(VitreousError):
    """A study is over, and not all of it could be done."""

    def __init__(self, keys: Sequence[str], out: Path) -> None:
        more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
        super().__init__(
            f"{len(keys)} cell{'s' * (len(keys) > 1)} of the study failed ({', '.join(keys[:3])}{more}), so findings "
            f"may be missing; the reasons are in {str(out / 'failed')!r}, and the same command tries again."
        )


def study(
    name: str, data: str, scale: str, seeds: int, out: Path, *, image: int | None, workers: int | None, device: str,
    executor: Executor, address: str | None, dry_run: bool, console: Console, until: float | None = None,
    stack: bool | None = None,
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Plan the cells of a study and do what is not done; the ids of the claims that can be judged then, and the keys
    of the cells that failed.

    `until` is in minutes: no cell is begun that would end later by its estimate. With `stack`, the seeds of one
    configuration are trained in one step (default: on GPUs).
    """
    deadline = inf if until is None else time.time() + 60 * until
    stack = choose_device(device).type == "cuda" if stack is None else stack
    workers = executors.usual(device) if workers is None else workers
    if seeds < 1 or workers < 1:
        raise VitreousError(
            f"A study takes at least one seed and one worker, and not {seeds} and {workers}."
        )
    if address is not None and executor != "ray":
        raise VitreousError(
            f"An address, as {address!r}, is that of a Ray cluster: say --executor ray, or no address."
        )
    if name not in (*STUDIES, build_up.NAME):
        raise UnknownName("study", name, (*STUDIES, build_up.NAME))
    size = scale_named(scale)
    do = doer(executor, workers, address)

    def done(cells: Sequence[Cell]) -> Report:
        remember(out, {"data": data, "scale": scale, "image": image})
        limits = Limits(stack=stack)
        if deadline < inf:
            known = estimate(running.left(cells, out), out, device, stack)
            limits = Limits(
                deadline,
                {key: each.training for key, each in known.items()},
                {key: each.asking for key, each in known.items()},
                stack,
            )
        report = work(cells, lambda told: do(cells, out, size, device, told, limits), console)
        if report.left:
            seconds = sum(
                limits.training.get(key, 0.0) + limits.measuring.get(key, 0.0)
                for key in report.left
            )
            console.print(
                f"{len(report.left)} cells are left, about {spoken(seconds)}: they would not have ended in time. "
                "Run the same command again.",
                highlight=False,
            )
        return report

    if name == build_up.NAME:
        search = build_up.BuildUp(size, data, range(seeds), out, image)
        if dry_run:
            foresee(search.upcoming(), out, device, workers, console)
            console.print(search.prospect(), highlight=False)
        else:
            search.tell(search.follow(done), console)
        return [], []
    about = claims_of_study(name)
    cells = plan(about, size, data, range(seeds), image)
    if dry_run:
        foresee(cells, out, device, workers, console)
        return [], []
    report = done(cells)
    for key, why in report.failed.items():
        console.print(f"[red]failed[/red] {key}: {escape(why)}", highlight=False)
    if report.failed:
        console.print(
            f"More is in {str(out / 'failed')!r}; the same command tries them again.",
            highlight=False,
        )
    return [claim.id for claim in about], list(report.failed)


def remember(out: Path, settings: dict[str, object]) -> None:
    """What all studies in a folder have in common, so that results that cannot be compared do not meet there."""
    with explain_write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    known = _known(out, settings)
    for each in [*([known] if known else []), *_said(out)]:
        for name, value in settings.items():
            if each.get(name) != value:
                raise VitreousError(
                    f"{str(out)!r} holds studies with {name}={each.get(name)!r}, and this one has {value!r}; choose "
                    "another --out."
                )
    if known is None:
        write_json(out / STUDY, settings)


def _known(out: Path, settings: Mapping[str, object]) -> dict[str, Any] | None:
    """What `study.json` says; None, with a notice, if it is damaged: what was measured says it as well."""
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


def _said(out: Path) -> Iterator[dict[str, Any]]:
    """The settings of the studies that have measured something here."""
    for path in sorted((out / EXHIBITS).glob(f"*/{INDEX}")):
        try:
            found = read_exhibit(path.parent).get("study")
        except VitreousError:
            continue  # it will be measured again
        if found:
            yield found


def doer(executor: Executor, workers: int, address: str | None) -> Callable[..., Report]:
    """Who does the cells: a function like `running.run`."""
    if executor == "ray":
        return partial(executors.cluster, workers=workers, address=address)
    return running.run if workers == 1 else partial(executors.processes, workers=workers)


def work(cells: Sequence[Cell], do: Callable[[Told], Report], console: Console) -> Report:
    """With a bar that says which model is at work."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("cells", total=len(cells))

        def told(cell: Cell, state: str) -> None:
            progress.update(bar, description=title(cell)[:60] if state == "begun" else None)
            if state != "begun":
                progress.advance(bar)

        return do(told)
