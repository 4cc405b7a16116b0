"""Cells being done: train, measure, and leave behind a folder that says so.

    study.json      what the study is
    trainings/KEY   a run, as `vitreous train` leaves it
    exhibits/KEY    results of one model at one moment
    failed/KEY.txt  why a cell could not be done
    locks/KEY.lock  held by whoever is at the cell

All that is known of progress is what lies in the folder. Several processes on one folder divide the cells between them,
one that is killed costs the cell it was at, and what somebody deleted is done again. A cell that cannot be done, for
whatever reason, says why, and the study goes on without it; the next one tries it again, after all others.

Whoever does a cell does it with one thread and with random numbers that begin anew, so that its results are the same
bits wherever it is done and whatever was done before: sums in another order, as of two threads, end in other digits.
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

import scipy.linalg  # noqa: F401 - its BLAS has to be there to be told how many threads it has
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from vitreous.errors import VitreousError
from vitreous.random_numbers import seeded
from vitreous.storage.atomic_files import log
from vitreous.storage.locks import Busy, hold_lock
from vitreous.storage.run_folder import Run
from vitreous.studies.measuring import TRAININGS, images, measure, missing, teacher
from vitreous.studies.plan import Cell
from vitreous.studies.scales import Scale
from vitreous.studies.training import Training
from vitreous.training.adapt import adapt
from vitreous.training.loop import train
from vitreous.training.seeds import train_seeds

WAIT = 0.5
"""Seconds before a cell that another process holds is looked at again."""


@dataclass
class Report:
    """How it went, cell by cell."""

    done: list[str]
    failed: dict[str, str]
    left: list[str] = field(default_factory=list)
    """Cells that were not begun because they would not have finished in time."""


@dataclass(frozen=True)
class Limits:
    """How cells are done: until when, and whether seeds are trained together."""

    deadline: float = inf
    """By `time.time`; a cell that would end later is not begun."""
    training: Mapping[str, float] = field(default_factory=dict)
    """Estimated seconds of training of each cell, by key."""
    measuring: Mapping[str, float] = field(default_factory=dict)
    """Estimated seconds of measuring of each cell, by key."""
    stack: bool = False
    """Whether trainings that differ in their seed alone are trained in one step."""

    def allow(self, cell: Cell, peers: Sequence[Cell] = ()) -> bool:
        """Whether a cell, and the training of others together with it, would end in time."""
        if self.deadline == inf:
            return True
        trainings = sum(self.training.get(each.key, 0.0) for each in (cell, *peers))
        return time.time() + trainings + self.measuring.get(cell.key, 0.0) <= self.deadline


NO_LIMITS = Limits()
STACK = 8
"""Most seeds that are trained in one step."""
PACKED = "packed.json"
"""In the folder of a training whose results were unpacked and whose weights were left behind."""


Told = Callable[[Cell, str], None]
"""Called with a cell and what became of it: 'begun', 'done', 'failed', 'left'."""
State = Literal["done", "failed", "held", "lost", "left"]
"""What came of an attempt. Held: another process is at it, or what it follows is not there yet. Lost: it failed and has
taken the GPU with it, which refuses this process from now on. Left: it would not have finished in time."""


def silent(cell: Cell, state: str) -> None:
    """For those who need not be told."""


def finished(cell: Cell, root: Path) -> bool:
    """Whether nothing is left to do. Results that were unpacked need no weights."""
    if any(missing(sitting, root) for sitting in cell.sittings):
        return False
    key = cell.training.key if cell.training else ""
    return not key or trained(key, root) or packed(key, root)


def packed(key: str, root: Path) -> bool:
    """Whether the results of this training were unpacked here, without its weights."""
    home = root / TRAININGS / key
    return (home / PACKED).is_file() and not (home / "weights").exists()


def left(cells: Sequence[Cell], root: Path) -> list[Cell]:
    """What is still to be done."""
    return [cell for cell in cells if not finished(cell, root)]


def trained(key: str, root: Path) -> bool:
    """Whether the training of this key is at its end and intact: the last line of its record is written after the last
    weights. Training it again restores what was lost."""
    run = Run(root / TRAININGS / key)
    try:
        stat = run.weights().stat()
        step = _final_step(run.folder, run.id, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return bool(run.records()[-1]["step"] >= step)
    except (VitreousError, OSError, LookupError):
        return False


@lru_cache(maxsize=4096)
def _final_step(folder: Path, run: str, inode: int, size: int, written: int) -> int:
    """The step of final weights that are intact; read once, unless the file has changed."""
    return int(Run(folder).read_weights()[1]["step"])


def run(
    cells: Sequence[Cell],
    root: Path,
    scale: Scale,
    device: str = "auto",
    told: Told = silent,
    limits: Limits = NO_LIMITS,
) -> Report:
    """All cells, here, one after the other."""
    return share(begin(cells, root), root, scale, device, told, limits)


def begin(cells: Sequence[Cell], root: Path) -> list[Cell]:
    """What failed before may be tried again, after the others."""
    ordered = sorted(cells, key=lambda cell: noted(cell, root) != "")
    for cell in cells:
        _forget(cell, root)
    return ordered


def share(
    cells: Sequence[Cell],
    root: Path,
    scale: Scale,
    device: str = "auto",
    told: Told = silent,
    limits: Limits = NO_LIMITS,
) -> Report:
    """Do the cells that nobody else does; those that another process is at are waited for."""
    report = Report([], {})
    waiting = list(cells)
    while waiting:
        held = []
        for cell in waiting:
            if why := unmet(cell, report):
                state: State = "failed"
            elif any(key in report.left for key in cell.follows):
                state = "left"
            else:
                peers = _peers(cell, waiting, root) if limits.stack else []
                state, why = attempt(cell, root, scale, device, told, peers, limits)
            if state == "held":
                held.append(cell)
                continue
            enter(report, cell, state, why, told)
            if state == "lost":
                raise VitreousError(
                    f"The GPU gave up at cell {cell.key} ({why}) and takes no more work from this process. What is "
                    "done is kept; the same command goes on with the other cells and comes to this one last."
                )
        if len(held) == len(waiting):
            time.sleep(WAIT)
        waiting = held
    return report


def _peers(cell: Cell, cells: Sequence[Cell], root: Path) -> list[Cell]:
    """The other cells whose trainings differ from this one's in nothing but the seed and are not done."""
    if cell.training is None or cell.training.follows or trained(cell.training.key, root):
        return []
    alone = replace(cell.training, seed=0)
    return [
        each
        for each in cells
        if each is not cell
        and each.training is not None
        and replace(each.training, seed=0) == alone
        and not (trained(each.training.key, root) or packed(each.training.key, root))
        and not noted(each, root)
    ][: STACK - 1]


