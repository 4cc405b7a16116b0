"""Cells being done: train, measure, and leave behind a folder that says so.

    study.json      what the study is
    trainings/KEY   a run, as `vitreous train` leaves it
    exhibits/KEY    results of one model at one moment

All that is known of progress is what lies in the folder. Whoever does a cell holds its lock; several processes on one
folder divide the cells between them, one that is killed costs the cell it was at, and what somebody deleted is done
again. A cell that cannot be done says why in `failed/`, and the study goes on without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from vitreous.errors import VitreousError
from vitreous.store import Run, explained
from vitreous.studies.measuring import TRAININGS, images, measure, missing, teacher
from vitreous.studies.plan import Cell
from vitreous.studies.scales import Scale
from vitreous.studies.training import Training
from vitreous.training.adapt import adapt
from vitreous.training.loop import train

WAIT = 0.5
"""Seconds before a cell that another process holds is looked at again."""


@dataclass
class Report:
    """How it went, cell by cell."""

    done: list[str]
    failed: dict[str, str]


Told = Callable[[Cell, str], None]
"""Called with a cell and what became of it: 'begun', 'done', 'failed'."""


def finished(cell: Cell, root: Path) -> bool:
    """Whether nothing is left to do."""
    return trained(cell.training, root) and not any(missing(sitting, root) for sitting in cell.sittings)


def trained(training: Training | None, root: Path) -> bool:
    return training is None or "final" in Run(root / TRAININGS / training.key).moments()


def do(cell: Cell, root: Path, scale: Scale, device: str = "auto") -> None:
    """Train, unless that is done, and measure what is missing."""
    if cell.training is not None and not trained(cell.training, root):
        _train(cell.training, root, device)
    for sitting in cell.sittings:
        if missing(sitting, root):
            measure(sitting, root, scale, device)


def _train(training: Training, root: Path, device: str) -> None:
    data, test = images(training.images, "train"), images(training.images, "test")
    model: nn.Module | str = training.model
    recipe = training.recipe
    if training.start is not None:
        begun = teacher(training.start, root)
        model = adapt(begun, classes=len(data.classes), image=data.image, head=recipe.head)
        recipe = recipe.but(head="keep")
    train(
        model, data, recipe, test=test, out=root / TRAININGS / training.key, seed=training.seed, device=device,
        teacher=teacher(training.teacher, root) if training.teacher else None, show=False,
    )  # fmt: skip


def run(
    cells: Sequence[Cell], root: Path, scale: Scale, device: str = "auto", told: Told = lambda cell, state: None
) -> Report:
    """All cells, in order; those that another process is at are waited for."""
    report = Report([], {})
    waiting = list(cells)
    while waiting:
        held = []
        for cell in waiting:
            state = _one(cell, root, scale, device, report, told)
            if state == "held":
                held.append(cell)
        if len(held) == len(waiting):
            time.sleep(WAIT)
        waiting = held
    return report


def _one(cell: Cell, root: Path, scale: Scale, device: str, report: Report, told: Told) -> str:
    if unmet := [key for key in cell.follows if key in report.failed]:
        report.failed[cell.key] = f"It waits for {unmet[0]}, which failed."
        told(cell, "failed")
        return "failed"
    with locked(root / "locks" / f"{cell.key}.lock") as mine:
        if not mine or not all(_there(key, root) for key in cell.follows):
            return "held"
        try:
            if not finished(cell, root):
                told(cell, "begun")
                do(cell, root, scale, device)
            _forget(cell, root)
        except VitreousError as error:
            report.failed[cell.key] = str(error)
            _note(cell, root, str(error))
            told(cell, "failed")
            return "failed"
    report.done.append(cell.key)
    told(cell, "done")
    return "done"


def _there(key: str, root: Path) -> bool:
    return "final" in Run(root / TRAININGS / key).moments()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether this process may: the system takes a lock back from a process that is gone."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)


def _note(cell: Cell, root: Path, why: str) -> None:
    (root / "failed").mkdir(parents=True, exist_ok=True)
    (root / "failed" / f"{cell.key}.txt").write_text(f"{why}\n", encoding="utf-8")


def _forget(cell: Cell, root: Path) -> None:
    (root / "failed" / f"{cell.key}.txt").unlink(missing_ok=True)
