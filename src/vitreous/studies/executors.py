"""Who does the cells, if not this process alone: several on this machine, or the machines of a Ray cluster.

The study's folder is all they share, and all that is known of progress. Processes on one machine need no master: each
goes through the same list, takes the cells whose lock it gets, and waits for those of the others. A cluster has one,
the driver, which sends a cell when those it follows are done, and knows nothing that is not in the folder. Either way a
worker that dies costs the cell it was at, which another takes up; and the same command a second time, here or on
another machine that sees the folder, helps.
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

from vitreous.devices import choose_device
from vitreous.errors import VitreousError
from vitreous.studies.plan import Cell
from vitreous.studies.running import (
    NO_LIMITS,
    WAIT,
    Limits,
    Report,
    State,
    Told,
    attempt,
    begin,
    enter,
    lock,
    locked,
    note,
    share,
    silent,
    unmet,
)
from vitreous.studies.scales import Scale

DEATHS = 3
"""How often a cell whose worker died is given to another, before it counts as failed."""
GRACE = 5.0
"""Seconds that workers have to save what they are at, when they are asked to stop."""
OBJECTS = 80 << 20
"""Bytes of a local cluster's store: nothing large goes through it."""


def usual(device: str) -> int:
    """Workers that this machine has room for: one for each GPU if the cells go there, otherwise one for each core."""
    gpus = _gpus_here(device)
    if gpus or choose_device(device).type != "cpu":
        return gpus or 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes(
    cells: Sequence[Cell],
    root: Path,
    scale: Scale,
    device: str,
    told: Told,
    limits: Limits = NO_LIMITS,
    workers: int = 1,
) -> Report:
    """So many workers, each with a GPU of its own where there are GPUs; this is the first, and tells how it goes."""
    cells = begin(cells, root)
    context = multiprocessing.get_context("spawn")
    helpers = [
        context.Process(
            target=_help, args=(cells, root, scale, _device(device, number), limits), daemon=True
        )
        for number in range(1, workers)
    ]
    for helper in helpers:
        helper.start()
    try:
        return share(cells, root, scale, _device(device, 0), told, limits)
    finally:
        for helper in helpers:
            helper.terminate()
        for helper in helpers:
            helper.join()


def _help(cells: Sequence[Cell], root: Path, scale: Scale, device: str, limits: Limits) -> None:
    """What stops a helper it keeps to itself: the first process finds its cell undone and says what there is to say."""
    end_with_parent()
    with contextlib.suppress(KeyboardInterrupt, VitreousError):
        share(cells, root, scale, device, silent, limits)


def end_with_parent() -> None:
    """Let this process end when the one that began it does, however that ends: a training saves its state first."""
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


def cluster(
    cells: Sequence[Cell], root: Path, scale: Scale, device: str = "auto", told: Told = silent,
    limits: Limits = NO_LIMITS, workers: int = 1, address: str | None = None,
) -> Report:  # fmt: skip
    """On a Ray cluster: the one at `address`, or one of this machine's with so many CPUs that ends with the study.

    A cell takes a GPU where the cluster has GPUs and a CPU otherwise. All machines have this version of Vitreous and
    see the study's folder, and the images, at the same place.
    """
    if limits.deadline < inf:
        raise VitreousError(
            "A limit of time holds on one machine only: leave out --until or --executor ray."
        )
    root = root.expanduser().resolve()
    cells = begin(cells, root)
    for cell in cells:
        with locked(lock(cell, root)):
            pass  # the file is there now, by which workers know the folder
    with _connected(address, workers) as ray:
        gpus = _gpus(ray, device)
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_task)
        here = os.getcwd()
        return Dispatch(
            ray, cells, told, lambda cell: task.remote(cell, root, scale, device, here), root
        ).follow()


@contextlib.contextmanager
def _connected(address: str | None, workers: int) -> Iterator[Any]:
    """Ray, without a word on the terminal."""
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
        "object_store_memory": OBJECTS,
        "include_dashboard": False,
    }
    try:
        _knock(address)
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
        raise VitreousError(f"A Ray cluster {where} ({_last(error)}); {hint}.") from error
    _hush()
    try:
        yield ray
    finally:
        ray.shutdown()


def _hush() -> None:
    """Ray prints a paragraph about each worker that dies, and has no option against it; the study says it itself."""
    with contextlib.suppress(ImportError):
        from ray._private import worker

        worker.print_to_stdstream = lambda *given, **more: None