def unmet(cell: Cell, report: Report) -> str:
    """Why a cell cannot be begun any more, if that is so."""
    failed = [key for key in cell.follows if key in report.failed]
    return f"It waits for {failed[0]}, which failed." if failed else ""


def enter(report: Report, cell: Cell, state: State, why: str, told: Told) -> None:
    """A cell that is over into the report."""
    if state == "left":
        report.left.append(cell.key)
    elif state == "done":
        report.done.append(cell.key)
    else:
        report.failed[cell.key] = why
    told(cell, "failed" if state == "lost" else state)


def attempt(
    cell: Cell,
    root: Path,
    scale: Scale,
    device: str = "auto",
    told: Told = silent,
    peers: Sequence[Cell] = (),
    limits: Limits = NO_LIMITS,
) -> tuple[State, str]:
    """Do a cell, unless another process is at it, did it, or noted that it fails; what became of it, and why.

    The trainings of `peers` differ from that of the cell in their seed alone and are done with it.
    """
    with locked(lock(cell, root)) as mine:
        if not mine:
            return "held", ""
        try:
            if finished(cell, root):
                _forget(cell, root)
                return "done", ""
            if lost := [key for key in cell.follows if packed(key, root)]:
                return "failed", note(cell, root, _no_weights(lost[0], root))
            if not all(trained(key, root) for key in cell.follows):
                return "held", ""
            if why := noted(cell, root):
                return "failed", why
            if not limits.allow(cell, peers):
                return "left", ""
            told(cell, "begun")
            if peers:
                _train_stacked([cell, *peers], root, device)
            do(cell, root, scale, device)
        except VitreousError as error:
            return "failed", note(cell, root, str(error) or type(error).__name__)
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            note(cell, root, why, traceback.format_exc())
            return "lost" if isinstance(error, torch.AcceleratorError) else "failed", why
    return "done", ""


