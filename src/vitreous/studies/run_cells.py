"""Running cells: train, measure, and leave everything in the study's folder.

    study.json      the settings of the study
    trainings/KEY   a run, as `vitreous train` leaves it
    exhibits/KEY    results of one network at one checkpoint
    failed/KEY.txt  why a cell failed
    locks/KEY.lock  held by the process that runs the cell

The folder is the only record of progress. Several processes can share it and divide the cells. A
process that is killed loses the cell it was running, and what is deleted is done again. A cell that
fails says why, and the study continues without it; the next study tries it again, after all others.

A cell is run with one thread and freshly seeded random numbers, so that its results have the same
bits wherever it is run and whatever ran before: a sum in another order, as of two threads, rounds
differently.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Literal

import scipy.linalg  # noqa: F401 - its BLAS is loaded before its threads are limited
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from vitreous.errors import VitreousError
from vitreous.random_numbers import seeded
from vitreous.storage.atomic_files import log
from vitreous.storage.run_folder import Run
from vitreous.studies.cell_records import (
    forget_failure,
    lock_path,
    note_failure,
    read_failure,
    try_lock,
)
from vitreous.studies.measuring import (
    TRAININGS,
    load_split,
    measure_item,
    missing_results,
    trained_model,
)
from vitreous.studies.plan import Cell
from vitreous.studies.scales import Scale
from vitreous.studies.training import Training
from vitreous.training.adapt import adapt
from vitreous.training.loop import train
from vitreous.training.seeds import train_seeds

WAIT = 0.5
"""Seconds to wait before retrying the cells that other processes hold."""


@dataclass
class Report:
    """Keys of the cells that are done, and the reasons why others failed."""

    done: list[str]
    failed: dict[str, str]
    left: list[str] = field(default_factory=list)
    """Cells that were not started because they would not have ended in time."""


@dataclass(frozen=True)
class Limits:
    """The deadline of a run with the estimates to keep it, and whether seeds are stacked."""

    deadline: float = inf
    """A value of `time.time()`; a cell that would end later is not started."""
    training: Mapping[str, float] = field(default_factory=dict)
    """Estimated seconds of training of each cell, by key."""
    measuring: Mapping[str, float] = field(default_factory=dict)
    """Estimated seconds of measuring of each cell, by key."""
    stack: bool = False
    """Whether trainings that differ in their seed alone are trained in one step."""

    def seconds(self, key: str) -> float:
        """The estimate of a cell."""
        return self.training.get(key, 0.0) + self.measuring.get(key, 0.0)

    def allow(self, cell: Cell, peers: Sequence[Cell] = ()) -> bool:
        """Whether a cell, with the trainings of its peers, would end in time."""
        trainings = sum(self.training.get(each.key, 0.0) for each in peers)
        return time.time() + self.seconds(cell.key) + trainings <= self.deadline


NO_LIMITS = Limits()
STACK = 8
"""Maximum number of seeds that are trained in one step."""
PACKED = "packed.json"
"""Marks the folder of a training whose results were unpacked, and whose weights are elsewhere."""
OnState = Callable[[Cell, str], None]
"""Called with a cell and its state: 'begun', 'done', 'failed', 'left'."""
State = Literal["done", "failed", "held", "lost", "left"]
"""The outcome of an attempt. held: another process runs it, or a cell that it follows is not done.
lost: it failed, and this process can no longer use the GPU. left: it would end after the
deadline."""


def ignore_state(cell: Cell, state: str) -> None:
    """The callback that does nothing."""


def is_finished(cell: Cell, root: Path) -> bool:
    """Whether a cell is trained and measured. Unpacked results need no weights."""
    if any(missing_results(item, root) for item in cell.items):
        return False
    key = cell.training.key if cell.training else ""
    return not key or is_trained(key, root) or is_packed(key, root)


def is_packed(key: str, root: Path) -> bool:
    """Whether the results of this training were unpacked here, without its weights."""
    home = root / TRAININGS / key
    return (home / PACKED).is_file() and not (home / "weights").exists()


def unfinished_cells(cells: Sequence[Cell], root: Path) -> list[Cell]:
    """The cells that are not finished."""
    return [cell for cell in cells if not is_finished(cell, root)]


def is_trained(key: str, root: Path) -> bool:
    """Whether a training is complete and intact.

    It is if the final weights are intact and the last line of its record, written after them, is
    there. Otherwise training again restores what was lost.
    """
    run = Run(root / TRAININGS / key)
    try:
        stat = run.weights()[0].stat()
        step = _final_step(run.folder, run.id, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return bool(run.records()[-1]["step"] >= step)
    except (VitreousError, OSError, LookupError):
        return False


@lru_cache(maxsize=4096)
def _final_step(folder: Path, run: str, inode: int, size: int, written: int) -> int:
    """The step of the final weights, if they are intact; cached until the file changes."""
    return int(Run(folder).read_weights()[1]["step"])


def run_cells(
    cells: Sequence[Cell],
    root: Path,
    scale: Scale,
    device: str = "auto",
    on_state: OnState = ignore_state,
    limits: Limits = NO_LIMITS,
) -> Report:
    """Run all cells in this process, one after the other."""
    return share_cells(retry_order(cells, root), root, scale, device, on_state, limits)


def retry_order(cells: Sequence[Cell], root: Path) -> list[Cell]:
    """Move cells that failed before behind the others, and delete the records of their failures."""
    ordered = sorted(cells, key=lambda cell: read_failure(cell, root) != "")
    for cell in cells:
        forget_failure(cell, root)
    return ordered


def share_cells(
    cells: Sequence[Cell],
    root: Path,
    scale: Scale,
    device: str = "auto",
    on_state: OnState = ignore_state,
    limits: Limits = NO_LIMITS,
) -> Report:
    """Run the cells that no other process runs, and wait for those of the others."""
    report = Report([], {})
    waiting = list(cells)
    while waiting:
        held = []
        for cell in waiting:
            if why := failed_dependency(cell, report):
                state: State = "failed"
            elif any(key in report.left for key in cell.follows):
                state = "left"
            else:
                peers = _peers(cell, waiting, root) if limits.stack else []
                state, why = attempt_cell(cell, root, scale, device, on_state, peers, limits)
            if state == "held":
                held.append(cell)
                continue
            enter_outcome(report, cell, state, why, on_state)
            if state == "lost":
                raise VitreousError(
                    f"The GPU failed at cell {cell.key} ({why}), and this process cannot use it "
                    "any more. Finished cells are kept. Run the same command again: it continues "
                    "with the other cells and tries this one last."
                )
        if len(held) == len(waiting):
            time.sleep(WAIT)
        waiting = held
    return report


def _peers(cell: Cell, cells: Sequence[Cell], root: Path) -> list[Cell]:
    """The other untrained cells whose trainings differ from this one's in the seed alone."""
    if cell.training is None or cell.training.follows or is_trained(cell.training.key, root):
        return []
    alone = replace(cell.training, seed=0)
    return [
        each
        for each in cells
        if each is not cell
        and each.training is not None
        and replace(each.training, seed=0) == alone
        and not (is_trained(each.training.key, root) or is_packed(each.training.key, root))
        and not read_failure(each, root)
    ][: STACK - 1]


