"""Two processes see each image once between them and answer as one does, also when one of them has
nothing to see. That torchrun starts such processes is tested with a training."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vitreous
from measure.looks import Roll, Spread, cnn, images, seen_once, vit
from processes import run_two
from vitreous.measure.partial import Interrupted
from vitreous.measure.streaming import Fetch, Pass

COUNTS = (50, 70, 15)
"""Three shards for two processes, the last uneven; four; and one, which leaves a process without
any."""


def look(count: int, keep: Path | None = None) -> vitreous.Inspection:
    """By one process."""
    return vitreous.inspect(
        [vit(), cnn()], images(count), [Roll(), Spread()], shard=20, device="cpu", keep=keep
    )


def begin(keep: Path, shards: int) -> None:
    """An inspection that one process leaves after some shards."""
    passed, left = Pass.begin, [shards]

    def interrupted(self: Pass, *given: Any) -> Fetch:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return passed(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pass, "begin", interrupted)
        with pytest.raises(Interrupted):
            look(70, keep)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes save, which have been told of each other as torchrun tells them."""
    home = tmp_path_factory.mktemp("processes")
    begin(home / "kept-70", shards=1)
    run_two(_inspect, home)
    return home


def _inspect(home: Path) -> None:
    for count in COUNTS:
        found = look(count, home / f"kept-{count}")
        found.save(home / f"{count}-{os.environ['RANK']}")


@pytest.mark.parametrize("count", COUNTS)
def test_two_processes_give_the_result_of_one(count: int, folder: Path) -> None:
    alone = look(count)
    for rank in (0, 1):
        found = vitreous.Inspection.load(folder / f"{count}-{rank}")
        assert seen_once(found["roll"])
        assert found["spread"].about["data"]["images"] == count
        ours, theirs = (each["spread"].table for each in (found, alone))
        assert list(ours["unit"]) == list(theirs["unit"])
        for column in ("value", "low", "high"):
            np.testing.assert_array_equal(ours[column], theirs[column])


def test_each_process_keeps_its_own_shards(folder: Path) -> None:
    """Three shards between two; the first has one, the second its neighbours."""
    names = {path.name for path in (folder / "kept-50").glob("piece-*")}
    assert names == {"piece-0-1.safetensors", "piece-1-1.safetensors", "piece-2-1.safetensors"}
    assert [path.name for path in (folder / "kept-15").glob("piece-*")] == ["piece-0-1.safetensors"]


def test_two_processes_resume_an_inspection_of_one(folder: Path) -> None:
    """The first shard was there; the three others were divided."""
    names = {path.name for path in (folder / "kept-70").glob("piece-*")}
    assert names == {"piece-0-2.safetensors", "piece-2-2.safetensors"}


@pytest.mark.parametrize("lost", ["piece-0-2", "piece-2-2"])
def test_one_process_resumes_an_inspection_of_two(
    lost: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = Path(shutil.copytree(folder / "kept-70", tmp_path / "kept"))
    (keep / f"{lost}.safetensors").unlink()
    passed, seen = Pass.begin, list[int]()

    def counted(self: Pass, number: int, *rest: Any) -> Fetch:
        seen.append(number)
        return passed(self, number, *rest)

    monkeypatch.setattr(Pass, "begin", counted)
    found = look(70, keep)
    first, count = map(int, lost.split("-")[1:])
    assert seen == list(range(first, first + count))
    assert dict(found) == dict(look(70))
