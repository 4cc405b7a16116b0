"""Errors are sentences with values in them and the nearest names."""

from __future__ import annotations

import pytest

from vitreous.errors import (
    BadImages,
    NotExportable,
    UnknownName,
    VitreousError,
    for_command_line,
    nearest_names,
)


def test_unknown_name_says_what_was_asked_and_what_is_near() -> None:
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


def test_one_base_class() -> None:
    for kind in (UnknownName, NotExportable, BadImages):
        assert issubclass(kind, VitreousError)


@pytest.mark.parametrize(
    ("sentence", "typed"),
    [
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