def failed_dependency(cell: Cell, report: Report) -> str:
    """Why a cell cannot run any more, because one that it follows failed; otherwise empty."""
    failed = [key for key in cell.follows if key in report.failed]
    return f"It waits for {failed[0]}, which failed." if failed else ""


def enter_outcome(report: Report, cell: Cell, state: State, why: str, on_state: OnState) -> None:
    """Enter the outcome of a cell into the report, and call `on_state`."""
    if state == "left":
        report.left.append(cell.key)
    elif state == "done":
        report.done.append(cell.key)
    else:
        report.failed[cell.key] = why
    on_state(cell, "failed" if state == "lost" else state)


def attempt_cell(
    cell: Cell,
    root: Path,
    scale: Scale,
    device: str = "auto",
    on_state: OnState = ignore_state,
    peers: Sequence[Cell] = (),
    limits: Limits = NO_LIMITS,
) -> tuple[State, str]:
    """Run a cell, unless another process runs it, has finished it, or has recorded its failure.

    The trainings of `peers` differ from the cell's in the seed alone, and share its steps.
    Returns the outcome, and the reason of a failure.
    """
    with try_lock(lock_path(cell, root)) as has_lock:
        if not has_lock:
            return "held", ""
        try:
            if is_finished(cell, root):
                forget_failure(cell, root)
                return "done", ""
            if lost := [key for key in cell.follows if is_packed(key, root)]:
                return "failed", note_failure(cell, root, _no_weights_text(lost[0], root))
            if not all(is_trained(key, root) for key in cell.follows):
                return "held", ""
            if why := read_failure(cell, root):
                return "failed", why
            if not limits.allow(cell, peers):
                return "left", ""
            on_state(cell, "begun")
            if peers:
                _train_stacked([cell, *peers], root, device)
            do_cell(cell, root, scale, device)
        except VitreousError as error:
            return "failed", note_failure(cell, root, str(error) or type(error).__name__)
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            note_failure(cell, root, why, traceback.format_exc())
            return "lost" if isinstance(error, torch.AcceleratorError) else "failed", why
    return "done", ""


