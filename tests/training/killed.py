"""Nothing is lost: a run that is killed at any time ends exactly as one that is not."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from training.toy import RECIPE, go, lines
from vitreous.storage.run_folder import Run
from vitreous.training import loop
from vitreous.training.loop import Trained
from vitreous.training.step import Step

KILLS = 12


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """A fork may not use threads that its parent had."""
    torch.set_num_threads(1)


def in_child(work: Callable[[], object]) -> int:
    """Do it in a fork of this process, which has torch already; its process number."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return child


def ended(child: int) -> int:
    """How a child ended: 0, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def eager() -> None:
    """Save the state after every step, so that there are many places to be killed in."""
    loop.SAVE_EVERY = 0.0


def content(trained: Trained) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in sorted((trained.run.folder / "weights").iterdir())
    }


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return go(tmp_path_factory.mktemp("peaceful"))


def same(folder: Path, peaceful: Trained) -> None:
    """Compare a finished folder with the undisturbed run, bit by bit."""
    again = go(folder)
    assert content(again) == content(peaceful)
    assert lines(again) == lines(peaceful)
    assert sorted(path.name for path in folder.rglob("*.part")) == []


@pytest.mark.parametrize("kill", range(KILLS))
def test_killed_at_a_random_moment(kill: int, tmp_path: Path, peaceful: Trained) -> None:
    def work() -> None:
        eager()
        go(tmp_path)

    child = in_child(work)
    deadline = time.monotonic() + random.Random(kill).uniform(0.02, 0.9)
    while time.monotonic() < deadline and not os.waitid(
        os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
    ):
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    assert ended(child) in (0, -signal.SIGKILL)
    same(tmp_path, peaceful)


@pytest.mark.parametrize("write", [1, 2, 3, 4, 5, 6, 9])
def test_killed_while_writing(write: int, tmp_path: Path, peaceful: Trained) -> None:
    """The moments that matter most: between a file's last byte and its name."""

    def work() -> None:
        eager()
        left, fsync = [write], os.fsync  # of the child alone

        def fatal(fd: Any) -> None:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            fsync(fd)

        os.fsync = fatal
        go(tmp_path)

    assert ended(in_child(work)) == -signal.SIGKILL
    same(tmp_path, peaceful)


def test_interrupted_and_resumed(
    tmp_path: Path, peaceful: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C finishes the step, saves it and stops; the same call resumes from there."""
    step, count = Step.__call__, [0]

    def interrupted(self: Step, *given: object) -> None:
        step(self, *given)  # type: ignore[arg-type]
        count[0] += 1
        if count[0] == 6:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Step, "__call__", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    assert Run(tmp_path).load("state.safetensors")[1]["step"] == 6
    monkeypatch.undo()
    same(tmp_path, peaceful)


def test_a_finished_run_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = go(tmp_path)
    stamp = first.run.state.stat().st_mtime_ns
    monkeypatch.setattr(Step, "__call__", lambda *_: pytest.fail("it trains again"))
    again = go(tmp_path)
    assert again.records == first.records
    assert again.run.state.stat().st_mtime_ns == stamp
    ours, theirs = again.model.state_dict(), first.model.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_another_seed_is_another_run(tmp_path: Path, peaceful: Trained) -> None:
    assert content(go(tmp_path, seed=1)) != content(peaceful)


def test_the_state_alone_decides(tmp_path: Path, peaceful: Trained) -> None:
    """Lines written after the state, by a process that died in between, are cut."""
    go(tmp_path, RECIPE)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 99}\n{"half a li')
    same(tmp_path, peaceful)
