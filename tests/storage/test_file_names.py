"""Names of files differ, and every system takes them."""

from __future__ import annotations

import re

import pytest

from vitreous.storage.file_names import (
    MAX_LENGTH,
    UniqueNames,
    checkpoint_words,
    file_words,
    model_words,
    name_models,
)


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (["nano:vit"], "nano_vit"),
        (["nano:vit", "nano:resnet"], "nano_vit-nano_resnet"),
        (["a", "b", "c"], "a-and-2-more"),
        (["run:runs/first/"], "run_first"),
        (["resnet50.a1_in1k"], "resnet50.a1_in1k"),
        (["/models/my model.pth"], "my_model.pth"),
        (["模型"], "模型"),
        (["../.."], "model"),
        ([], ""),
    ],
)
def test_models(models: list[str], expected: str) -> None:
    assert name_models(models) == expected


def test_whatever_the_names() -> None:
    """Valid on Windows: no reserved name, no forbidden character, no dot at the end, not long."""
    names = UniqueNames()
    odd = ["con", "NUL", "aux.x", "a" * 500, "a/b\\c:d", "x.", " ", "", "é", "模" * 80, "..", "-"]
    odd += ["Vit", "vit", "vit"]
    found = [names(each) for each in odd]
    assert len({each.casefold() for each in found}) == len(odd)
    for name in found:
        assert re.fullmatch(r"[\w.+-]+", name)
        assert len(name.encode()) <= MAX_LENGTH + 3
        assert not name.endswith(".")
        assert name.partition(".")[0].casefold() not in ("con", "nul", "aux")


def test_the_same_names_again() -> None:
    one, other = UniqueNames(), UniqueNames()
    parts = [("cka", "by-depth", "vit"), ("cka", "", "vit"), ("cka", "", "vit")]
    assert [one(*each) for each in parts] == [other(*each) for each in parts]
    assert UniqueNames()("cka", "", "vit") == "cka-vit"


def test_names_of_files_keep_letters_of_all_scripts() -> None:
    assert file_words("photos/日本 spät.jpg") == "日本-spät"
    assert file_words("photos/spa\u0308t.jpg") == "spät"  # as macOS writes it
    assert file_words("a/b/") == "b"
    assert file_words("Ж" * 200 + ".jpg") == "Ж" * 30
    assert file_words("?*.png") == ""
    assert len({file_words(f"{name}.jpg") for name in ("東京", "大阪", "京都")}) == 3


def test_a_key_within_a_checkpoint() -> None:
    assert checkpoint_words("runs/last.pth@model_ema") == "last-model_ema"
    assert checkpoint_words("me@home/last.pth") == "last"


def test_words_of_a_model() -> None:
    assert model_words("hf:google/vit-base") == ["hf", "vit", "base"]
