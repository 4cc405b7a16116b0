"""`tv:NAME` on files written by hand in torchvision's own formats, and without a network."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision

from data.pictures import chw, noise, save
from vitreous.data import load
from vitreous.data.sources import torchvision_sets
from vitreous.errors import VitreousError

LABELS = np.arange(12) % 10


def write_mnist(root: Path, images: dict[str, Any]) -> None:
    """The IDX format: two zero bytes, the type, the number of axes, their lengths, the bytes."""
    raw = root / "MNIST/raw"
    raw.mkdir(parents=True)
    for stem, (pixels, labels) in images.items():
        for name, array in (
            (f"{stem}-images-idx3-ubyte", pixels),
            (f"{stem}-labels-idx1-ubyte", labels),
        ):
            head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(
                f">{array.ndim}I", *array.shape
            )
            (raw / name).write_bytes(head + array.astype(np.uint8).tobytes())


def write_cifar(root: Path, images: Any, labels: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for i, name in enumerate(
        [
            "data_batch_1",
            "data_batch_2",
            "data_batch_3",
            "data_batch_4",
            "data_batch_5",
            "test_batch",
        ]
    ):
        rows = slice(2 * i, 2 * i + 2)
        content = {"data": chw(images[rows]).reshape(2, -1), "labels": labels[rows].tolist()}
        (folder / name).write_bytes(pickle.dumps(content))
    names = [
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ]
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": names}))
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setattr(torchvision.datasets.cifar, "check_integrity", lambda *_: True)


def test_mnist_is_grey_in_three_channels(tmp_path: Path) -> None:
    train, test = noise(12, 28, 28)[..., 0], noise(10, 28, 28, 1)[..., 0]
    write_mnist(tmp_path, {"train": (train, LABELS), "t10k": (test, LABELS[:10])})
    data = load("tv:MNIST", root=tmp_path)
    assert (data.images.numpy() == train[:, None]).all()
    assert data.labels.tolist() == LABELS.tolist()
    assert data.classes[3] == "3 - three"
    assert data.mean == pytest.approx((train.mean() / 255,) * 3, abs=1e-12)
    other = load("tv:MNIST", root=tmp_path, split="test")
    assert (other.images.numpy() == test[:, None]).all()
    assert other.mean == data.mean
    for split in ("val", "all"):
        with pytest.raises(
            VitreousError, match=f"'tv:MNIST' has no split '{split}'; ask for 'train' or 'test'"
        ):
            load("tv:MNIST", root=tmp_path, split=split)


def test_cifar_with_the_normalisation_of_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = noise(12, 32, 32)
    write_cifar(tmp_path, images, LABELS, monkeypatch)
    train, test = load("tv:CIFAR10", root=tmp_path), load("tv:CIFAR10", root=tmp_path, split="test")
    assert (train.images.numpy() == chw(images[:10])).all()
    assert (test.images.numpy() == chw(images[10:])).all()
    assert test.labels.tolist() == LABELS[10:].tolist()
    assert train.classes[9] == "truck"
    assert train.mean == test.mean == (0.4914, 0.4822, 0.4465)
    assert train.std == test.std == (0.2023, 0.1994, 0.2010)


def test_a_set_of_files_with_its_own_words_for_splits(tmp_path: Path) -> None:
    """Imagenette has train and val, and keeps pictures as files; its test split is val."""
    made: dict[tuple[str, str, int], Any] = {}
    for split, count in (("train", 3), ("val", 2)):
        for wnid in torchvision.datasets.Imagenette._WNID_TO_CLASS:
            for i, pixels in enumerate(noise(count, 8, 8, len(made))):
                made[split, wnid, i] = pixels
                path = tmp_path / "imagenette2" / split / wnid / f"{i}.png"
                save(path, pixels).rename(path.with_suffix(".JPEG"))
    data = load("tv:Imagenette", root=tmp_path, split="test")
    assert len(data) == 20
    assert data.classes[0] == "tench"
    first = sorted(torchvision.datasets.Imagenette._WNID_TO_CLASS)[0]
    assert (data.images[0].numpy() == chw(made["val", first, 0])).all()
    assert data.labels.bincount().tolist() == [2] * 10
    assert len(load("tv:Imagenette", root=tmp_path)) == 30


def test_a_set_without_splits_has_a_tenth_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = torchvision.datasets.FakeData
    monkeypatch.setattr(torchvision.datasets, "FakeData", lambda: kind(40, (3, 8, 8), 4))
    train, test = (load("tv:FakeData", split=split) for split in ("train", "test"))
    assert len(train) + len(test) == 40
    labels = np.array([int(label) for _, label in kind(40, (3, 8, 8), 4)])
    assert test.labels.bincount(minlength=4).tolist() == [
        round(0.1 * n) for n in np.bincount(labels)
    ]


def test_without_a_network_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    with pytest.raises(VitreousError) as told:
        load("tv:CIFAR100", root=tmp_path)
    assert "'tv:CIFAR100' is not in" in str(told.value)
    assert (
        "cannot be downloaded (Name or service not known); name the folder where it is with root."
        in str(told.value)
    )
    with pytest.raises(VitreousError, match="The files of 'tv:ImageNet' are not in"):
        load("tv:ImageNet", root=tmp_path)


def test_all_the_names_exist() -> None:
    assert [name for name in torchvision_sets.SETS if not hasattr(torchvision.datasets, name)] == []
