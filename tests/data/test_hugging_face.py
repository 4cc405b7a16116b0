"""`hf:name` on sets written by Hugging Face's own package to a folder; nothing is downloaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from data.pictures import chw, noise
from vitreous import hub
from vitreous.data import load
from vitreous.errors import VitreousError

datasets = pytest.importorskip("datasets")

IMAGES = noise(12, 6, 5)
LABELS = [i % 3 for i in range(12)]


def table(rows: slice = slice(0, 12), **columns: Any) -> Any:
    features = {"img": datasets.Image(), "label": datasets.ClassLabel(names=["ant", "bee", "cow"])}
    content = {
        "img": [Image.fromarray(each) for each in IMAGES[rows]],
        "label": LABELS[rows],
        **columns,
    }
    known = features | {name: datasets.Value("string") for name in columns}
    return datasets.Dataset.from_dict(content, features=datasets.Features(known))


def test_a_saved_set_with_splits(tmp_path: Path) -> None:
    both = datasets.DatasetDict({"train": table(slice(0, 9)), "validation": table(slice(9, 12))})
    both.save_to_disk(tmp_path / "set")
    train, test, whole = (
        load(f"hf:{tmp_path / 'set'}", split=split) for split in ("train", "test", "all")
    )
    assert (train.images.numpy() == chw(IMAGES[:9])).all()
    assert (test.images.numpy() == chw(IMAGES[9:])).all()
    assert (whole.images.numpy() == chw(IMAGES)).all()
    assert test.labels.tolist() == LABELS[9:]
    assert train.classes == ("ant", "bee", "cow")
    assert test.mean == pytest.approx(IMAGES[:9].mean((0, 1, 2)) / 255, abs=1e-12)


def test_a_folder_of_parquet_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "set").mkdir()
    table().to_parquet(tmp_path / "set" / "train.parquet")
    whole = load(f"hf:{tmp_path / 'set'}", split="all")
    assert (whole.images.numpy() == chw(IMAGES)).all()
    assert whole.classes == ("ant", "bee", "cow")


def test_one_split_has_a_tenth_held_out(tmp_path: Path) -> None:
    table().save_to_disk(tmp_path / "set")
    assert load(f"hf:{tmp_path / 'set'}", split="test").labels.bincount().tolist() == [1, 1, 1]
    train = load(f"hf:{tmp_path / 'set'}", split="train")
    assert train.labels.bincount().tolist() == [3, 3, 3]
    assert load(f"hf:{tmp_path / 'set'}").labels.bincount().tolist() == [4, 4, 4]


def test_a_set_without_labels_or_without_images(tmp_path: Path) -> None:
    table(words=["w"] * 12).remove_columns("label").save_to_disk(tmp_path / "bare")
    bare = load(f"hf:{tmp_path / 'bare'}", split="all")
    assert bare.labels.unique().tolist() == [-1]
    assert bare.classes == ()
    table(words=["w"] * 12).remove_columns("img").save_to_disk(tmp_path / "text")
    with pytest.raises(
        VitreousError,
        match=r"has 0 columns of images .* it has label \(ClassLabel\), words \(Value\)",
    ):
        load(f"hf:{tmp_path / 'text'}")


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    datasets.DatasetDict({"train": table(), "extra": table()}).save_to_disk(tmp_path / "set")
    with pytest.raises(VitreousError, match="has no split 'test', only train, extra"):
        load(f"hf:{tmp_path / 'set'}", split="test")


def test_without_the_hub_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def silent(url: str) -> bool:
        asked.append(url)
        return False

    hub.reachable.cache_clear()
    monkeypatch.setattr(hub, "is_listening", silent)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "getproxies", dict)
    with pytest.raises(VitreousError, match="Cannot load 'hf:nobody/nothing:config'"):
        load("hf:nobody/nothing:config")
    hub.reachable.cache_clear()
    assert len(asked) == 1
    assert datasets.config.HF_HUB_OFFLINE is False


def test_without_the_package_the_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(VitreousError, match=r"pip install 'vitreous\[hf\]'"):
        load("hf:anything")


def test_pictures_that_are_files_are_read_from_there(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(IMAGES[0]).save(path)
    features = datasets.Features({"image": datasets.Image(), "labels": datasets.Value("int64")})
    datasets.Dataset.from_dict(
        {"image": [str(path)] * 2, "labels": [0, 4]}, features=features
    ).save_to_disk(tmp_path / "set")
    data = load(f"hf:{tmp_path / 'set'}", split="all")
    assert (data.images.numpy() == chw(IMAGES[:1])).all()
    assert data.classes == ("0", "1", "2", "3", "4")
    assert np.array_equal(data.labels.numpy(), [0, 4])