def _no_weights_text(key: str, root: Path) -> str:
    return (
        f"The weights of training {key} were left behind when its results were packed; delete "
        f"{str(root / TRAININGS / key)!r} to train it again."
    )


def do_cell(cell: Cell, root: Path, scale: Scale, device: str = "auto") -> None:
    """Train if necessary, and measure the results that are missing."""
    if cell.training is not None:
        if _checkpoint_lost(cell, root):
            shutil.rmtree(root / TRAININGS / cell.training.key)
        if is_packed(cell.training.key, root):
            raise VitreousError(_no_weights_text(cell.training.key, root))
        if not is_trained(cell.training.key, root):
            with reproducible(cell.training.seed):
                _train(cell.training, root, device)
    for item in cell.items:
        if missing_results(item, root):
            with reproducible(0):
                measure_item(item, root, scale, device)


def _checkpoint_lost(cell: Cell, root: Path) -> bool:
    """Whether a finished training lacks a checkpoint that has to be measured.

    It has to be trained again then. Lost final weights are restored without that.
    """
    assert cell.training is not None
    if not is_trained(cell.training.key, root):
        return False
    run = Run(root / TRAININGS / cell.training.key)
    needed = {item.checkpoint for item in cell.items if missing_results(item, root)}
    for checkpoint in needed - {"final"}:
        try:
            run.read_weights(checkpoint)
        except VitreousError as error:
            log.warning("%s The study does that now.", error)
            return True
    return False


@contextlib.contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Limit torch, numpy and scipy to one thread, and seed torch's random numbers."""
    threads = torch.get_num_threads()
    with seeded(seed), threadpool_limits(1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _train(training: Training, root: Path, device: str) -> None:
    data, test = load_split(training.images, "train"), load_split(training.images, "test")
    model: nn.Module | str = training.model
    recipe = training.recipe
    if training.start is not None:
        start = trained_model(training.start, root)
        model = adapt(start, classes=len(data.classes), image=data.image, head=recipe.head)
        recipe = recipe.but(head="keep")
    train(
        model,
        data,
        recipe,
        test=test,
        out=root / TRAININGS / training.key,
        seed=training.seed,
        device=device,
        teacher=trained_model(training.teacher, root) if training.teacher else None,
        show=False,
    )


def _train_stacked(cells: Sequence[Cell], root: Path, device: str) -> None:
    """Train the seeds of one configuration in one step, except those that other processes train."""
    with contextlib.ExitStack() as stack:
        first, *others = cells
        free = [each for each in others if stack.enter_context(try_lock(lock_path(each, root)))]
        trainings = [each.training for each in (first, *free) if each.training is not None]
        left = [each for each in trainings if not is_trained(each.key, root)]
        if len(left) < 2:
            return
        training = left[0]
        with reproducible(training.seed):
            train_seeds(
                training.model,
                load_split(training.images, "train"),
                training.recipe,
                seeds=[each.seed for each in left],
                test=load_split(training.images, "test"),
                out=[root / TRAININGS / each.key for each in left],
                device=device,
                show=False,
            )
