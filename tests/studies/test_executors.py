"""Workers on one machine: the others do the cell of one that is killed, and nothing twice."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from processes import started
from studies.killing import alive, at_work, files, until
from studies.tiny import cells, equal, tiny
from vitreous.studies import executors, run_cells
from vitreous.studies.run_study import choose_executor


def test_two_workers_give_what_one_gives(tmp_path: Path, done: Path) -> None:
    report = executors.run_processes(
        cells(), tmp_path, tiny(), "cpu", run_cells.ignore_state, workers=2
    )
    assert not report.failed
    equal(tmp_path, done)


def test_helpers_are_killed(tmp_path: Path, done: Path) -> None:
    draws = random.Random(0)
    for _ in range(3):
        helper = started(
            executors._run_helper, cells(), tmp_path, tiny(), "cpu", run_cells.NO_LIMITS
        )
        until(lambda: at_work(tmp_path) or not helper.is_alive())  # noqa: B023 - called at once
        time.sleep(draws.uniform(0, 1.5))
        helper.kill()
        helper.join()
        assert helper.exitcode in (0, -signal.SIGKILL)  # no error ended it
        before = files(cells(), tmp_path)
    assert not run_cells.run_cells(cells(), tmp_path, tiny(), "cpu").failed
    assert before.items() <= files(cells(), tmp_path).items()
    equal(tmp_path, done)


def _parent(root: Path) -> None:
    """Starts two helpers in a process that may be killed and that may have children."""
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    context = multiprocessing.get_context("fork")
    helpers = [context.Process(target=_busy, args=(root, how)) for how in ("stop", "go on")]
    for helper in helpers:
        helper.start()
    time.sleep(600)


def _busy(root: Path, how: str) -> None:
    """A helper at work; one obeys when it is asked to stop, one does not."""
    executors.GRACE = 1.0
    executors.end_with_parent()
    if how == "go on":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (root / str(os.getpid())).touch()
    while True:
        sum(range(1000))


def test_helpers_end_with_the_process_that_began_them(tmp_path: Path) -> None:
    """Killed, it cannot tell them; nobody goes on computing for nobody."""
    parent = started(_parent, tmp_path)
    until(lambda: len(list(tmp_path.iterdir())) == 2)
    helpers = [int(path.name) for path in tmp_path.iterdir()]
    assert all(map(alive, helpers))
    parent.kill()
    parent.join()
    until(lambda: not any(map(alive, helpers)))


def test_every_helper_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(executors, "end_with_parent", lambda: order.append("watch"))
    monkeypatch.setattr(executors, "share_cells", lambda *given: order.append("work"))
    executors._run_helper([], tmp_path, tiny(), "cpu", run_cells.NO_LIMITS)
    assert order == ["watch", "work"]


def test_who_does_the_cells() -> None:
    assert choose_executor("processes", 1, None) is run_cells.run_cells
    assert choose_executor("processes", 2, None).func is executors.run_processes  # type: ignore[attr-defined]
    assert choose_executor("ray", 2, "auto").keywords == {"workers": 2, "address": "auto"}  # type: ignore[attr-defined]


def test_as_many_workers_as_the_machine_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 5}, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert [executors.default_workers(device) for device in ("auto", "cpu", "mps")] == [3, 3, 1]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [executors.default_workers(device) for device in ("auto", "cuda", "cuda:1", "cpu")] == [
        2,
        2,
        1,
        3,
    ]
