"""The search of AlterNet follows its rule, on images not trained on, and resumes."""

from __future__ import annotations

import csv
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from vitreous.cli import main
from vitreous.data import load
from vitreous.errors import VitreousError
from vitreous.models.loading import model_of_run
from vitreous.storage.run_folder import Run
from vitreous.studies import run_cells, run_study
from vitreous.studies.alternet_search import (
    HELD_OUT,
    BuildUp,
    Placement,
    _step_table,
    max_candidates,
    search,
)
from vitreous.studies.facts_to_training import training_for
from vitreous.studies.measuring import load_split
from vitreous.studies.plan import Cell
from vitreous.studies.run_cells import Report
from vitreous.studies.scales import Scale, scale_named
from vitreous.training.evaluate import evaluate

FIG_12A: dict[Placement, float] = {
    (0, 0, 0, 0): 82.48, (0, 0, 0, 1): 83.45, (0, 0, 0, 2): 83.66, (0, 0, 1, 2): 83.77,
    (0, 0, 2, 2): 83.52,
    (0, 1, 1, 2): 84.02, (0, 2, 1, 2): 83.39, (1, 1, 1, 2): 83.80, (0, 1, 2, 2): 83.19,
}  # fmt: skip
"""Accuracy of Alter-ResNet-50 on CIFAR-100 (HDV-43)."""


def test_the_papers_accuracies_lead_to_the_papers_network() -> None:
    found = search((3, 4, 6, 5), FIG_12A)
    assert found.next is None
    assert found.best == (0, 1, 1, 2)
    assert [tried.placement for tried in found.tried if not tried.kept] == [
        (0, 0, 2, 2),
        (0, 2, 1, 2),
        (1, 1, 1, 2),
    ]
    assert [tried.against for tried in found.tried][4:6] == [(0, 0, 1, 2)] * 2


def by_hand(
    lengths: Sequence[int], scores: Mapping[Placement, float]
) -> tuple[list[Placement], Placement]:
    """The rule written out on letters: the last convolution of a stage, or the one before its
    attention blocks, becomes attention; without improvement it is undone, and the previous stage is
    next."""
    stages = ["c" * length for length in lengths]

    def counts() -> Placement:
        return tuple(stage.count("m") for stage in stages)

    visited = [counts()]
    for place in range(len(stages) - 1, -1, -1):
        while True:
            before, free = counts(), len(stages[place]) - 2 * stages[place].count("m")
            if free < 2:
                break
            kept_letters = stages[place]
            stages[place] = "c" * (free - 2) + "cm" + kept_letters[free:]
            visited.append(counts())
            if scores[counts()] <= scores[before]:
                stages[place] = kept_letters
                break
    return visited, counts()


def test_the_rule_against_one_written_out() -> None:
    drawn = random.Random(0)
    for _ in range(200):
        lengths = [drawn.randint(1, 6) for _ in range(drawn.randint(1, 4))]
        scores = {
            placement: drawn.choice([0.1, 0.2, 0.3, 0.4, 0.5]) for placement in every(lengths)
        }
        visited, best = by_hand(lengths, scores)
        found = search(lengths, scores)
        assert [tried.placement for tried in found.tried] == visited
        assert (found.best, found.next) == (best, None)
        assert len(visited) <= max_candidates(lengths)


