"""The grammar, and what is the same for every source: size, selection, normalisation, errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitreous.data
from data.pictures import chw, noise, save, tree
from vitreous.data import Dataset, load, loading
from vitreous.errors import VitreousError


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("fodler:x", "There is no source of images 'fodler'. Did you mean folder?"),
        (
            "nowhere",
            "There is no file or folder 'nowhere'. Images are a path, npz:PATH, tv:NAME, "
            "hf:NAME or world:TASK.",
        ),
        ("shapes", "There is no file or folder 'shapes'. Did you mean world:shapes?"),
        ("CIFAR10", "There is no file or folder 'CIFAR10'. Did you mean tv:CIFAR10?"),
        ("folder", "There is no file or folder 'folder'"),
        ("folder:", "'folder:' names no images: something has to follow the colon."),
        ("C:\\no\\such", "There is no file or folder 'C:\\\\no\\\\such'"),
        ("", "A dataset needs a name"),
        ("gone/*.jpg", "No file matches 'gone/*.jpg'; compare the pattern"),
        ("gone.zip", "There is no file 'gone.zip'."),
        ("gone-{000..004}.tar", "There is no file 'gone-000.tar' and 4 more."),
        ("gone.parquet", "There is no file 'gone.parquet'."),
        ("gone.jpg", "There is no file 'gone.jpg'."),
        (
            "tv:CIFAR11",
            "There is no classification set in torchvision 'CIFAR11'. Did you mean CIFAR10, "
            "CIFAR100?",
        ),
        ("world:shpaes", "Did you mean shapes"),
    ],
)
def test_unknown_names(name: str, sentence: str) -> None:
    with pytest.raises(VitreousError) as told:
        load(name)
    assert sentence in str(told.value)


def test_arguments_that_make_no_sense(tmp_path: Path) -> None:
    tree(tmp_path, {"train/a": 2})
    name = f"folder:{tmp_path}"
    with pytest.raises(VitreousError, match=r"There is no split 'trian'\. Did you mean train"):
        load(name, split="trian")
    with pytest.raises(VitreousError, match="size=0 was asked for; it is at least one image"):
        load(name, size=0)
    for image in (0, (4, -1)):
        with pytest.raises(VitreousError, match="image= takes a side"):
            load(name, image=image)


def test_images_keep_the_size_they_share(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tree(tmp_path, {"train/a": 2, "test/a": 1}, side=10)
    assert load(f"folder:{tmp_path}").image == (10, 10)
    save(tmp_path / "test/a/odd.png", noise(1, 30, 20)[0])
    assert load(f"folder:{tmp_path}", split="test").image == (10, 10)  # the training split decides
    save(tmp_path / "train/a/odd.png", noise(1, 30, 20)[0])
    with caplog.at_level("WARNING", logger="vitreous"):
        assert load(f"folder:{tmp_path}").image == (224, 224)
    assert "differ in size: the middle of each is resized to 224x224" in caplog.text
    assert load(f"folder:{tmp_path}", split="test").image == (224, 224)
    assert load(f"folder:{tmp_path}", image=16).image == (16, 16)
    for size in ((16, 12), [16, 12], (3, 16, 12)):
        assert load(f"folder:{tmp_path}", image=size).image == (16, 12)


def test_one_folder_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However its path is written: results and runs are compared by name as well."""
    save(tmp_path / "photos" / "1.png", noise(1, 8, 8)[0])
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "photos/", "./photos", ".//photos//"):
        assert load(name).name == "photos"
    assert load("folder:./photos/").name == "folder:photos"


def test_arrays_are_resized_like_files(tmp_path: Path) -> None:
    images = noise(4, 12, 16)
    np.savez(tmp_path / "a_train.npz", images=images, labels=[0, 1, 0, 1])
    for i, pixels in enumerate(images):
        save(tmp_path / "files/train" / "ab"[i % 2] / f"{i}.png", pixels)
    arrays, files = load(f"npz:{tmp_path}/a", image=8), load(f"folder:{tmp_path}/files", image=8)
    order = [0, 2, 1, 3]
    assert (arrays.images[order] == files.images).all()
    grey = images[..., :1]
    np.savez(tmp_path / "g_train.npz", images=grey, labels=[0, 1, 0, 1])
    assert load(f"npz:{tmp_path}/g", image=8).images.shape == (4, 3, 8, 8)


@pytest.mark.parametrize("source", ["folder", "npz"])
@pytest.mark.parametrize("first", ["train", "test"])
def test_normalisation_is_that_of_the_training_pixels(
    tmp_path: Path, source: str, first: str
) -> None:
    """For both splits, whichever comes first and however few images are taken; against numpy in
    float64."""
    made = (
        tree(tmp_path, {"train/a": 9, "train/b": 7, "test/a": 3, "test/b": 2})
        if source == "folder"
        else {}
    )
    train = np.stack(
        [pixels for path, pixels in made.items() if path.startswith("train")]
        or list(noise(16, 8, 8))
    )
    if source == "npz":
        np.savez(
            tmp_path / "s.npz",
            x_train=train,
            y_train=np.arange(16) % 2,
            x_test=train[:5] // 2,
            y_test=[0, 1] * 2 + [0],
        )
    name = f"folder:{tmp_path}" if source == "folder" else f"npz:{tmp_path}/s.npz"
    for split in (first, "train", "test"):
        for size in (None, 2):
            data = load(name, split=split, size=size)
            assert data.mean == pytest.approx(train.mean((0, 1, 2)) / 255, abs=1e-12)
            assert data.std == pytest.approx(train.std((0, 1, 2)) / 255, abs=1e-12)


