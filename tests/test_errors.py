"""Errors are sentences with values in them and the nearest names."""

from __future__ import annotations

from vitreous.errors import BadImages, NotExportable, UnknownName, VitreousError, nearest


def test_unknown_name_says_what_was_asked_and_what_is_near() -> None:
    error = UnknownName("model", "resnet17", ["resnet18", "vgg11"], "List them.")
    assert str(error) == "There is no model 'resnet17'. Did you mean resnet18? List them."
    assert error.nearest == ["resnet18"]


def test_unknown_name_without_neighbours() -> None:
    assert str(UnknownName("unit", "zzz", ["stem", "head"])) == "There is no unit 'zzz'."


def test_nearest_is_best_first_and_bounded() -> None:
    known = ["blocks.1.attn", "blocks.0.attn", "blocks.0.mlp", "blocks.10.attn", "head"]
    assert nearest("blocks.0.attn", known, count=2)[0] == "blocks.0.attn"
    assert len(nearest("blocks.0.attn", known, count=2)) == 2
    assert nearest("blocks.0.attn", iter(known))[0] == "blocks.0.attn"


def test_one_base_class() -> None:
    for kind in (UnknownName, NotExportable, BadImages):
        assert issubclass(kind, VitreousError)
