"""Names known without torch are those that there are, and a wrong one is reported before torch
is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torchvision

import vitreous
from vitreous import model_listing, model_names
from vitreous.data import dataset_names, world
from vitreous.errors import UnknownName, VitreousError
from vitreous.models import loading, registry


def test_they_are_those_of_the_libraries_themselves() -> None:
    assert {name: list(f.sizes) for name, f in registry.FAMILIES.items()} == model_names.families()
    assert list(world.TASKS) == list(dataset_names.TASKS), "mend dataset_names.TASKS"
    theirs = {name for name in timm.list_models() if not name.startswith(registry.TIMM_PREFIX)}
    assert theirs == model_names.timm_names()
    classifiers = torchvision.models.list_models(module=torchvision.models)
    assert {f"tv:{name}" for name in classifiers} == model_names.torchvision_names()


def test_the_list_without_torch_is_that_of_the_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    for pattern in ("*", "*vit*", "tv:*", "nano:*", "vit_ti*", "nothing"):
        assert model_listing.list_names(pattern) == loading.list_models(pattern)
    expected = loading.list_models(pretrained=True)
    assert model_listing.list_names(pretrained=True) == expected
    monkeypatch.setitem(sys.modules, "timm", None)  # the second time timm is not imported
    assert model_listing.list_names(pretrained=True) == expected
    [kept] = (tmp_path / "notes").iterdir()
    kept.write_text("damaged")
    with pytest.raises(ImportError):
        model_listing.list_names(pretrained=True)


@pytest.mark.parametrize(
    "name", ["vit_ti/4", "resnet18", "vit_tiny_patch16_224.augreg_in21k", "tv:resnet50", "nano:vit"]
)
def test_what_there_is_passes(name: str) -> None:
    model_names.check_model(name)


def test_pictures_that_a_shell_has_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.JPG").touch()
    with pytest.raises(VitreousError, match=r"'b\.JPG' is a picture .* --data 'photos/\*\.jpg'"):
        model_names.check_models(["nano:vit", "b.JPG"])


def test_names_that_timm_has_retired_are_left_to_timm() -> None:
    model_names.check_model("swin_base_patch4_window7_224_in22k")


@pytest.mark.parametrize(
    "name", ["resnet17", "vit_nan", "nano:vitt", "tv:resnet49", "./nowhere", "nomodule:make"]
)
def test_names_of_no_model_are_errors(name: str) -> None:
    with pytest.raises(VitreousError):
        model_names.check_model(name)
    with pytest.raises(VitreousError):
        loading.load_model(name)


def test_errors_suggest_the_nearest_names() -> None:
    with pytest.raises(UnknownName, match="Did you mean resnet18"):
        model_names.check_model("resnet17")


WRONG = ["inspect nosuch", "inspect nano:vit --data nosuch:x", "train nosuch", "anatomy nosuch",
    "data folder:nowhere",
         "study zoo --dry-run --data folder:nowhere", "study nosuch",
         "inspect nano:vit --probes nosuch",
         "lesion nano:vit --seed -1", "train vit_nano --set lr=NaN",
         "train vit_nano --recipe nosuch"]  # fmt: skip


EACH = """
import contextlib, io, json, sys
from vitreous.cli import main
for line in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main(line.split())
        except SystemExit as end:
            code = end.code
    imported = sorted({"torch", "timm", "pandas"} & set(sys.modules))
    print(json.dumps([line, code, said.getvalue().count("\\n"), imported]))
"""


def test_wrong_names_never_import_torch(tmp_path: Path) -> None:
    """Which is what takes seconds: the rest takes a few tenths of one."""
    home = {**os.environ, "PYTHONPATH": str(Path(vitreous.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", EACH], cwd=tmp_path, env=home, input=json.dumps(WRONG),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [[line, 2, 1, []] for line in WRONG]
    assert list(tmp_path.iterdir()) == []