def test_large_sets_are_measured_on_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "REFERENCE", 6)
    images = noise(51, 4, 4)
    np.savez(tmp_path / "s_train.npz", images=images, labels=np.zeros(51, int))
    spread = images[[0, 10, 20, 30, 40, 50]]
    assert load(f"npz:{tmp_path}/s").mean == pytest.approx(spread.mean((0, 1, 2)) / 255, abs=1e-12)


def test_normalised_training_images_have_mean_zero_and_variance_one(tmp_path: Path) -> None:
    np.savez(tmp_path / "s_train.npz", images=noise(20, 6, 6), labels=np.arange(20) % 3)
    data = load(f"npz:{tmp_path}/s")
    seen = data.normalise(data.images).double()
    assert seen.mean((0, 2, 3)).abs().max() < 1e-6
    assert (seen.var((0, 2, 3), correction=0) - 1).abs().max() < 1e-5


def test_a_part_of_a_set_is_taken_from_every_class_alike(tmp_path: Path) -> None:
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    images = np.broadcast_to(np.arange(100, dtype=np.uint8)[:, None, None, None], (100, 2, 2, 3))
    np.savez(tmp_path / "s_train.npz", images=images, labels=labels)

    def rows(size: int, seed: int = 0) -> list[int]:
        data = load(f"npz:{tmp_path}/s", size=size, seed=seed)
        assert labels[data.images[:, 0, 0, 0].numpy()].tolist() == data.labels.tolist()
        return data.images[:, 0, 0, 0].tolist()

    assert np.bincount(labels[rows(10)]).tolist() == [6, 3, 1]
    assert np.bincount(labels[rows(50)]).tolist() == [30, 15, 5]
    assert len(rows(3)) == 3
    assert set(rows(10)) < set(rows(50)) < set(rows(1000))
    assert rows(10) == sorted(rows(10)) == rows(10)
    assert rows(10) != rows(10, seed=1)
    assert len(rows(1000)) == 100


def test_a_shuffled_set_is_the_same_in_memory_and_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with damaged files; and what is mapped is not copied into memory."""
    tree(tmp_path, {"a": 30, "b": 20, "c": 10})
    (tmp_path / "a/003.png").write_bytes(b"")
    (tmp_path / "c/000.png").write_text("poem")
    plain = load(str(tmp_path), skip_corrupt=True)
    for size in (None, 25):
        how: dict[str, Any] = {"skip_corrupt": True, "shuffled": True, "seed": 5, "size": size}
        held = load(str(tmp_path), **how)
        with monkeypatch.context() as patch:
            patch.setattr(Dataset, "take", lambda *_: pytest.fail("it copies"))
            mapped = load(str(tmp_path), **how, memory=0)
        assert (held.images == mapped.images).all()
        assert (held.labels == mapped.labels).all()
        sorted_ = load(str(tmp_path), skip_corrupt=True, seed=5, size=size)
        contents = [sorted(image.numpy().tobytes() for image in d.images) for d in (held, sorted_)]
        assert contents[0] == contents[1]
        label = {i.numpy().tobytes(): int(k) for i, k in zip(plain.images, plain.labels)}  # noqa: B905
        assert [label[image.numpy().tobytes()] for image in held.images] == held.labels.tolist()
    first = load(str(tmp_path), skip_corrupt=True, shuffled=True).labels[:12]
    assert first.bincount().tolist() == [6, 4, 2]
    world = load("world:shapes", size=40, shuffled=True)
    assert world.labels.tolist() != load("world:shapes", size=40).labels.tolist()


def test_synthetic_data_is_loaded_by_the_same_function() -> None:
    data = load("world:shapes", size=12, split="test", seed=3)
    assert len(data) == 12
    assert data.name == "world:shapes"
    assert load("world:shapes", size=2, image=16).image == (16, 16)
    with pytest.raises(VitreousError, match="square, and 32x64"):
        load("world:shapes", image=(32, 64))


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    images, labels = noise(6, 4, 4), np.arange(6) % 2
    for name in ("one", "two"):
        np.savez(tmp_path / f"{name}_train.npz", images=images, labels=labels)
    one, two = load(f"npz:{tmp_path}/one"), load(f"npz:{tmp_path}/two")
    assert one.fingerprint == two.fingerprint
    pixels = one.images.clone()
    pixels[5, 2, 3, 3] += 1
    others = [
        Dataset(pixels, one.labels, one.classes, one.name),
        Dataset(one.images, 1 - one.labels, one.classes, one.name),
        Dataset(one.images, one.labels, ("a", "b"), one.name),
        Dataset(one.images.view(6, 3, 2, 8), one.labels, one.classes, one.name),
        one.take([1, 0, 2, 3, 4, 5]),
        one.take(range(5)),
    ]
    assert len({one.fingerprint, *(other.fingerprint for other in others)}) == 7
    strided = Dataset(torch.from_numpy(chw(images)), one.labels, one.classes, "another")
    assert strided.fingerprint == one.fingerprint


def test_the_repr_of_a_data_set() -> None:
    assert (
        repr(load("world:shapes", size=5))
        == "Dataset('world:shapes', 'train': 5 images of 32x32, 10 classes)"
    )


def test_the_package_imports_without_torch() -> None:
    code = "import sys, vitreous.data; print('torch' in sys.modules, dir(vitreous.data))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(vitreous.data.__file__).parents[2],
    )
    assert done.stdout.strip() == "False ['Dataset', 'load']"
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        vitreous.data.nonsense  # noqa: B018