def every(lengths: Sequence[int]) -> list[Placement]:
    found: list[Placement] = [()]
    for length in lengths:
        found = [(*rest, count) for rest in found for count in range(length // 2 + 1)]
    return found


def test_what_comes_next_follows_from_what_is_known() -> None:
    """Step by step it is the same search; scores of other networks are never read."""
    known: dict[Placement, float] = {(0, 1, 2, 2): 99.0}
    for placement in (tried.placement for tried in search((3, 4, 6, 5), FIG_12A).tried):
        found = search((3, 4, 6, 5), known)
        assert found.next == placement
        known[placement] = FIG_12A[placement]
    assert max_candidates((3, 4, 6, 5)) == len(
        search((3, 4, 6, 5), {each: sum(each) for each in every((3, 4, 6, 5))}).tried
    )


def tiny() -> Scale:
    scale = scale_named("sanity")
    short = scale.recipe.but(epochs=1, warmup=0.0, batch=32)
    return replace(scale, recipe=short, images=replace(scale.images, size=160, test_size=48))


def tiny_search(root: Path) -> BuildUp:
    return BuildUp(tiny(), "world:shapes", (0, 1), root)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("built")
    tiny_search(root).follow(lambda cells: run_cells.run_cells(cells, root, tiny(), "cpu"))
    return root


def test_images_held_out_are_neither_trained_on_nor_test_images() -> None:
    training = tiny_search(Path()).cells((0, 0, 0))[0].training
    assert training is not None
    given = training.images
    parts = [load_split(given, split).images.flatten(1) for split in ("train", "held_out", "test")]
    rows = [{bytes(row.numpy()) for row in part} for part in parts]
    whole = {
        bytes(row.numpy()) for row in load("world:shapes", size=160, image=16).images.flatten(1)
    }
    assert rows[0] | rows[1] == whole
    assert not rows[0] & rows[1]
    assert not rows[1] & rows[2]
    assert len(parts[1]) == pytest.approx(
        HELD_OUT * 160, abs=len(load("world:shapes", size=1).classes)
    )
    ordinary = training_for({"model": "alternet", "msas": "0,0,0"}, tiny(), "world:shapes")
    assert ordinary.images.held_out == 0
    assert ordinary.key != training.key


def test_scores_are_accuracies_on_the_images_held_out(done: Path) -> None:
    """As the trained networks themselves say."""
    found = tiny_search(done).state()
    assert found.next is None
    for tried in found.tried:
        right: dict[str, list[float]] = {"held_out": [], "test": []}
        for cell in tiny_search(done).cells(tried.placement):
            assert cell.training is not None
            run = Run(done / "trainings" / cell.training.key)
            model = model_of_run(run, "final")
            for split, values in right.items():
                data = load_split(cell.training.images, split)
                data = replace(
                    data,
                    mean=tuple(run.identity["data"]["mean"]),
                    std=tuple(run.identity["data"]["std"]),
                )
                values.append(100 - 100 * evaluate(model, data)["test_error"])
        assert tried.score == pytest.approx(sum(right["held_out"]) / 2)
        table = tiny_search(done).outcome(found).table
        noted = table[
            (table["attention"] == ",".join(map(str, tried.placement)))
            & (table["images"] == "test")
        ]
        assert noted["value"].item() == pytest.approx(sum(right["test"]) / 2)
        assert noted["low"].item() <= noted["value"].item() <= noted["high"].item()


def test_an_interrupted_search_resumes(done: Path, tmp_path: Path) -> None:
    """It does again what it was at, nothing before, and ends where the other did."""
    asked: list[list[str]] = []

    def work(cells: Sequence[Cell]) -> Report:
        if len(asked) == 2:
            run_cells.run_cells(cells[:1], tmp_path, tiny(), "cpu")
            asked.append([])
            raise KeyboardInterrupt
        asked.append([cell.key for cell in cells])
        return run_cells.run_cells(cells, tmp_path, tiny(), "cpu")

    with pytest.raises(KeyboardInterrupt):
        tiny_search(tmp_path).follow(work)
    assert (
        len(tiny_search(tmp_path).state().tried) == 2
    )  # a candidate with one of its two seeds has no score
    found = tiny_search(tmp_path).follow(work)
    keys = [key for step in asked for key in step]
    assert len(set(keys)) == len(keys)
    assert found == tiny_search(done).state()


def test_a_candidate_that_fails_stops_the_search(tmp_path: Path) -> None:
    def work(cells: Sequence[Cell]) -> Report:
        return Report([], {cells[0].key: "The loss is no longer a number."})

    with pytest.raises(VitreousError, match=r"without attention 0,0,0, .* no longer a number"):
        tiny_search(tmp_path).follow(work)


def typed(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["study", *words])
    return int(stopped.value.code or 0)


def test_as_a_command(
    done: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(run_study, "scale_named", lambda name: tiny())
    assert typed("build-up", "--seeds", "2", "--dry-run", "--out", str(tmp_path / "none")) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "AlterNet, attention 0,0,0" in said
    assert "at most 5 in all, each trained 2 times" in said
    assert not (tmp_path / "none").exists()
    assert typed("build-up", "--seeds", "2", "--out", str(done)) == 0
    said = " ".join(capsys.readouterr().out.split())
    outcome = tiny_search(done).outcome(tiny_search(done).state())
    assert _step_table(outcome).row_count == outcome.table["step"].nunique()
    assert f"Best: attention {','.join(map(str, tiny_search(done).state().best or ()))}." in said
    with (done / "build_up.csv").open(encoding="utf-8") as file:
        assert [float(row["value"]) for row in csv.DictReader(file)] == outcome.table[
            "value"
        ].tolist()
    assert "<svg" in (done / "build_up.svg").read_text(encoding="utf-8")
    assert typed("build-up", "--seeds", "2", "--dry-run", "--out", str(done)) == 0
    assert "The search has ended" in capsys.readouterr().out


def test_a_name_nearby(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("buildup", "--dry-run") == 2
    assert "Did you mean build-up?" in " ".join(capsys.readouterr().err.split())
