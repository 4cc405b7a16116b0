"""`npz:path`: every layout of arrays, encoded pictures and sheets, against the arrays they were
made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from data.pictures import chw, encoded, noise
from vitreous.data import load
from vitreous.errors import VitreousError

IMAGES = noise(20, 6, 5)
LABELS = np.arange(20) % 4


def packed(images: NDArray[np.uint8], kind: str = "PNG") -> dict[str, Any]:
    parts = [encoded(image, kind) for image in images]
    content = np.frombuffer(b"".join(parts), np.uint8)
    return {"bytes": content, "offsets": np.cumsum([0, *map(len, parts)])}


@pytest.mark.parametrize("layout", ["nhwc", "nchw", "nhw", "nhw1", "n1hw"])
def test_arrays_with_any_order_of_axes(tmp_path: Path, layout: str) -> None:
    grey = IMAGES[..., :1]
    arrays = {
        "nhwc": IMAGES,
        "nchw": chw(IMAGES),
        "nhw": grey[..., 0],
        "nhw1": grey,
        "n1hw": chw(grey),
    }
    np.savez(tmp_path / "set.npz", images=arrays[layout], labels=LABELS.astype(np.int16))
    data = load(f"npz:{tmp_path / 'set.npz'}", split="all")
    assert (
        data.images.numpy() == chw(IMAGES if layout in ("nhwc", "nchw") else grey.repeat(3, 3))
    ).all()
    assert data.labels.tolist() == LABELS.tolist()
    assert data.classes == ("0", "1", "2", "3")
    assert data.images.is_contiguous()


def test_a_tenth_is_held_out_where_nothing_says_split(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "set.npz",
        images=IMAGES,
        labels=LABELS,
        class_names=np.array(["a", "b", "c", "d"]),
    )
    train, test = (load(f"npz:{tmp_path / 'set.npz'}", split=split) for split in ("train", "test"))
    assert torch.bincount(test.labels).tolist() == [1, 1, 1, 1]
    assert len(train) == 16
    assert test.classes == ("a", "b", "c", "d")


@pytest.mark.parametrize("style", ["x_{}/y_{}", "{}_images/{}_labels"])
def test_splits_inside_a_file(tmp_path: Path, style: str) -> None:
    images, labels = style.split("/")
    arrays: dict[str, Any] = {}
    for split, rows in {"train": slice(0, 15), "test": slice(15, 20)}.items():
        arrays |= {images.format(split): IMAGES[rows], labels.format(split): LABELS[rows, None]}
    np.savez(tmp_path / "set.npz", **arrays)
    train, test, whole = (
        load(f"npz:{tmp_path / 'set.npz'}", split=split) for split in ("train", "test", "all")
    )
    assert (train.images.numpy() == chw(IMAGES[:15])).all()
    assert (test.images.numpy() == chw(IMAGES[15:])).all()
    assert (whole.images.numpy() == chw(IMAGES)).all()
    assert test.labels.tolist() == LABELS[15:].tolist()
    assert test.mean == train.mean
    with pytest.raises(VitreousError, match="no arrays for the split 'val'"):
        load(f"npz:{tmp_path / 'set.npz'}", split="val")


def test_classes_are_counted_over_all_splits(tmp_path: Path) -> None:
    """A test split in which the last class does not occur has it all the same."""
    few = LABELS < 2
    np.savez(
        tmp_path / "s.npz", x_train=IMAGES, y_train=LABELS, x_test=IMAGES[few], y_test=LABELS[few]
    )
    assert load(f"npz:{tmp_path / 's.npz'}", split="test").classes == ("0", "1", "2", "3")


def test_files_of_splits_joined_by_commas_patterns_and_beginnings(tmp_path: Path) -> None:
    np.savez(tmp_path / "toy_train_a.npz", images=IMAGES[:8], labels=LABELS[:8])
    np.savez(tmp_path / "toy_train_b.npz", images=IMAGES[8:16], labels=LABELS[8:16])
    np.savez(tmp_path / "toy_test.npz", images=IMAGES[16:], labels=LABELS[16:])
    np.savez(tmp_path / "other_train.npz", images=IMAGES[:1], labels=LABELS[:1])
    for name in ("toy", "toy*.npz", "toy_train_a.npz,{}/toy_train_b.npz", "toy_t*"):
        data = load(f"npz:{tmp_path}/{name.format(tmp_path)}")
        assert (data.images.numpy() == chw(IMAGES[:16])).all(), name
    assert (load(f"npz:{tmp_path}/toy", split="test").images.numpy() == chw(IMAGES[16:])).all()
    assert len(load(f"npz:{tmp_path}", split="all")) == 21
    assert len(load(f"npz:{tmp_path}/toy_test.npz", split="test")) == 4
    with pytest.raises(VitreousError, match=r"'npz:.*' has no split 'train', only test; ask"):
        load(f"npz:{tmp_path}/toy_test.npz", split="train")
    assert load(f"npz:{tmp_path}/toy_test.npz").split == "all"


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_encoded_pictures(tmp_path: Path, kind: str) -> None:
    np.savez(tmp_path / "toy_train.npz", labels=LABELS, **packed(IMAGES, kind))
    data = load(f"npz:{tmp_path}/toy")
    assert (data.images.numpy() == chw(IMAGES)).all()
    assert data.labels.tolist() == LABELS.tolist()


def test_sheets_of_many_images(tmp_path: Path) -> None:
    """Two files of two sheets of 2 x 3 squares."""
    images, labels = noise(24, 8, 8), np.arange(24) % 5
    sheets = images.reshape(4, 2, 3, 8, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(4, 16, 24, 3)
    for name, these, those in (("a", sheets[:2], labels[:12]), ("b", sheets[2:], labels[12:])):
        np.savez(tmp_path / f"toy_train_{name}.npz", labels=those, **packed(these))
    data = load(f"npz:{tmp_path}/toy")
    assert (data.images.numpy() == chw(images)).all()
    assert data.labels.tolist() == labels.tolist()
    some = load(f"npz:{tmp_path}/toy", size=7, seed=3)
    assert all(
        (images == image).all((1, 2, 3)).any() for image in some.images.permute(0, 2, 3, 1).numpy()
    )


def test_a_broken_picture_inside_is_named(tmp_path: Path) -> None:
    arrays = packed(IMAGES)
    content = arrays["bytes"].copy()
    content[arrays["offsets"][7] : arrays["offsets"][8]] = 0
    np.savez(tmp_path / "toy_train.npz", bytes=content, offsets=arrays["offsets"], labels=LABELS)
    with pytest.raises(
        VitreousError, match=r"1 of 20 images .*toy_train\.npz, image 7 \(not an image\)"
    ):
        load(f"npz:{tmp_path}/toy")
    assert len(load(f"npz:{tmp_path}/toy", skip_corrupt=True)) == 19


def test_images_without_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", images=IMAGES)
    assert load(f"npz:{tmp_path / 'set.npz'}", split="all").labels.unique().tolist() == [-1]
    with pytest.raises(VitreousError, match=r"holds images but no labels, .* take split 'all'"):
        load(f"npz:{tmp_path / 'set.npz'}", split="train")
    assert len(load(f"npz:{tmp_path / 'set.npz'}")) == 20


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"pixels": IMAGES}, "has no arrays 'images' and 'labels', it has pixels"),
        ({"images": IMAGES, "labels": LABELS[:5]}, "'labels' of .* has 5 labels for 20 images"),
        ({"images": IMAGES, "labels": LABELS.astype(float)}, "is float64; labels are integers"),
        ({"images": IMAGES / 255, "labels": LABELS}, "'images' of .* is float64; images are uint8"),
        (
            {"images": IMAGES[0], "labels": LABELS[:6], "class_names": ["a"]},
            "go from 0 to 3, but it has 1 classes",
        ),
        ({"images": IMAGES[..., :2], "labels": LABELS}, "is of shape 20x6x5x2; images are"),
        ({"images": IMAGES, "labels": LABELS - 2}, "The labels of .* go from -2 to 1"),
        (
            {"images": IMAGES, "labels": LABELS, "class_names": np.array(["a", None])},
            "a pickle, which can run code",
        ),
        ({"bytes": IMAGES.ravel(), "labels": LABELS}, "has 'bytes' but no 'offsets'"),
        ({"bytes": IMAGES.ravel(), "offsets": [0, 9, 5], "labels": [0, 1]}, "do not lie in order"),
        ({**packed(IMAGES), "labels": LABELS[:13]}, "'labels' of .* has 13 labels for 20 images"),
    ],
)
def test_errors_name_what_is_wrong(tmp_path: Path, arrays: dict[str, Any], sentence: str) -> None:
    np.savez(tmp_path / "set.npz", **arrays)
    with pytest.raises(VitreousError, match=sentence):
        load(f"npz:{tmp_path / 'set.npz'}", split="all")


def test_files_that_are_not_npz_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        VitreousError, match=r"There is no file '.*gone', and none whose name begins so"
    ):
        load(f"npz:{tmp_path / 'gone'}")
    (tmp_path / "text.npz").write_text("words")
    with pytest.raises(VitreousError, match=r"text\.npz' is not an npz file, or is damaged"):
        load(f"npz:{tmp_path / 'text.npz'}")
    np.savez(tmp_path / "cut.npz", images=IMAGES, labels=LABELS)
    content = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(VitreousError, match="is not an npz file, or is damaged"):
        load(f"npz:{tmp_path / 'cut.npz'}")
