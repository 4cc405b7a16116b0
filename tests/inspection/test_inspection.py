"""All answers of an inspection on disk and back, and what asking it for the wrong thing says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import vitreous
from inspection.looks import Roll, Spread, images, vit
from vitreous.errors import UnknownName, VitreousError
from vitreous.inspection.inspection import Inspection
from vitreous.probes.subject import Subject


class Fussy(Roll):
    """Can be asked of nothing."""

    name = "fussy"

    def unsuited(self, subject: Subject) -> str:
        return f"{subject.name} is not to its taste."


@pytest.fixture(scope="module")
def found() -> Inspection:
    return vitreous.inspect({"a": vit(), "b": vit()}, images(8), [Spread(), Fussy()], device="cpu")


def test_disk_and_back(found: Inspection, tmp_path: Path) -> None:
    again = Inspection.load(found.save(tmp_path / "new" / "folder"))
    assert dict(again) == dict(found)
    assert again.left_out == found.left_out == {"fussy": {m: f"{m} is not to its taste." for m in "ab"}}
    assert again.anatomies == found.anatomies
    assert repr(again) == repr(found) == "Inspection of a, b: spread"


def test_reading_needs_no_torch(found: Inspection, tmp_path: Path) -> None:
    found.save(tmp_path)
    script = "import sys, vitreous; print(vitreous.Inspection.load(sys.argv[1]), 'torch' in sys.modules)"
    source = str(Path(vitreous.__file__).parents[1])
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env={"PYTHONPATH": source}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Inspection of a, b: spread False"


def test_what_is_not_there(found: Inspection, tmp_path: Path) -> None:
    assert "fussy" not in found
    with pytest.raises(VitreousError, match=r"'fussy' could not be asked\. a: a is not to its taste\.; b: b is"):
        found["fussy"]
    with pytest.raises(UnknownName, match=r"no result 'spraed'\. Did you mean spread"):
        found["spraed"]
    with pytest.raises(VitreousError, match=r"no inspection in .*: it has no inspection\.json"):
        Inspection.load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(VitreousError, match="Cannot write"):
        found.save(tmp_path / "file" / "x")


def test_where_it_came_from(found: Inspection) -> None:
    about = found["spread"].about
    assert about["ids"] == list(Spread.ids)
    assert about["data"]["name"] == "noise"
    assert about["data"]["images"] == about["data"]["of"] == 8
    assert about["seed"] == 0
    assert set(about["versions"]) >= {"python", "torch", "numpy"}
    assert [unit[0] for unit in about["units"]["a"]] == [unit.name for unit in found.anatomies["a"]]
    assert about["date"].endswith("+00:00")
