"""Cells are done once, whoever does them, and a study survives whatever happens to its folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from vitreous import claims
from vitreous.claims.claim import find, judge
from vitreous.claims.reading import load
from vitreous.errors import VitreousError
from vitreous.results import Result
from vitreous.store import Run
from vitreous.studies import executors, running
from vitreous.studies.command import remember
from vitreous.studies.measuring import folder, measure, record
from vitreous.studies.plan import Cell, plan
from vitreous.studies.scales import Scale, scale_named

CLAIMS = [find(claims.every(), each) for each in ("SLC-31", "SLC-33")]


def tiny() -> Scale:
    """A scale at which a training takes a moment."""
    scale = scale_named("sanity")
    short = scale.recipe.but(epochs=1, warmup=0.0, batch=32)
    return replace(scale, recipe=short, images=replace(scale.images, size=64, test_size=32), counts={"erf": 4})


def cells() -> list[Cell]:
    return plan(CLAIMS, tiny(), "world:shapes", [0])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study")
    report = running.run(cells(), root, tiny(), "cpu")
    assert not report.failed
    return root


@pytest.fixture
def copy(done: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done, tmp_path / "study"))


def tables(root: Path) -> dict[str, pd.DataFrame]:
    return {
        f"{path.parent.name}/{path.stem}": Result.load(path).table
        for path in sorted(root.glob("exhibits/*/*.json"))
        if path.name != "exhibit.json"
    }


def equal(one: Path, other: Path) -> None:
    found, wanted = tables(one), tables(other)
    assert found.keys() == wanted.keys()
    for name, table in found.items():
        pd.testing.assert_frame_equal(table, wanted[name])


def test_a_study_can_be_judged(done: Path) -> None:
    verdicts = judge(load(done), CLAIMS)
    assert not any(verdict.missing for verdict in verdicts)


def test_what_is_finished_is_not_done_again(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "do", lambda *given: pytest.fail("It was finished."))
    report = running.run(cells(), done, tiny(), "cpu")
    assert len(report.done) == len(cells())


def test_what_was_deleted_is_done_again_and_comes_out_the_same(copy: Path, done: Path) -> None:
    cell = next(each for each in cells() if each.sittings)
    shutil.rmtree(folder(cell.sittings[0], copy))
    shutil.rmtree(copy / "trainings" / str(next(each.training.key for each in cells() if each.training)))
    for path in list(copy.glob("exhibits/*/erf.json")):
        path.unlink()
    assert len(executors.left(cells(), copy)) >= 2
    running.run(cells(), copy, tiny(), "cpu")
    assert not executors.left(cells(), copy)
    equal(copy, done)


def test_a_second_study_adds_to_what_the_first_has_measured(copy: Path, done: Path) -> None:
    """Where both look at the same model at the same moment, each at something else."""
    sitting = next(s for cell in cells() for s in cell.sittings if s.training and not s.beside)
    measure(replace(sitting, results=("training",)), copy, tiny(), "cpu")
    before, after = (
        json.loads((folder(sitting, root) / "exhibit.json").read_text(encoding="utf-8")) for root in (done, copy)
    )
    assert after["results"].keys() == {*before["results"], "training"}


def test_a_damaged_index_is_named(copy: Path) -> None:
    index = next(iter(copy.glob("exhibits/*/exhibit.json")))
    index.write_text("{", encoding="utf-8")
    with pytest.raises(VitreousError, match="delete the folder"):
        load(copy)
    index.unlink()
    running.run(cells(), copy, tiny(), "cpu")
    assert load(copy).exhibits


def test_a_cell_that_fails_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def do(cell: Cell, *given: object) -> None:
        if cell.training is not None:
            raise VitreousError("The loss is no longer a number.")

    monkeypatch.setattr(running, "do", do)
    report = running.run(cells(), tmp_path, tiny(), "cpu")
    assert report.failed.keys() == {cell.key for cell in cells()}
    assert "waits for" in report.failed[next(cell.key for cell in cells() if cell.training is None)]
    assert "no longer a number" in next(iter((tmp_path / "failed").glob("*.txt"))).read_text(encoding="utf-8")


def test_another_process_has_the_lock(tmp_path: Path) -> None:
    with running.locked(tmp_path / "locks" / "a.lock") as mine:
        assert mine
        with running.locked(tmp_path / "locks" / "a.lock") as again:
            assert not again
    with running.locked(tmp_path / "locks" / "a.lock") as free:
        assert free


def test_two_workers_give_what_one_gives(tmp_path: Path, done: Path) -> None:
    report = executors.processes(cells(), tmp_path, tiny(), "cpu", lambda cell, state: None, workers=2)
    assert not report.failed
    equal(tmp_path, done)


def test_studies_with_other_images_do_not_meet(tmp_path: Path) -> None:
    remember(tmp_path, {"data": "tv:CIFAR10", "scale": "small"})
    remember(tmp_path, {"data": "tv:CIFAR10", "scale": "small"})
    with pytest.raises(VitreousError, match="data='tv:CIFAR10'"):
        remember(tmp_path, {"data": "tv:CIFAR100", "scale": "small"})


def test_the_record_of_a_training_in_rows(done: Path) -> None:
    run = Run(next(iter((done / "trainings").iterdir())))
    table = record(run, "it").table
    records = run.records()
    last = table[(table["measure"] == "test_error")]
    assert last["value"].tolist() == [each["test_error"] for each in records]
    assert json.loads((run.folder / "recipe.json").read_text(encoding="utf-8"))
