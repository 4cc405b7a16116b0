"""Running cells in several processes of this machine, or on the machines of a Ray cluster.

All processes share the study's folder, which is the only record of progress. Processes on one
machine need no driver: each goes through the same list, runs the cells whose lock it gets, and
waits for the others. A cluster has a driver, which sends a cell when the cells it follows are done,
and keeps no state outside the folder. If a worker dies, another one runs its cell. The same command
in a second terminal, here or on a machine that shares the folder, takes over part of the work.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any

import torch

from vitreous.claims.book_sources import use_books
from vitreous.devices import choose_device
from vitreous.errors import VitreousError
from vitreous.studies.cell_records import lock_path, note_failure, try_lock
from vitreous.studies.plan import Cell
from vitreous.studies.run_cells import (
    NO_LIMITS,
    WAIT,
    Limits,
    OnState,
    Report,
    State,
    attempt_cell,
    enter_outcome,
    failed_dependency,
    ignore_state,
    retry_order,
    share_cells,
)
from vitreous.studies.scales import Scale

MAX_RESTARTS = 3
"""How often a cell is sent again after its worker died, before it counts as failed."""
GRACE = 5.0
"""Seconds that workers have to save their state when they are stopped."""
OBJECT_STORE_BYTES = 80 << 20
"""Bytes of a local cluster's object store; only small objects pass through it."""


def default_workers(device: str) -> int:
    """The default number of workers: one per GPU that cells can use, otherwise one per core."""
    gpus = _gpus_here(device)
    if gpus or choose_device(device).type != "cpu":
        return gpus or 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_processes(
    cells: Sequence[Cell],
    root: Path,
    scale: Scale,
    device: str,
    on_state: OnState,
    limits: Limits = NO_LIMITS,
    workers: int = 1,
) -> Report:
    """Run cells in `workers` processes, this one included, which are assigned to GPUs in turn."""
    cells = retry_order(cells, root)
    context = multiprocessing.get_context("spawn")
    helpers = [
        context.Process(
            target=_run_helper,
            args=(cells, root, scale, _device(device, number), limits),
            daemon=True,
        )
        for number in range(1, workers)
    ]
    for helper in helpers:
        helper.start()
    try:
        return share_cells(cells, root, scale, _device(device, 0), on_state, limits)
    finally:
        for helper in helpers:
            helper.terminate()
        for helper in helpers:
            helper.join()


def _run_helper(
    cells: Sequence[Cell], root: Path, scale: Scale, device: str, limits: Limits
) -> None:
    """Run cells in a helper process, without printing errors: the first process reports them."""
    end_with_parent()
    use_books(scale.books)
    with contextlib.suppress(KeyboardInterrupt, VitreousError):
        share_cells(cells, root, scale, device, ignore_state, limits)


def end_with_parent() -> None:
    """End this process when its parent ends, even if that is killed; a training saves its state."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()


def _device(device: str, number: int) -> str:
    count = _gpus_here(device)
    return f"cuda:{number % count}" if count else device


def _gpus_here(device: str) -> int:
    return torch.cuda.device_count() if device in ("auto", "cuda") else 0


def run_cluster(
    cells: Sequence[Cell],
    root: Path,
    scale: Scale,
    device: str = "auto",
    on_state: OnState = ignore_state,
    limits: Limits = NO_LIMITS,
    workers: int = 1,
    address: str | None = None,
) -> Report:
    """Run cells on a Ray cluster: the one at `address`, or a local one with `workers` CPUs.

    A cell takes a GPU where the cluster has GPUs, and a CPU otherwise. All machines need this
    version of Vitreous, and the study's folder and the images at the same place.
    """
    if limits.deadline < inf:
        raise VitreousError(
            "A limit of time holds on one machine only: leave out --until or --executor ray."
        )
    root = root.expanduser().resolve()
    cells = retry_order(cells, root)
    for cell in cells:
        with try_lock(lock_path(cell, root)):
            pass  # creates the lock file, by which a worker checks that it sees the same folder
    with _connect(address, workers) as ray:
        gpus = _gpus(ray, device)
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_task)
        here = os.getcwd()
        return Dispatch(
            ray, cells, on_state, lambda cell: task.remote(cell, root, scale, device, here), root
        ).follow()


@contextlib.contextmanager
def _connect(address: str | None, workers: int) -> Iterator[Any]:
    """Connect to Ray, without its messages on the terminal."""
    try:
        import ray
    except ImportError:
        raise VitreousError(
            "The executor ray needs Ray, which is not installed: pip install vitreous[ray]"
        ) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    own = {
        "address": "local",
        "num_cpus": workers,
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    try:
        _check_address(address)
        ray.init(
            **({"address": address} if address else own),
            log_to_driver=False,
            logging_level=logging.CRITICAL,
        )
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        hint = (
            "say auto, or the HOST:PORT that `ray start --head` shows"
            if address
            else "`vitreous doctor`"
        )
        where = (
            f"at {address!r} cannot be reached" if address else "on this machine cannot be started"
        )
        raise VitreousError(f"A Ray cluster {where} ({_one_line(error)}); {hint}.") from error
    _silence_ray()
    try:
        yield ray
    finally:
        ray.shutdown()


def _silence_ray() -> None:
    """Silence Ray's messages about dead workers, for which it has no option."""
    with contextlib.suppress(ImportError):
        from ray._private import worker

        worker.print_to_stdstream = lambda *given, **more: None


