"""Cells are done once, whoever does them, and a study survives whatever happens to its folder."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from threadpoolctl import threadpool_info

from studies.tiny import CLAIMS, cells, equal, tiny
from vitreous import claims
from vitreous.claims.book import find_claim
from vitreous.claims.facts import describe_facts
from vitreous.claims.loading import load_evidence, load_item
from vitreous.claims.verdicts import judge
from vitreous.errors import VitreousError
from vitreous.storage.atomic_files import read_json
from vitreous.storage.fingerprints import checksum
from vitreous.storage.run_folder import Run
from vitreous.studies import cell_records, run_cells
from vitreous.studies.measuring import evidence_folder, measure_item, training_result
from vitreous.studies.plan import Cell, plan
from vitreous.studies.run_study import check_settings


@pytest.fixture
def copy(done: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(done, tmp_path / "study"))


def test_a_study_can_be_judged(done: Path) -> None:
    verdicts = judge(load_evidence(done), CLAIMS)
    assert not any(verdict.missing for verdict in verdicts)


def test_finished_cells_are_not_run_again(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_cells, "do_cell", lambda *given: pytest.fail("It was finished."))
    report = run_cells.run_cells(cells(), done, tiny(), "cpu")
    assert len(report.done) == len(cells())


def test_what_was_deleted_is_done_again_and_comes_out_the_same(copy: Path, done: Path) -> None:
    cell = next(each for each in cells() if each.items)
    shutil.rmtree(evidence_folder(cell.items[0], copy))
    shutil.rmtree(
        copy / "trainings" / str(next(each.training.key for each in cells() if each.training))
    )
    for path in list(copy.glob("exhibits/*/erf.json")):
        path.unlink()
    assert len(run_cells.unfinished_cells(cells(), copy)) >= 2
    run_cells.run_cells(cells(), copy, tiny(), "cpu")
    assert not run_cells.unfinished_cells(cells(), copy)
    equal(copy, done)


def test_a_second_study_adds_to_what_the_first_has_measured(copy: Path, done: Path) -> None:
    """Where both look at the same model at the same checkpoint, each at something else."""
    item = next(s for cell in cells() for s in cell.items if s.training and not s.beside)
    measure_item(replace(item, results=("training",)), copy, tiny(), "cpu")
    before, after = (
        json.loads((evidence_folder(item, root) / "exhibit.json").read_text(encoding="utf-8"))
        for root in (done, copy)
    )
    assert after["results"].keys() == {*before["results"], "training"}


def test_a_study_of_an_older_version_is_continued_in_its_words(copy: Path) -> None:
    """It called checkpoints moments: its folders are found, and a folder keeps its name for the
    network, by which all its results are read."""
    cell = next(each for each in cells() if each.training and each.items)
    item = replace(cell.items[0], facts={**cell.items[0].facts, "checkpoint": "66"})
    home = evidence_folder(item, copy)
    facts = describe_facts(item.facts).replace("checkpoint=", "moment=")
    assert home.name == checksum([facts, [cell.key]])[:12]
    measure_item(replace(item, results=("training",), called="older"), copy, tiny(), "cpu")
    measure_item(replace(item, results=("cost",)), copy, tiny(), "cpu")
    index = read_json(home / "exhibit.json")
    assert (index["name"], index["results"].keys()) == ("older", {"training", "cost"})
    assert [len(load_item(home).rows(name)) > 0 for name in index["results"]] == [True, True]


def test_a_network_is_tuned_on_other_classes_than_it_was_trained_on(tmp_path: Path) -> None:
    """Four motifs of SYN-B, then the five classes of SYN-E: the whole network, or its head."""
    scale = tiny()
    scale = replace(
        scale,
        finetune=scale.finetune.but(steps=2, warmup_steps=0),
        images=replace(scale.images, size=120),
    )
    claim = find_claim(claims.every_claim(), "SLC-30")
    every = plan([claim], scale, "world:shapes", [0])
    assert not run_cells.run_cells(every, tmp_path, scale, "cpu").failed
    before, *after = [Run(tmp_path / "trainings" / cell.key) for cell in every]
    assert len(before.identity["data"]["classes"]) == 4
    assert [len(run.identity["data"]["classes"]) for run in after] == [5, 5]
    (verdict,) = judge(load_evidence(tmp_path), [claim])
    assert verdict.measured
    assert verdict.outcome != "not testable here"


def test_a_training_that_was_killed_between_its_last_weights_and_its_last_line(
    tmp_path: Path, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = next(each for each in cells() if each.training and not each.items)
    append = Run.append

    def killed(run: Run, record: dict[str, object]) -> None:
        if record["step"]:
            raise KeyboardInterrupt
        append(run, record)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "append", killed)
        with pytest.raises(KeyboardInterrupt):
            run_cells.run_cells([cell], tmp_path, tiny(), "cpu")
    run, wanted = (Run(root / "trainings" / cell.key) for root in (tmp_path, done))
    assert run.weights()[0].is_file()
    assert not run_cells.is_finished(cell, tmp_path)
    run_cells.run_cells([cell], tmp_path, tiny(), "cpu")
    assert run_cells.is_finished(cell, tmp_path)
    assert [each["step"] for each in run.records()] == [each["step"] for each in wanted.records()]
    assert run.weights()[0].read_bytes() == wanted.weights()[0].read_bytes()
    run.weights()[0].write_bytes(b"damaged")
    assert not run_cells.is_trained(cell.key, tmp_path)
    run_cells.run_cells([cell], tmp_path, tiny(), "cpu")
    assert run.weights()[0].read_bytes() == wanted.weights()[0].read_bytes()


@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"damaged")]
)
def test_a_lost_checkpoint_that_is_to_be_measured_is_trained_again(
    damage: Callable[[Path], None], copy: Path, done: Path
) -> None:
    """It is nowhere else; others of the same training that need no measuring stay as they are."""
    cell = next(each for each in cells() if each.training and each.items)
    assert cell.training is not None
    item = replace(
        cell.items[0], facts={**cell.items[0].facts, "checkpoint": "start"}, results=("training",)
    )
    assert item.checkpoint == "initial"
    damage(copy / "trainings" / cell.key / "weights" / "initial.safetensors")
    run_cells.do_cell(replace(cell, items=(item,)), copy, tiny(), "cpu")
    equal_weights = [
        root / "trainings" / cell.key / "weights" / "initial.safetensors" for root in (copy, done)
    ]
    assert equal_weights[0].read_bytes() == equal_weights[1].read_bytes()


def test_a_damaged_index_is_named(copy: Path) -> None:
    index = next(iter(copy.glob("exhibits/*/exhibit.json")))
    index.write_text("{", encoding="utf-8")
    with pytest.raises(VitreousError, match="the same study measures it again"):
        load_evidence(copy)
    run_cells.run_cells(cells(), copy, tiny(), "cpu")
    assert load_evidence(copy).items


def test_a_cell_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def do(cell: Cell, *given: object) -> None:
        if cell.training is not None:
            raise VitreousError("The loss is no longer a number.")

    monkeypatch.setattr(run_cells, "do_cell", do)
    report = run_cells.run_cells(cells(), tmp_path, tiny(), "cpu")
    assert report.failed.keys() == {cell.key for cell in cells()}
    assert "waits for" in report.failed[next(cell.key for cell in cells() if cell.training is None)]
    assert "no longer a number" in next(iter((tmp_path / "failed").glob("*.txt"))).read_text(
        encoding="utf-8"
    )


def broken(error: Exception) -> Callable[..., None]:
    """All trainings but the first fail so."""

    def do(cell: Cell, *given: object) -> None:
        if cell.training is not None and cell.key != cells()[0].key:
            raise error

    return do


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA: no\nroom"), OSError(28, "No space left on device")]
)
def test_an_unexpected_failure_does_not_stop_other_cells(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_cells, "do_cell", broken(error))
    report = run_cells.run_cells(cells(), tmp_path, tiny(), "cpu")
    assert report.done == [cells()[0].key]
    assert report.failed[cells()[1].key] == " ".join(f"{type(error).__name__}: {error}".split())
    assert "Traceback" in (tmp_path / "failed" / f"{cells()[1].key}.txt").read_text(
        encoding="utf-8"
    )


def test_no_room_even_for_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failed").write_text("no folder", encoding="utf-8")
    monkeypatch.setattr(run_cells, "forget_failure", lambda *given: None)
    monkeypatch.setattr(run_cells, "do_cell", broken(OSError("No space left on device")))
    assert len(run_cells.run_cells(cells(), tmp_path, tiny(), "cpu").failed) == len(cells()) - 1


def test_a_lost_gpu_ends_the_study_and_its_cell_comes_last_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_cells, "do_cell", broken(torch.AcceleratorError("device-side assert")))
    with pytest.raises(
        VitreousError, match=f"failed at cell {cells()[1].key}.*device-side assert.*tries this one"
    ):
        run_cells.run_cells(cells(), tmp_path, tiny(), "cpu")
    again = run_cells.retry_order(cells(), tmp_path)
    assert [cell.key for cell in again] == [
        cell.key for cell in (*cells()[:1], *cells()[2:], cells()[1])
    ]
    assert not list((tmp_path / "failed").iterdir())


def test_a_cell_that_failed_in_another_worker_is_retried_by_the_next_study_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    monkeypatch.setattr(run_cells, "do_cell", lambda cell, *given: tried.append(cell.key))
    cell = cells()[0]
    cell_records.note_failure(cell, tmp_path, "The loss is no longer a number.", "more")
    assert run_cells.share_cells([cell], tmp_path, tiny(), "cpu").failed == {
        cell.key: "The loss is no longer a number."
    }
    assert not tried
    assert run_cells.run_cells([cell], tmp_path, tiny(), "cpu").done == [cell.key] == tried


def test_seeds_of_one_configuration_are_trained_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ends where it ends alone, and says with whom it shared its steps."""
    short = replace(tiny(), recipe=tiny().recipe.but(**{"model.depth": 1}))
    planned = plan([find_claim(claims.every_claim(), "SLC-31")], short, "world:shapes", [0, 1])
    vits = [replace(c, items=()) for c in planned if c.training and "vit" in c.training.model]
    assert len(vits) == 2
    run_cells.run_cells(vits, tmp_path / "alone", short, "cpu")
    monkeypatch.setattr(run_cells, "train", lambda *a, **k: pytest.fail("It was trained alone."))
    report = run_cells.run_cells(
        vits, tmp_path / "both", short, "cpu", limits=run_cells.Limits(stack=True)
    )
    assert report.done == [cell.key for cell in vits]
    for cell in vits:
        both, alone = (Run(tmp_path / each / "trainings" / cell.key) for each in ("both", "alone"))
        assert read_json(both.folder / "environment.json")["stacked_seeds"] == [0, 1]
        for name, tensor in both.read_weights()[0].items():
            torch.testing.assert_close(tensor, alone.read_weights()[0][name], atol=1e-5, rtol=1e-4)


