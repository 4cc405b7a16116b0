"""Damage is healed, to the same numbers, or named in one sentence: every file of a run, of results,
of what an interrupted inspection or analysis has left, and of a study."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import vitreous
from measure.analyses.test_engine import Brightness, Tiny, data
from measure.looks import Roll, Spread, cnn, images
from results.conftest import filters
from spoiling import Damage, Outcomes, damages, spoiled
from studies.tiny import CLAIMS, cells, equal, tiny
from training.toy import RECIPE, go, lines
from training.toy import images as toy_images
from vitreous.claims.loading import load_evidence as evidence
from vitreous.claims.verdicts import judge
from vitreous.config import Augment
from vitreous.measure.inspection import Inspection
from vitreous.models import loading
from vitreous.results import Result
from vitreous.storage.atomic_files import read_json
from vitreous.studies import run_cells, run_study
from vitreous.training import loop
from vitreous.training.loop import Trained
from vitreous.training.step import Step

SHORT = RECIPE.but(epochs=2, ema=None, keep="checkpoints", augment=Augment(crop="none", flip=0.0))


def train(folder: Path, seed: int = 0) -> Trained:
    return go(folder, SHORT, seed=seed, data=toy_images(32), test=toy_images(8, "test"))


def stop_after(steps: int, folder: Path, seed: int = 0) -> Path:
    """A training that was interrupted, which leaves a state and the one before."""
    taken, count = Step.__call__, [0]

    def interrupted(self: Step, *given: Any) -> None:
        if count[0] == steps:
            raise KeyboardInterrupt
        count[0] += 1
        taken(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "__call__", interrupted)
        patch.setattr(loop, "SAVE_EVERY", 0.0)
        with pytest.raises(KeyboardInterrupt):
            train(folder, seed)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def trained(home: Path) -> Trained:
    return train(home / "trained")


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


def same_training(folder: Path, wanted: Trained) -> bool:
    """Trained to the end, from wherever it is, and read back."""
    again = train(folder)
    final = "weights/final.safetensors"
    return (
        lines(again) == lines(wanted)
        and same_weights(again.model, wanted.model)
        and same_weights(loading.load_model(f"run:{folder}"), wanted.model)
        and (folder / final).read_bytes() == (wanted.run.folder / final).read_bytes()
    )


def test_a_finished_run(home: Path, trained: Trained, tmp_path: Path) -> None:
    other, outcomes, opened = train(home / "another seed", seed=1), Outcomes(), Outcomes()
    for damage in damages(trained.run.folder, {"another run": other.run.folder}):
        folder = spoiled(trained.run.folder, damage, tmp_path / "copy")
        opened.try_(
            damage,
            lambda: same_weights(loading.load_model(f"run:{folder}"), trained.model),  # noqa: B023
        )
        outcomes.try_(damage, lambda: same_training(folder, trained))  # noqa: B023
    outcomes.check(100)
    opened.check(100)
    lost = [damage for damage in outcomes.named if "recipe.json" not in damage]
    assert not lost, "all but another run's recipe can be restored"


def test_a_run_that_was_interrupted(home: Path, trained: Trained, tmp_path: Path) -> None:
    begun = stop_after(3, home / "begun")
    other = stop_after(3, home / "another begun", seed=1)
    assert (begun / "previous.safetensors").is_file()
    outcomes = Outcomes()
    for damage in damages(begun, {"another run": other}):
        folder = spoiled(begun, damage, tmp_path / "copy")
        outcomes.try_(damage, lambda: same_training(folder, trained))  # noqa: B023
    outcomes.check(100)
    assert not [damage for damage in outcomes.named if "recipe.json" not in damage]


def test_another_training_never_resumes_from_it(
    home: Path, trained: Trained, tmp_path: Path
) -> None:
    """Whatever happened to its recipe."""
    begun = stop_after(3, home / "for others")
    for damage in damages(begun, files="recipe.json"):
        folder = spoiled(begun, damage, tmp_path / "copy")
        with pytest.raises(vitreous.VitreousError, match="holds another run"):
            train(folder, seed=1)


@pytest.fixture(scope="module")
def look(home: Path) -> Inspection:
    """Results with tables and with arrays."""
    found = vitreous.inspect({"a": cnn()}, images(20), [Spread(), Roll()], device="cpu")
    return Inspection({**found, "filters": filters()}, found.left_out, found.anatomies)


def test_results(look: Inspection, tmp_path: Path) -> None:
    folder = look.save(tmp_path / "results")
    other = vitreous.inspect({"a": cnn()}, images(24), [Spread(), Roll()], device="cpu", seed=1)
    theirs = Inspection({**other, "filters": filters()}).save(tmp_path / "other")
    together, alone, read = Outcomes(), Outcomes(), Outcomes()
    for damage in damages(folder, {"another inspection": theirs}):
        copy = spoiled(folder, damage, tmp_path / "copy")
        together.try_(damage, lambda: same_inspection(Inspection.load(copy), look))  # noqa: B023

        def stored_results(copy: Path = copy) -> bool:
            return {**evidence(copy, {"a": "resnet"}).items[0].results}.items() <= dict(
                look
            ).items()

        read.try_(damage, stored_results)
        for name, wanted in look.items():
            if damage.file.startswith(f"{name}.") and "swapped" not in damage.what:
                alone.try_(damage, lambda: Result.load(copy / f"{name}.json") == wanted)  # noqa: B023
    together.check(100)
    read.check(100)
    alone.check(80)
    read_together = [
        *folder.glob("*.parquet"),
        *folder.glob("*.safetensors"),
        folder / "inspection.json",
    ]
    assert {damage.split(": ")[1] for damage in together.named} == {
        path.name for path in read_together
    }


def same_inspection(found: Inspection, wanted: Inspection) -> bool:
    return (
        dict(found) == dict(wanted)
        and found.anatomies == wanted.anatomies
        and found.left_out == wanted.left_out
    )


def test_an_interrupted_inspection(tmp_path: Path) -> None:
    opened = vitreous.open(cnn())

    def inspect(keep: Path | None, seed: int = 0) -> Inspection:
        return vitreous.inspect(
            {"a": opened},
            images(50),
            [Spread(), Roll()],
            shard=10,
            device="cpu",
            keep=keep,
            seed=seed,
        )

    wanted = inspect(tmp_path / "kept")
    inspect(tmp_path / "other", seed=1)
    for folder in (tmp_path / "kept", tmp_path / "other"):
        assert len(list(folder.glob("piece-*"))) == 2  # shards 0 to 3 as one, and the fifth
    outcomes = Outcomes()
    for damage in damages(tmp_path / "kept", {"another inspection": tmp_path / "other"}):
        copy = spoiled(tmp_path / "kept", damage, tmp_path / "copy")
        outcomes.try_(damage, lambda: same_inspection(inspect(copy), wanted))  # noqa: B023
    outcomes.check(40)
    assert all("recipe.json" in damage for damage in outcomes.named)


def test_an_interrupted_analysis(tmp_path: Path) -> None:
    torch.manual_seed(0)
    opened = {"a": vitreous.open(Tiny(), image=32), "b": vitreous.open(Tiny(), image=32)}

    def analyse(keep: Path, seed: int = 0) -> Result:
        return vitreous.analyse(opened, data(4), [Brightness()], keep=keep, seed=seed)["brightness"]

    wanted = analyse(tmp_path / "kept")
    analyse(tmp_path / "other", seed=1)
    folder = tmp_path / "kept" / "brightness"
    assert len(list(folder.glob("piece-*"))) == 6
    outcomes = Outcomes()
    for damage in damages(tmp_path / "kept", {"another analysis": tmp_path / "other"}):
        copy = spoiled(tmp_path / "kept", damage, tmp_path / "copy")
        outcomes.try_(damage, lambda: analyse(copy) == wanted)  # noqa: B023
    outcomes.check(80)
    assert all("recipe.json" in damage for damage in outcomes.named)


SETTINGS: dict[str, object] = {"data": "world:shapes", "scale": "sanity", "image": None}


@pytest.fixture(scope="module")
def study(home: Path) -> Path:
    root = home / "study"
    run_study.check_settings(root, SETTINGS)
    assert not run_cells.run_cells(cells(), root, tiny(), "cpu").failed
    return root


def verdicts(root: Path) -> list[tuple[str, list[float]]]:
    return [
        (each.outcome, [effect.measured.value for effect in each.effects])
        for each in judge(evidence(root), CLAIMS)
    ]


def test_judging_a_study(study: Path, tmp_path: Path) -> None:
    """What is read without being measured again."""
    wanted, outcomes = verdicts(study), Outcomes()
    shutil.copytree(study / "exhibits", tmp_path / "study" / "exhibits")
    for damage in once_for_every_kind(tmp_path / "study"):
        copy = spoiled(tmp_path / "study", damage, tmp_path / "copy")
        if damage.what != "deleted":  # a verdict says what it lacks
            outcomes.try_(damage, lambda: verdicts(copy) == wanted)  # noqa: B023
    outcomes.check(50)


def kind_of(name: str) -> tuple[str, str]:
    """Folder and name of a file, without the numbers that tell it from others of its kind."""
    return Path(name).parts[0], re.sub(r"[0-9a-f]{8,}", "", Path(name).name)


def once_for_every_kind(folder: Path) -> Iterator[Damage]:
    """Every change to every kind of file, each time to the next file of the kind."""
    chosen: dict[tuple[tuple[str, str], str], list[Damage]] = {}
    for damage in damages(folder):
        chosen.setdefault((kind_of(damage.file), damage.what), []).append(damage)
    for number, of_a_kind in enumerate(chosen.values()):
        yield of_a_kind[number % len(of_a_kind)]


def rotating(study: Path) -> Iterator[Damage]:
    """One change for each of three files of a kind, another for the next: measuring again takes a
    while."""
    files: dict[str, list[Damage]] = {}
    for damage in damages(study):
        files.setdefault(damage.file, []).append(damage)
    kinds: dict[tuple[str, str], int] = {}
    for number, (name, each) in enumerate(files.items()):
        kind = kind_of(name)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] <= 3:
            yield each[number * 5 % len(each)]


def test_a_study(study: Path, tmp_path: Path) -> None:
    """The same command heals it; a checkpoint that nobody measures again is left as it is."""
    wanted, outcomes = verdicts(study), Outcomes()

    def again(root: Path) -> bool:
        run_study.check_settings(root, SETTINGS)
        report = run_cells.run_cells(cells(), root, tiny(), "cpu")
        if report.failed:
            raise vitreous.VitreousError(next(iter(report.failed.values())))
        equal(root, study, "final.*")
        return verdicts(root) == wanted

    for damage in rotating(study):
        copy = spoiled(study, damage, tmp_path / "copy")
        outcomes.try_(damage, lambda: again(copy))  # noqa: B023
    outcomes.check(20)
    assert not outcomes.named


def test_a_study_with_other_settings_is_refused(study: Path, tmp_path: Path) -> None:
    for damage in damages(study, files="study.json"):
        copy = spoiled(study, damage, tmp_path / "copy")
        with pytest.raises(vitreous.VitreousError, match=r"holds studies with scale='sanity'"):
            run_study.check_settings(copy, {**SETTINGS, "scale": "small"})
        run_study.check_settings(copy, SETTINGS)
        assert read_json(copy / "study.json", strict=True) == SETTINGS


def test_the_tables_are_compared() -> None:
    """The suite itself: another number is a fault."""
    outcomes = Outcomes()
    damage = next(damages(Path(__file__).parent / "results"))
    outcomes.try_(damage, lambda: pd.DataFrame([1]).equals(pd.DataFrame([2])))
    with pytest.raises(AssertionError, match="other numbers"):
        outcomes.check(1)