def _knock(address: str | None) -> None:
    """Whether anybody is there: Ray itself would try for minutes."""
    if address not in (None, "auto"):
        host, _, port = address.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _gpus(ray: Any, device: str) -> int:
    """How many of them a cell takes."""
    if ":" in device:
        raise VitreousError(
            f"Ray gives each cell a GPU, so {device!r} cannot be asked for; say auto, cuda or cpu."
        )
    there = ray.cluster_resources().get("GPU", 0) >= 1
    if device == "cuda" and not there:
        raise VitreousError(
            "The device 'cuda' was asked for and the Ray cluster has no GPU; say auto or cpu."
        )
    return int(there and device != "cpu")


def _task(cell: Cell, root: Path, scale: Scale, device: str, directory: str) -> tuple[State, str]:
    """What a worker does, in the directory where the study was begun, because names of images may count from there."""
    if not lock(cell, root).is_file():
        raise VitreousError(
            f"{socket.gethostname()} does not see the study's folder {str(root)!r}."
        )
    with contextlib.suppress(OSError):
        os.chdir(directory)
    return attempt(cell, root, scale, device)


class Dispatch:
    """Cells on their way through a cluster."""

    def __init__(
        self, ray: Any, cells: Sequence[Cell], told: Told, send: Callable[[Cell], Any], root: Path
    ) -> None:
        self.ray, self.told, self.send, self.root = ray, told, send, root
        self.ours = {cell.key for cell in cells}
        self.waiting = {cell.key: cell for cell in cells}
        self.held: dict[str, Cell] = {}
        """Another process is at them, so they are sent again after a while."""
        self.out: dict[Any, Cell] = {}
        self.deaths = Counter[str]()
        self.report = Report([], {})
        self.shown = ""

    def follow(self) -> Report:
        """Until each is done or has failed. Whatever ends this early, workers save what they are at."""
        try:
            while self.waiting or self.held or self.out:
                self.dispatch()
                self.collect()
        except BaseException:
            self.stop()
            raise
        return self.report

    def dispatch(self) -> None:
        """Send what waits for nothing any more."""
        for cell in list(self.waiting.values()):
            if why := unmet(cell, self.report):
                enter(self.report, self.waiting.pop(cell.key), "failed", why, self.told)
            elif not any(key in self.ours and key not in self.report.done for key in cell.follows):
                self.out[self.send(cell)] = self.waiting.pop(cell.key)
        if self.out and (oldest := next(iter(self.out.values()))).key != self.shown:
            self.shown = oldest.key
            self.told(oldest, "begun")

    def collect(self) -> None:
        """What has come back, or what is held, if nothing came for a while."""
        ready = []
        if self.out:
            ready, _ = self.ray.wait(list(self.out), timeout=WAIT)
        else:
            time.sleep(WAIT)
        if not ready:
            self.waiting |= self.held
            self.held = {}
        for reference in ready:
            self.settle(self.out.pop(reference), reference)

    def settle(self, cell: Cell, reference: Any) -> None:
        """Into the report, or on its way again."""
        errors = self.ray.exceptions
        try:
            state, why = self.ray.get(reference)
        except errors.RayTaskError as error:  # `attempt` lets no failure of a cell through
            raise VitreousError(
                f"A worker of the cluster could not begin: {_last(error)} All machines need this version of Vitreous, "
                f"and see {str(self.root)!r} at the same place."
            ) from error
        except errors.RayError as error:  # the worker is gone, or its machine
            self.deaths[cell.key] += 1
            if self.deaths[cell.key] <= DEATHS:
                self.waiting[cell.key] = cell
                return
            why = note(
                cell,
                self.root,
                f"Its worker died {self.deaths[cell.key]} times. {_last(error)}",
                str(error),
            )
            state = "failed"
        if state == "held":
            self.held[cell.key] = cell
        else:
            enter(self.report, cell, state, why, self.told)

    def stop(self) -> None:
        """Ask workers to stop: a training saves its state."""
        for reference in self.out:
            self.ray.cancel(reference)
        if self.out:
            self.ray.wait(list(self.out), num_returns=len(self.out), timeout=GRACE)


def _last(error: Exception) -> str:
    """What an error of Ray comes down to, as one line."""
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}"
