"""Errors are sentences with values in them and the nearest names."""

from __future__ import annotations

from pathlib import Path

import pytest

from vitreous.errors import (
    BadImages,
    NoSuchPath,
    NotExportable,
    UnknownName,
    VitreousError,
    for_command_line,
    nearest_names,
    nearest_paths,
)


def test_an_unknown_name_suggests_the_nearest_ones() -> None:
    error = UnknownName("model", "resnet17", ["resnet18", "vgg11"], "List them.")
    assert str(error) == "There is no model 'resnet17'. Did you mean resnet18? List them."
    assert error.nearest == ["resnet18"]


def test_unknown_name_without_neighbours() -> None:
    assert str(UnknownName("unit", "zzz", ["stem", "head"])) == "There is no unit 'zzz'."


def test_nearest_is_best_first_and_bounded() -> None:
    known = ["blocks.1.attn", "blocks.0.attn", "blocks.0.mlp", "blocks.10.attn", "head"]
    assert nearest_names("blocks.0.attn", known, count=2)[0] == "blocks.0.attn"
    assert len(nearest_names("blocks.0.attn", known, count=2)) == 2
    assert nearest_names("blocks.0.attn", iter(known))[0] == "blocks.0.attn"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("photos/cat/1.jpg", "runs/my photos/recipe.json", "epoch10.pth", "Epoch40.pth"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("phtos", ["photos"]),
        ("Photos/cat", ["photos/cat"]),
        ("phtos/cta/1.jpg", ["photos/cat/1.jpg"]),
        ("photos/cat/1.jpeg", ["photos/cat/1.jpg"]),
        ("runs/myphotos", ["runs/my photos"]),
        ("./photo", ["photos"]),
        ("epoch41.pth", ["Epoch40.pth", "epoch10.pth"]),
        ("nothing-like-it", []),
        ("photos", []),
        ("", []),
        ("photos/cat/1.jpg/deeper", []),
        ("~nobody-has-this-name/x", []),
        ("nul\0", []),
        ("x" * 5000, []),
    ],
)
def test_nearest_paths(given: str, nearest: list[str], folder: Path) -> None:
    assert nearest_paths(given) == nearest
    absolute = [str(folder / each) for each in nearest]
    if nearest:
        assert nearest_paths(str(folder / given)) == absolute


def test_a_path_that_is_not_there(folder: Path) -> None:
    error = NoSuchPath("folder", "runs/myphotos", "of a run", "Look.", prefix="run:", suffix="@33")
    assert str(error) == (
        "There is no folder 'runs/myphotos' of a run. Did you mean 'run:runs/my photos@33'? Look."
    )
    assert str(NoSuchPath("file", "zzz")) == "There is no file 'zzz'."


def test_one_base_class() -> None:
    for kind in (UnknownName, NotExportable, BadImages):
        assert issubclass(kind, VitreousError)


@pytest.mark.parametrize(
    ("sentence", "typed"),
    [
        (
            "name them with --image FILE (image= in Python).",
            "name them with --image FILE (image= in Python).",
        ),
        ("say image=224, for one.", "say --image 224, for one."),
        ("say image=(3, 64, 64).", "say --image 3x64x64."),
        ("leave them out with skip_corrupt=True.", "leave them out with --skip-corrupt."),
        ("name the folder with root='x'.", "name the folder with root='x'."),
        ("choose another out= or else", "choose another --out or else"),
        (
            "'vit image=3' stays, and calibration.image=3, too",
            "'vit image=3' stays, and calibration.image=3, too",
        ),
        ("try clip=1 or limit=all", "try --set clip=1 or --limit all"),
    ],
)
def test_arguments_are_spelt_as_they_are_typed(sentence: str, typed: str) -> None:
    assert (
        for_command_line(sentence, ["image", "skip_corrupt", "out", "limit"], ["clip", "image"])
        == typed
    )
