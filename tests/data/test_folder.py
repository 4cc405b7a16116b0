"""`folder:path`: which pictures belong to which split and class, against the files that were
written."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch

from data.pictures import chw, noise, save, tree
from vitreous.data import load
from vitreous.errors import VitreousError


def test_splits_and_classes_of_folders(tmp_path: Path) -> None:
    made = tree(tmp_path, {"train/cat": 3, "train/ant": 2, "test/cat": 1, "test/ant": 2})
    for split, order in {
        "train": [
            "train/ant/000",
            "train/ant/001",
            "train/cat/000",
            "train/cat/001",
            "train/cat/002",
        ],
        "test": ["test/ant/000", "test/ant/001", "test/cat/000"],
    }.items():
        data = load(f"folder:{tmp_path}", split=split)
        assert data.classes == ("ant", "cat")
        assert data.split == split
        assert (data.images.numpy() == chw(np.stack([made[f"{name}.png"] for name in order]))).all()
        assert data.labels.tolist() == [int("cat" in name) for name in order]
        assert data.images.dtype == torch.uint8
        assert data.image == (8, 8)
        assert data.skipped == ()
    assert len(load(f"folder:{tmp_path}", split="all")) == 8


@pytest.mark.parametrize("word", ["val", "valid", "Validation", "test"])
def test_validation_images_replace_a_missing_test_split(tmp_path: Path, word: str) -> None:
    tree(tmp_path, {"train/a": 2, f"{word}/a": 3})
    assert len(load(f"folder:{tmp_path}", split="test")) == 3


def test_validation_and_test_are_told_apart(tmp_path: Path) -> None:
    tree(tmp_path, {"train/a": 2, "val/a": 3, "test/a": 4})
    assert [
        len(load(f"folder:{tmp_path}", split=split)) for split in ("train", "val", "test", "all")
    ] == [2, 3, 4, 9]


def test_without_splits_a_tenth_of_each_class_is_held_out(tmp_path: Path) -> None:
    tree(tmp_path, {"cat": 50, "dog": 30, "elk": 4, "fox": 1})
    train, test, whole = (
        load(f"folder:{tmp_path}", split=split) for split in ("train", "test", "all")
    )
    assert torch.bincount(test.labels, minlength=4).tolist() == [5, 3, 1, 0]
    assert torch.bincount(train.labels).tolist() == [45, 27, 3, 1]
    assert train.classes == test.classes == ("cat", "dog", "elk", "fox")

    def rows(images: torch.Tensor) -> set[bytes]:
        return {image.numpy().tobytes() for image in images}

    assert rows(train.images) | rows(test.images) == rows(whole.images)
    assert not rows(train.images) & rows(test.images)


def test_what_is_held_out_depends_on_names_alone(tmp_path: Path) -> None:
    tree(tmp_path / "one", {"cat": 30, "dog": 30})
    tree(tmp_path / "two", {"dog": 30, "cat": 30}, seed=1)
    one, two = (load(f"folder:{tmp_path / name}", split="test") for name in ("one", "two"))
    pixels = {
        path: pixels.tobytes()
        for path, pixels in tree(tmp_path / "one", {"cat": 30, "dog": 30}).items()
    }
    other = {
        path: pixels.tobytes()
        for path, pixels in tree(tmp_path / "two", {"dog": 30, "cat": 30}, seed=1).items()
    }

    def names(images: torch.Tensor, known: dict[str, bytes]) -> list[str]:
        by_content = {content: path for path, content in known.items()}
        return [by_content[np.moveaxis(image.numpy(), 0, -1).tobytes()] for image in images]

    by_hash = [sorted(f"{kind}/{i:03}.png" for i in range(30)) for kind in ("cat", "dog")]
    by_hash = [
        sorted(sorted(each, key=lambda name: sha256(name.encode()).digest())[:3])
        for each in by_hash
    ]
    assert names(one.images, pixels) == names(two.images, other) == by_hash[0] + by_hash[1]


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    made = noise(3, 5, 4)
    for i, pixels in enumerate(made):
        save(tmp_path / f"{i}.png", pixels)
    data = load(f"folder:{tmp_path}", split="all")
    assert (data.images.numpy() == chw(made)).all()
    assert data.labels.tolist() == [-1, -1, -1]
    assert data.classes == ()
    with pytest.raises(
        VitreousError, match=r"holds images but no labels, .* 'train'; take split 'all'"
    ):
        load(f"folder:{tmp_path}", split="train")
    assert len(load(f"folder:{tmp_path}")) == 3


def test_one_image_is_a_set(tmp_path: Path) -> None:
    save(tmp_path / "cat" / "only.png", np.full((4, 4, 3), 7, np.uint8))
    data = load(f"folder:{tmp_path}")
    assert len(data) == 1
    assert data.std == pytest.approx((1 / 255,) * 3)
    assert torch.isfinite(data.normalise(data.images)).all()
    with pytest.raises(VitreousError, match=r"The 'test' split of .* is empty"):
        load(f"folder:{tmp_path}", split="test")


def test_hidden_files_links_and_deeper_folders(tmp_path: Path) -> None:
    tree(
        tmp_path / "set",
        {"train/cat": 2, "train/dog/deep/er": 1, "test/cat": 1, "test/dog": 1, ".git": 1},
    )
    (tmp_path / "set/train/cat/._000.png").write_bytes(b"rubbish")
    (tmp_path / "set/train/cat/notes.txt").write_text("not a picture, and it does not say it is")
    (tmp_path / "set/train/cat/.thumbs").mkdir()
    save(tmp_path / "elsewhere" / "more.png", noise(1, 8, 8, 9)[0])
    (tmp_path / "set/train/cat/linked.png").symlink_to(tmp_path / "elsewhere/more.png")
    (tmp_path / "set/train/dog/folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set/train/dog/circle").symlink_to(tmp_path / "set/train/dog")
    data = load(f"folder:{tmp_path / 'set'}")
    assert data.labels.tolist() == [0, 0, 0, 1, 1]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    tree(tmp_path, {"train": 2, "car": 3})
    assert load(f"folder:{tmp_path}", split="all").classes == ("car", "train")


@pytest.mark.parametrize(
    ("counts", "split", "sentence"),
    [
        (
            {"train/a": 1, "train/b": 0, "train/c": 0},
            "train",
            "no pictures in .*train/b, .*train/c; Vitreous looks for",
        ),
        ({"a": 1, "b": 0}, "train", "no pictures in .*/b"),
        ({"": 0}, "train", "no pictures in"),
        (
            {"train/a": 1, "train/b": 1, "test/a": 1, "test/c": 1},
            "test",
            "differ .*: c only here and b only there",
        ),
        (
            {"train/a": 1, "train/b": 1, "test/a": 1, "test/c": 1},
            "all",
            "differ .*: c only here and b only there",
        ),
        ({"train/a": 1}, "test", "has no split 'test', only train"),
        ({"test/a": 1}, "train", "has no split 'train', only test"),
    ],
)
def test_errors_name_what_is_wrong(
    tmp_path: Path, counts: dict[str, int], split: str, sentence: str
) -> None:
    for place in counts:
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
    tree(tmp_path, counts)
    with pytest.raises(VitreousError, match=sentence):
        load(f"folder:{tmp_path}", split=split)


def test_no_folder_and_a_file_without_images(tmp_path: Path) -> None:
    missing = re.escape(f"There is no file or folder '{tmp_path / 'gone'}'")
    with pytest.raises(VitreousError, match=missing):
        load(f"folder:{tmp_path / 'gone'}")
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(VitreousError, match=r"notes.txt' is no source of images; a file ends in"):
        load(f"folder:{tmp_path / 'notes.txt'}")


def test_broken_files_are_named_or_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = tree(tmp_path, {"train/a": 3, "train/b": 3, "test/a": 1, "test/b": 1})
    whole = (tmp_path / "train/a/001.png").read_bytes()
    (tmp_path / "train/a/001.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "train/b/000.png").write_text("I am a poem.")
    (tmp_path / "train/b/001.png").write_bytes(b"")
    with pytest.raises(VitreousError) as told:
        load(f"folder:{tmp_path}")
    assert str(told.value).startswith(
        f"3 of 6 images of 'folder:{tmp_path}' cannot be decoded: {tmp_path}/train/a/001.png ("
    )
    assert f"{tmp_path}/train/b/000.png (not an image)" in str(told.value)
    data = load(f"folder:{tmp_path}", skip_corrupt=True)
    kept = ["train/a/000.png", "train/a/002.png", "train/b/002.png"]
    assert (data.images.numpy() == chw(np.stack([made[name] for name in kept]))).all()
    assert data.labels.tolist() == [0, 0, 1]
    assert data.skipped == tuple(
        f"{tmp_path}/train/{name}.png" for name in ("a/001", "b/000", "b/001")
    )
    assert "3 of 6 images" in caplog.text
    test = load(f"folder:{tmp_path}", split="test")
    assert test.mean == data.mean
    (tmp_path / "train/b/002.png").write_bytes(b"")
    with pytest.raises(VitreousError, match="which leaves none in b"):
        load(f"folder:{tmp_path}", skip_corrupt=True)
