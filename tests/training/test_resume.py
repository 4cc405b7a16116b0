"""Nothing is lost: a run that is killed at any time ends exactly as one that is not."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from processes import PATIENCE, ended, started
from training.toy import RECIPE, go, images, lines, train_and_die
from vitreous.errors import VitreousError
from vitreous.storage.run_folder import Run
from vitreous.training.loop import Trained
from vitreous.training.step import Step

KILLS = 12


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
    child = started(train_and_die, tmp_path)
    given_up = time.monotonic() + PATIENCE
    while not any(tmp_path.iterdir()):  # until it has begun
        assert time.monotonic() < given_up
        time.sleep(0.005)
    child.join(random.Random(kill).uniform(0.0, 0.9))
    child.kill()
    assert ended(child)[0] in (0, -signal.SIGKILL)
    same(tmp_path, peaceful)


@pytest.mark.parametrize("write", [1, 2, 3, 4, 5, 6, 9])
def test_killed_while_writing(write: int, tmp_path: Path, peaceful: Trained) -> None:
    """The moments that matter most: between a file's last byte and its name."""
    assert ended(started(train_and_die, tmp_path, write)) == [-signal.SIGKILL]
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


def test_the_same_images_under_another_name_resume(tmp_path: Path) -> None:
    """From another current folder, `photos` is called `../photos`."""
    state = go(tmp_path, RECIPE).model.state_dict()
    again = go(tmp_path, RECIPE, data=replace(images(), name="../photos"))
    assert all(torch.equal(state[name], value) for name, value in again.model.state_dict().items())
    other = images()
    with pytest.raises(VitreousError, match=r"data\.fingerprint is"):
        go(tmp_path, RECIPE, data=replace(other, images=255 - other.images))
