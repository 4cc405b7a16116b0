"""Nothing that was seen is lost: an interrupted inspection gives what it has, and goes on to the
same sums."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import vitreous
from measure.looks import Roll, Spread, cnn, images, seen_once, vit
from vitreous.distributed import Processes
from vitreous.errors import VitreousError
from vitreous.measure import engine
from vitreous.measure.partial import Interrupted, Partial, Shards
from vitreous.measure.probe import Sums
from vitreous.measure.streaming import Fetch, Pass
from vitreous.storage.run_folder import Run

SHARD = 25


def look(keep: Path | None = None, **options: Any) -> vitreous.Inspection:
    given = {"probes": [Roll(), Spread()], "shard": SHARD, "device": "cpu", "keep": keep, **options}
    return vitreous.inspect([vit(), cnn()], images(90), **given)


def sums(folder: Path) -> tuple[Sums, list[int]]:
    partial = Partial(None, {})
    partial.read(Run(folder))
    shards = Shards(partial, Processes())
    return shards.sums, sorted(shards.done)


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("peaceful")
    look(folder)
    return folder


def same_sums(one: Path, other: Path) -> None:
    (ours, done), (theirs, all_done) = sums(one), sums(other)
    assert done == all_done == [0, 1, 2, 3]
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def interrupt_in(monkeypatch: pytest.MonkeyPatch, shard: int, how: Any) -> None:
    """When this shard is done, or in the middle of it."""
    passed = Pass._run_shard

    def disturbed(self: Pass, rows: torch.Tensor, *rest: Any) -> Fetch:
        if int(rows[0]) == shard * SHARD:
            how()
        return passed(self, rows, *rest)

    monkeypatch.setattr(Pass, "_run_shard", disturbed)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def press_twice() -> None:
    press_ctrl_c()
    press_ctrl_c()


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("how", "done", "ahead"),
    [
        (press_ctrl_c, 3, False),
        (press_twice, 2, False),
        (interrupt, 2, False),
        (press_ctrl_c, 3, True),
    ],
)
def test_an_interrupted_inspection_has_results_so_far_and_resumes(
    how: Any,
    done: int,
    ahead: bool,
    tmp_path: Path,
    peaceful: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also the shard that a GPU has not handed over when the next one is not begun any more."""
    before = signal.getsignal(signal.SIGINT)
    if ahead:
        monkeypatch.setattr(Pass, "device", torch.device("cpu"))
    interrupt_in(monkeypatch, 2, how)
    with pytest.raises(
        Interrupted, match=f"Stopped after {done} of 4 shards of the images. Run the same"
    ) as caught:
        look(tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    partial = caught.value.inspection
    assert partial is not None
    assert seen_once(partial["roll"], done * SHARD)
    assert partial["spread"].about["data"] | {"fingerprint": ""} == partial["roll"].about[
        "data"
    ] | {"fingerprint": ""}
    assert partial["spread"].about["data"]["images"] == done * SHARD
    assert (partial["spread"].table["n"] == done * SHARD).all()
    monkeypatch.undo()
    passed, shards = Pass.begin, list[int]()

    def counted(self: Pass, number: int, *rest: Any) -> Fetch:
        shards.append(number)
        return passed(self, number, *rest)

    monkeypatch.setattr(Pass, "begin", counted)
    found = look(tmp_path)
    assert shards == list(range(done, 4))
    assert seen_once(found["roll"])
    same_sums(tmp_path, peaceful)
    assert found["spread"].to_frame().equals(look()["spread"].to_frame())


def test_an_interrupt_in_the_last_shard_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_in(monkeypatch, 3, press_ctrl_c)
    assert seen_once(look()["roll"])


def test_an_interrupt_before_the_first_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_in(monkeypatch, 0, interrupt)
    with pytest.raises(
        Interrupted, match=r"^Stopped after 0 of 4 shards of the images\.$"
    ) as caught:
        look()
    assert caught.value.inspection is None


def test_killed_in_the_middle(tmp_path: Path, peaceful: Path) -> None:
    """Not even asked to stop: what was written before is whole."""
    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patch:
            interrupt_in(patch, 2, lambda: os.kill(os.getpid(), signal.SIGKILL))
            look(tmp_path)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert sums(tmp_path)[1] == [0, 1]
    assert seen_once(look(tmp_path)["roll"])
    same_sums(tmp_path, peaceful)


def test_a_finished_inspection_is_not_repeated(
    peaceful: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pass, "begin", lambda *_: pytest.fail("it looks again"))
    assert seen_once(look(peaceful)["roll"])


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"probes": [Spread()]}, "probes.roll is"),
        ({"shard": 30}, "shard is 25 there and 30 here"),
        ({"limit": 50}, "data is"),
    ],
)
def test_another_inspection_does_not_resume_from_the_folder(
    changed: dict[str, Any], sentence: str, peaceful: Path
) -> None:
    with pytest.raises(VitreousError, match="holds another run") as caught:
        look(peaceful, **changed)
    assert sentence in str(caught.value)


def test_adding_is_all_or_nothing() -> None:
    """An interrupt between two additions would leave sums that cover half a shard more than they
    say."""
    kept = Shards(Partial(None, {}), Processes())
    kept.add(0, {"a": torch.ones(1), "b": torch.ones(1)})

    class Disturbed(dict[str, torch.Tensor]):
        def items(self) -> Any:
            yield "a", torch.ones(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.add(1, Disturbed())
    assert kept.done == {0}
    assert kept.sums["a"] == 1


def test_a_folder_that_cannot_be_written_is_noticed_before_the_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(Pass, "begin", lambda *_: pytest.fail("it looks first"))
    with pytest.raises(VitreousError, match="Cannot write"):
        look(tmp_path / "file" / "state")
    assert engine.SHARD["cpu"] == 128
