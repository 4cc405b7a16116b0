"""All answers of an inspection on disk and back, and what asking it for the wrong thing says."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vitreous
from measure.looks import Roll, Spread, images, vit
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.inspection import Inspection
from vitreous.measure.subject import Subject
from vitreous.palette import model_colours
from vitreous.report.style import colour_rules
from vitreous.results import Result
from vitreous.results.colour_scales import colour_scale


class Fussy(Roll):
    """Can be asked of nothing."""

    name = "fussy"

    def unsuited(self, subject: Subject) -> str:
        return f"{subject.name} is not to its taste."


@pytest.fixture(scope="module")
def found() -> Inspection:
    return vitreous.inspect({"a": vit(), "b": vit()}, images(8), [Spread(), Fussy()], device="cpu")


def test_an_inspection_survives_saving_and_loading(found: Inspection, tmp_path: Path) -> None:
    again = Inspection.load(found.save(tmp_path / "new" / "folder"))
    assert dict(again) == dict(found)
    assert (
        again.left_out
        == found.left_out
        == {"fussy": {m: f"{m} is not to its taste." for m in "ab"}}
    )
    assert again.anatomies == found.anatomies
    assert repr(again) == repr(found) == "Inspection of a, b: spread"


def test_reading_needs_no_torch(found: Inspection, tmp_path: Path) -> None:
    found.save(tmp_path)
    script = (
        "import sys, vitreous; print(vitreous.Inspection.load(sys.argv[1]), 'torch' in sys.modules)"
    )
    source = str(Path(vitreous.__file__).parents[1])
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(
        command, env={"PYTHONPATH": source}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "Inspection of a, b: spread False"


def test_missing_results_are_an_error(found: Inspection, tmp_path: Path) -> None:
    assert "fussy" not in found
    with pytest.raises(
        VitreousError, match=r"'fussy' could not be measured\. a: a is not to its taste\.; b: b is"
    ):
        found["fussy"]
    with pytest.raises(UnknownName, match=r"no result 'spraed'\. Did you mean spread"):
        found["spraed"]
    with pytest.raises(VitreousError, match=r"no inspection in .*: it has no inspection\.json"):
        Inspection.load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(VitreousError, match="Cannot write"):
        found.save(tmp_path / "file" / "x")


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")]
)
def test_an_interrupted_save_leaves_the_old_or_the_new_inspection(
    step: str,
    error: BaseException,
    found: Inspection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And never something of both; a killed process leaves what an interrupted one does."""
    new = vitreous.inspect({"a": vit(), "c": vit()}, images(6), [Spread(), Roll()], device="cpu")
    both, count, finished = set(), 0, False
    while not finished:
        count += 1
        home = found.save(tmp_path / str(count))
        usual, left = getattr(os, step), [count]

        def stopping(*given: Any, usual: Any = usual, left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise error
            usual(*given)

        with monkeypatch.context() as patch:
            patch.setattr(os, step, stopping)
            try:
                new.save(home)
                finished = left[0] > 0
            except (KeyboardInterrupt, VitreousError):
                pass
        again = Inspection.load(home)
        is_old = dict(again) == dict(found) and again.anatomies == found.anatomies
        is_new = dict(again) == dict(new) and again.anatomies == new.anatomies
        assert is_old != is_new
        both.add(is_old)
    assert both == {True, False}
    assert count > 5
    assert len(list(home.glob("*.parquet"))) == 2


def test_a_result_saved_into_its_folder_leaves_the_inspection_readable(
    found: Inspection, tmp_path: Path
) -> None:
    other = replace(found["spread"], table=found["spread"].table.assign(value=0.0))
    other.save(found.save(tmp_path))
    assert dict(Inspection.load(tmp_path)) == dict(found)
    assert Result.load(tmp_path / "spread.json") == other


def test_provenance_is_recorded(found: Inspection) -> None:
    about = found["spread"].about
    assert about["data"]["name"] == "noise"
    assert about["data"]["images"] == about["data"]["of"] == 8
    assert about["seed"] == 0
    assert set(about["versions"]) >= {"python", "torch", "numpy"}
    assert [unit[0] for unit in about["units"]["a"]] == [unit.name for unit in found.anatomies["a"]]
    assert about["date"].endswith("+00:00")


def test_joined_results_are_drawn_in_the_colours_of_all_their_models() -> None:
    """In a report, the dot before a model's name has the colour of its lines in every chart."""
    models = [f"model {i}" for i in range(9)]
    wanted = model_colours(models)
    parts = [
        vitreous.inspect({name: vit() for name in some}, images(8), [probe], device="cpu")
        for some, probe in ((models[:1], Roll()), (models[1:], Spread()))
    ]
    joined = parts[0] | parts[1]
    result = joined["spread"]
    scale = colour_scale(result, result.views[0], "light")
    assert scale is not None
    assert dict(zip(scale.levels, scale.colours, strict=True)) == {
        name: wanted[name] for name in models[1:]
    }
    dots = colour_rules(list(joined.anatomies))
    for number, name in enumerate(models):
        assert f"--model-{number}:{wanted[name]};" in dots
    assert ".dot.model-7{border-radius:99px}" in dots
    assert ".dot.model-8{border-radius:0}" in dots