def test_a_cell_that_would_end_after_the_deadline_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is one that waits for it; a shorter one is."""
    tried: list[str] = []
    monkeypatch.setattr(run_cells, "do_cell", lambda cell, *given: tried.append(cell.key))
    monkeypatch.setattr(run_cells, "is_trained", lambda key, root: key in tried)
    pair = next(cell for cell in cells() if cell.training is None)
    short, long = (cell for cell in cells() if cell.key in pair.follows)
    limits = run_cells.Limits(time.time() + 3600, {short.key: 60.0, long.key: 1e6})
    report = run_cells.run_cells([short, long, pair], tmp_path, tiny(), "cpu", limits=limits)
    assert tried == report.done == [short.key]
    assert report.left == [long.key, pair.key]
    assert not report.failed


def test_every_cell_runs_on_one_thread_with_its_own_random_numbers() -> None:
    drawn = []
    torch.set_num_threads(2)
    try:
        for _ in range(2):
            before = torch.rand(1)
            with run_cells.reproducible(3):
                drawn.append(torch.rand(1))
                assert torch.get_num_threads() == 1
                assert {each["num_threads"] for each in threadpool_info()} == {1}
            assert torch.get_num_threads() == 2
            assert before != torch.rand(1)
    finally:
        torch.set_num_threads(1)
    assert drawn[0] == drawn[1] == torch.rand(1, generator=torch.Generator().manual_seed(3))


def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is there while somebody works stands for the lock."""

    def flock(handle: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with (
        caplog.at_level(logging.WARNING, "vitreous"),
        cell_records.try_lock(tmp_path / "locks" / "a.lock") as mine,
    ):
        assert mine
        assert "on a file system without locks" in caplog.text
        with cell_records.try_lock(tmp_path / "locks" / "a.lock") as again:
            assert not again
    with cell_records.try_lock(tmp_path / "locks" / "a.lock") as free:
        assert free


def test_another_process_has_the_lock(tmp_path: Path) -> None:
    with cell_records.try_lock(tmp_path / "locks" / "a.lock") as mine:
        assert mine
        with cell_records.try_lock(tmp_path / "locks" / "a.lock") as again:
            assert not again
    with cell_records.try_lock(tmp_path / "locks" / "a.lock") as free:
        assert free


def test_studies_with_other_images_do_not_meet(tmp_path: Path) -> None:
    check_settings(tmp_path, {"data": "tv:CIFAR10", "scale": "small"})
    check_settings(tmp_path, {"data": "tv:CIFAR10", "scale": "small"})
    with pytest.raises(VitreousError, match="data='tv:CIFAR10'"):
        check_settings(tmp_path, {"data": "tv:CIFAR100", "scale": "small"})


def test_the_record_of_a_training_in_rows(done: Path) -> None:
    run = Run(next(iter((done / "trainings").iterdir())))
    table = training_result(run, "it").table
    records = run.records()
    last = table[(table["measure"] == "test_error")]
    assert last["value"].tolist() == [each["test_error"] for each in records]
    assert json.loads((run.folder / "recipe.json").read_text(encoding="utf-8"))