def _check_address(address: str | None) -> None:
    """Raise an error if nothing listens at the address: Ray itself would try for minutes."""
    if address not in (None, "auto"):
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _gpus(ray: Any, device: str) -> int:
    """The number of GPUs that each cell takes, 0 or 1."""
    if ":" in device:
        raise VitreousError(
            f"Ray gives each cell a GPU, so {device!r} cannot be asked for; say auto, cuda or cpu."
        )
    has_gpu = ray.cluster_resources().get("GPU", 0) >= 1
    if device == "cuda" and not has_gpu:
        raise VitreousError(
            "The device 'cuda' was asked for and the Ray cluster has no GPU; say auto or cpu."
        )
    return int(has_gpu and device != "cpu")


def _task(cell: Cell, root: Path, scale: Scale, device: str, directory: str) -> tuple[State, str]:
    """Run a cell on a worker, in the study's directory: names of images may be relative to it."""
    if not lock_path(cell, root).is_file():
        raise VitreousError(
            f"{socket.gethostname()} does not see the study's folder {str(root)!r}."
        )
    with contextlib.suppress(OSError):
        os.chdir(directory)
    use_books(scale.books)
    return attempt_cell(cell, root, scale, device)


class Dispatch:
    """Sends cells to a cluster and collects their outcomes."""

    def __init__(
        self,
        ray: Any,
        cells: Sequence[Cell],
        on_state: OnState,
        send: Callable[[Cell], Any],
        root: Path,
    ) -> None:
        self.ray, self.on_state, self.send, self.root = ray, on_state, send, root
        self.ours = {cell.key for cell in cells}
        self.waiting = {cell.key: cell for cell in cells}
        self.held: dict[str, Cell] = {}
        """Cells that another process runs; they are sent again after a while."""
        self.running: dict[Any, Cell] = {}
        """Cells that were sent to the cluster, by Ray's reference to their outcome."""
        self.deaths = Counter[str]()
        self.report = Report([], {})
        self.shown = ""

    def follow(self) -> Report:
        """Run until each cell is done or has failed; if interrupted, workers save their state."""
        try:
            while self.waiting or self.held or self.running:
                self.dispatch()
                self.collect()
        except BaseException:
            self.stop()
            raise
        return self.report

    def dispatch(self) -> None:
        """Send the cells that follow only cells that are done."""
        for cell in list(self.waiting.values()):
            if why := failed_dependency(cell, self.report):
                enter_outcome(self.report, self.waiting.pop(cell.key), "failed", why, self.on_state)
            elif not any(key in self.ours and key not in self.report.done for key in cell.follows):
                self.running[self.send(cell)] = self.waiting.pop(cell.key)
        if self.running and (oldest := next(iter(self.running.values()))).key != self.shown:
            self.shown = oldest.key
            self.on_state(oldest, "begun")

    def collect(self) -> None:
        """Take the outcomes that have arrived; if none has, queue the held cells again."""
        ready = []
        if self.running:
            ready, _ = self.ray.wait(list(self.running), timeout=WAIT)
        else:
            time.sleep(WAIT)
        if not ready:
            self.waiting |= self.held
            self.held = {}
        for reference in ready:
            self.settle(self.running.pop(reference), reference)

    def settle(self, cell: Cell, reference: Any) -> None:
        """Enter the outcome of a cell into the report, or queue the cell again."""
        errors = self.ray.exceptions
        try:
            state, why = self.ray.get(reference)
        except errors.RayTaskError as error:  # `attempt_cell` catches the failures of cells
            raise VitreousError(
                f"A worker of the cluster could not begin: {_one_line(error)} All machines need "
                f"this version of Vitreous, and see {str(self.root)!r} at the same place."
            ) from error
        except errors.RayError as error:  # the worker is gone, or its machine
            self.deaths[cell.key] += 1
            if self.deaths[cell.key] <= MAX_RESTARTS:
                self.waiting[cell.key] = cell
                return
            why = note_failure(
                cell,
                self.root,
                f"Its worker died {self.deaths[cell.key]} times. {_one_line(error)}",
                str(error),
            )
            state = "failed"
        if state == "held":
            self.held[cell.key] = cell
        else:
            enter_outcome(self.report, cell, state, why, self.on_state)

    def stop(self) -> None:
        """Stop the workers; a training saves its state."""
        for reference in self.running:
            self.ray.cancel(reference)
        if self.running:
            self.ray.wait(list(self.running), num_returns=len(self.running), timeout=GRACE)


def _one_line(error: Exception) -> str:
    """The cause of an error of Ray, in one line."""
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}"
