"""Paths and patterns: what they stand for, and which source reads them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from data.pictures import noise, save, tree
from vitreous.data import load
from vitreous.data.dataset_names import parse_dataset
from vitreous.data.sources.paths import expand_braces, matching_files
from vitreous.errors import VitreousError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a{000..003}.tar", ["a000.tar", "a001.tar", "a002.tar", "a003.tar"]),
        ("a{8..11}", ["a8", "a9", "a10", "a11"]),
        ("a{3..1}", ["a3", "a2", "a1"]),
        ("{a,b}-{0..1}", ["a-0", "a-1", "b-0", "b-1"]),
        ("{a,}x", ["ax", "x"]),
        ("a{b}c", ["a{b}c"]),
        ("a{}c", ["a{}c"]),
        ("plain", ["plain"]),
    ],
)
def test_braces_are_those_of_bash(text: str, names: list[str]) -> None:
    assert expand_braces(text) == names


def test_braces_for_too_many_files() -> None:
    for text in ("{0..99999999999}", "{0..999}{0..999}"):
        with pytest.raises(VitreousError, match="stands for"):
            expand_braces(text)


def test_a_file_may_have_a_pattern_in_its_name(tmp_path: Path) -> None:
    for name in ("a[1].png", "a{1,2}.png", "a*.png"):
        save(tmp_path / name, noise(1, 4, 4)[0])
        assert matching_files(str(tmp_path / name)) == [tmp_path / name]
        assert len(load(str(tmp_path / name))) == 1


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    for number in (0, 2):
        (tmp_path / f"{number:03}.tar").write_bytes(bytes(1024))
    with pytest.raises(VitreousError, match=r"There is no file '.*/001\.tar'\.$"):
        load(f"{tmp_path}/{{000..002}}.tar")


def test_the_reader_of_each_kind_of_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tree(tmp_path / "photos", {"cat": 1, "dog": 1})
    (tmp_path / "shards").mkdir()
    for name in ("shards/a.tar", "photos.tar.gz", "photos.ZIP", "a.parquet", "a.npz"):
        (tmp_path / name).touch()
    readers = {
        "photos": "folder",
        "photos/": "folder",
        "photos/cat/000.png": "picture_files",
        "photos/*/*.png": "picture_files",
        "photos/*": "picture_files",
        "shards": "archives",
        "shards/*": "archives",
        "photos.tar.gz": "archives",
        "photos.ZIP": "archives",
        "a.parquet": "parquet",
        "a.npz": "npz",
    }
    for name, reader in readers.items():
        assert parse_dataset(name) == (reader, name)
        assert parse_dataset(f"folder:{name}") == (reader, name)
    assert parse_dataset("npz:a") == ("npz", "a")


def test_one_picture(tmp_path: Path) -> None:
    pixels = noise(1, 6, 5)[0]
    data = load(str(save(tmp_path / "photo.png", pixels)))
    assert (data.images[0].permute(1, 2, 0).numpy() == pixels).all()
    assert (data.split, data.classes, data.labels.tolist()) == ("all", (), [-1])
    with pytest.raises(VitreousError, match=r"no labels, .* split 'test'; take split 'all'"):
        load(str(tmp_path / "photo.png"), split="test")


def test_folders_that_a_pattern_leaves_open_are_classes(tmp_path: Path) -> None:
    tree(tmp_path, {"cat": 2, "dog": 3, "elk/deep": 1})
    flat = load(f"{tmp_path}/cat/*.png")
    assert (len(flat), flat.classes) == (2, ())
    for pattern, counts in {
        "*/*.png": {"cat": 2, "dog": 3},
        "{cat,dog}/*.png": {"cat": 2, "dog": 3},
        "**/*.png": {"cat": 2, "dog": 3, "elk": 1},
        "*": {"cat": 2, "dog": 3, "elk": 1},
        "[cd]*/000.png": {"cat": 1, "dog": 1},
    }.items():
        data = load(f"{tmp_path}/{pattern}")
        found = dict(zip(data.classes, data.labels.bincount().tolist(), strict=True))
        assert found == counts, pattern
    tree(tmp_path / "two", {"train/a": 2, "train/b": 1, "test/a": 1, "test/b": 1})
    assert [len(load(f"{tmp_path}/two/*/*/*.png", split=s)) for s in ("train", "test")] == [3, 2]


def test_a_pattern_that_matches_no_picture(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(VitreousError, match=r"No file matches '.*/\*\.jpg'; compare the pattern"):
        load(f"{tmp_path}/*.jpg")
    for pattern in ("empty*", "*"):
        with pytest.raises(VitreousError, match=r"Nothing that matches .* is a picture"):
            load(f"{tmp_path}/{pattern}")


def test_left_out_files_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tree(tmp_path, {"cat": 2, "dog": 2})
    save(tmp_path / "loose.png", noise(1, 8, 8)[0])
    (tmp_path / "cat" / "phone.HEIC").touch()
    (tmp_path / "cat" / "notes.txt").touch()
    with caplog.at_level(logging.WARNING, "vitreous"):
        assert len(load(str(tmp_path))) == 4
    messages = {record.getMessage() for record in caplog.records}
    assert messages == {
        f"Left out of '{tmp_path}': 1 picture that lies in no folder of a class, as others do.",
        f"1 file is left out of '{tmp_path / 'cat'}': Vitreous cannot read .heic.",
    }


def test_a_folder_of_other_files_says_what_it_has(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.csv", "d"):
        (tmp_path / name).touch()
    words = r"no pictures in .* but 4 other files \(2 with \.txt, 1 with \.csv, 1 with no ending\)"
    with pytest.raises(VitreousError, match=words):
        load(str(tmp_path))


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    tree(tmp_path, {"cat": 1, "dog/deep": 1})
    (tmp_path / "dog/deep").chmod(0)
    try:
        with pytest.raises(VitreousError, match=r"Cannot read the folder '.*deep': Permission"):
            load(str(tmp_path))
    finally:
        (tmp_path / "dog/deep").chmod(0o700)


def test_a_link_to_nothing_is_a_picture_that_cannot_be_read(tmp_path: Path) -> None:
    tree(tmp_path, {"cat": 2})
    (tmp_path / "cat" / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "cat" / "self.jpg").symlink_to(tmp_path / "cat" / "self.jpg")
    with pytest.raises(VitreousError, match=r"2 of 4 images .*gone\.jpg \(No such file"):
        load(str(tmp_path))
    assert len(load(str(tmp_path), skip_corrupt=True)) == 2