def _no_weights(key: str, root: Path) -> str:
    return (
        f"The weights of training {key} were left behind when its results were packed; delete "
        f"{str(root / TRAININGS / key)!r} to train it again."
    )


def do(cell: Cell, root: Path, scale: Scale, device: str = "auto") -> None:
    """Train, unless that is done, and measure what is missing."""
    if cell.training is not None:
        if _checkpoint_lost(cell, root):
            shutil.rmtree(root / TRAININGS / cell.training.key)
        if packed(cell.training.key, root):
            raise VitreousError(_no_weights(cell.training.key, root))
        if not trained(cell.training.key, root):
            with alike(cell.training.seed):
                _train(cell.training, root, device)
    for sitting in cell.sittings:
        if missing(sitting, root):
            with alike(0):
                measure(sitting, root, scale, device)


def _checkpoint_lost(cell: Cell, root: Path) -> bool:
    """Whether a finished training lacks a checkpoint that is to be measured: only training again brings it back. The
    final weights need no such thing."""
    assert cell.training is not None
    if not trained(cell.training.key, root):
        return False
    run = Run(root / TRAININGS / cell.training.key)
    for moment in {sitting.moment for sitting in cell.sittings if missing(sitting, root)} - {
        "final"
    }:
        try:
            run.read_weights(moment)
        except VitreousError as error:
            log.warning("%s The study does that now.", error)
            return True
    return False


@contextlib.contextmanager
def alike(seed: int) -> Iterator[None]:
    """One thread, for torch and for the libraries below numpy and scipy, and random numbers from the beginning."""
    threads = torch.get_num_threads()
    with seeded(seed), threadpool_limits(1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


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


def _train_stacked(cells: Sequence[Cell], root: Path, device: str) -> None:
    """Train several seeds of one configuration in one step; those that another process is at are left to it."""
    with contextlib.ExitStack() as stack:
        first, *others = cells
        free = [each for each in others if stack.enter_context(locked(lock(each, root)))]
        trainings = [each.training for each in (first, *free) if each.training is not None]
        left = [each for each in trainings if not trained(each.key, root)]
        if len(left) < 2:
            return
        training = left[0]
        with alike(training.seed):
            train_seeds(
                training.model,
                images(training.images, "train"),
                training.recipe,
                seeds=[each.seed for each in left],
                test=images(training.images, "test"),
                out=[root / TRAININGS / each.key for each in left],
                device=device,
                show=False,
            )


def lock(cell: Cell, root: Path) -> Path:
    """The file that whoever is at a cell has locked."""
    return root / "locks" / f"{cell.key}.lock"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether this process may: the system takes a lock back from a process that is gone."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(path, "studying"))
        except Busy:
            yield False
            return
        yield True


def noted(cell: Cell, root: Path) -> str:
    """Why it failed, if it did."""
    try:
        return _failed(cell, root).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return ""


def note(cell: Cell, root: Path, why: str, more: str = "") -> str:
    """Write down why it failed, for others and for people; a disk without room for that is no further failure."""
    why = " ".join(why.split())
    with contextlib.suppress(OSError):
        _failed(cell, root).parent.mkdir(parents=True, exist_ok=True)
        _failed(cell, root).write_text(f"{why}\n{more}", encoding="utf-8")
    return why


def _forget(cell: Cell, root: Path) -> None:
    _failed(cell, root).unlink(missing_ok=True)


def _failed(cell: Cell, root: Path) -> Path:
    return root / "failed" / f"{cell.key}.txt"
