"""Decoded once: what is read back is what was decoded, whoever else is at it and whatever
happened to the files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.pictures import chw, noise, save, tree
from vitreous.data import load, loading
from vitreous.data.sources import image_cache
from vitreous.data.sources.decode import Faults, decode
from vitreous.data.sources.image_cache import Images
from vitreous.data.sources.listing import Listing
from vitreous.errors import VitreousError

SHAPE = (5, 3, 4, 4)
PIXELS = chw(noise(5, 4, 4))


@pytest.fixture
def kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything is worth keeping."""
    monkeypatch.setattr(image_cache, "WORTH", 0.0)
    return cache


def fill(out: Images, add: int = 0) -> dict[int, str]:
    out[:] = PIXELS + np.uint8(add)
    return {3: "torn"}


def never(out: Images) -> dict[int, str]:
    raise AssertionError("it was in the cache")


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "images").iterdir())


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_images_are_decoded_once_and_then_read_from_the_cache(kept: Path, memory: int) -> None:
    for make in (fill, never):
        images, faults = image_cache.cached_images(kept, "key", SHAPE, make, memory=memory)
        assert (images == PIXELS).all()
        assert faults == {3: "torn"}
        assert isinstance(images, np.memmap) == (memory == 0)
        images[:] = 0  # what is changed in memory stays there
    assert entries(kept) == ["key"]


def test_cheap_images_are_not_cached(cache: Path) -> None:
    image_cache.cached_images(cache, "key", SHAPE, fill, memory=1 << 20)
    assert entries(cache) == []


@pytest.mark.parametrize(
    "damage", ["cut", "gone", "another", "flip", "flip entry", "swap", "swap entry"]
)
@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_a_damaged_entry_is_made_again(kept: Path, damage: str, memory: int) -> None:
    """Also one that looks well, one bit or one name being wrong."""
    for key, add in {"key": 0, "other": 1}.items():
        image_cache.cached_images(kept, key, SHAPE, partial(fill, add=add), memory=1 << 20)
    file = kept / "images/key/images.npy"
    if damage == "cut":
        os.truncate(file, 150)
    elif damage == "gone":
        file.unlink()
    elif damage == "another":
        np.save(file, PIXELS[:2])
    elif damage.startswith("flip"):
        flipped = file.with_name("entry.json") if damage.endswith("entry") else file
        content = bytearray(flipped.read_bytes())
        content[-20] ^= 1
        flipped.write_bytes(content)
    else:
        names = ["images.npy", "entry.json"][: 1 + damage.endswith("entry")]
        for name in names:
            (kept / "images/other" / name).replace(kept / "images/key" / name)
    for make in (fill, never):
        assert (
            image_cache.cached_images(kept, "key", SHAPE, make, memory=memory)[0] == PIXELS
        ).all()


@pytest.mark.parametrize(
    "damage", [lambda text: text.replace("12345", "12355"), lambda text: text[:9], str.upper]
)
def test_a_damaged_note_is_made_again(kept: Path, damage: Callable[[str], str]) -> None:
    assert image_cache.cached_value(kept, "key", lambda: [12345]) == [12345]
    assert image_cache.cached_value(kept, "key", lambda: [0]) == [12345]
    file = kept / "notes" / "key.json"
    shutil.copy(file, file.with_name("other.json"))
    assert image_cache.cached_value(kept, "other", lambda: [1]) == [1]
    file.write_text(damage(file.read_text()))
    assert image_cache.cached_value(kept, "key", lambda: [12345]) == [12345]


def test_an_interrupted_decoding_leaves_nothing(kept: Path) -> None:
    def interrupted(out: Images) -> dict[int, str]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        image_cache.cached_images(kept, "key", SHAPE, interrupted, memory=0)
    assert entries(kept) == []


def test_abandoned_entries_are_removed(kept: Path) -> None:
    for name, age in {"draft-old": 3 * image_cache.ABANDONED, "draft-new": 60}.items():
        (kept / "images" / name).mkdir(parents=True)
        os.utime(kept / "images" / name, (time.time() - age,) * 2)
    image_cache.cached_images(kept, "key", SHAPE, fill, memory=0)
    assert entries(kept) == ["draft-new", "key"]


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_a_cache_that_cannot_be_written_is_no_error(
    kept: Path, tmp_path: Path, memory: int
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    images, _ = image_cache.cached_images(blocked, "key", SHAPE, fill, memory=memory)
    assert (images == PIXELS).all()
    assert image_cache.cached_value(blocked, "key", lambda: [1]) == [1]


def test_a_full_disk_is_found_before_anything_is_mapped(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    images, _ = image_cache.cached_images(kept, "key", SHAPE, fill, memory=0)
    assert (images == PIXELS).all()
    assert not isinstance(images, np.memmap)
    assert entries(kept) == []


RACER = """
import sys, time
from pathlib import Path
import numpy as np
from vitreous.data.sources import image_cache

home, me = Path(sys.argv[1]), sys.argv[2]
image_cache.WORTH = 0.0

def slow(out):
    out[:] = np.arange(240, dtype=np.uint8).reshape(5, 3, 4, 4)
    (home / f"ready-{me}").touch()
    while len(list(home.glob("ready-*"))) < 2:
        time.sleep(0.01)
    return {}

images, _ = image_cache.cached_images(home, "key", (5, 3, 4, 4), slow, memory=0)
assert (images.ravel() == np.arange(240)).all()
"""


def test_two_processes_at_once(kept: Path) -> None:
    """Both are decoding before either has finished."""
    environment = {**os.environ, "PYTHONPATH": str(Path(image_cache.__file__).parents[3])}
    both = [
        subprocess.Popen([sys.executable, "-c", RACER, str(kept), me], env=environment)
        for me in "ab"
    ]
    assert [process.wait(60) for process in both] == [0, 0]
    assert entries(kept) == ["key"]
    images, _ = image_cache.cached_images(kept, "key", SHAPE, never, memory=0)
    assert (images.ravel() == np.arange(240)).all()


def test_a_folder_is_decoded_once_until_a_file_changes(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, {"train/a": 3, "train/b": 2, "test/a": 1, "test/b": 1})
    decoded: list[int] = []

    def counted(listing: Listing, *rest: Any) -> Faults:
        decoded.append(len(listing))
        return decode(listing, *rest)

    monkeypatch.setattr(loading, "decode", counted)

    def again(memory: int = 2 << 30, image: int | None = None) -> Images:
        return load(f"folder:{tmp_path}", memory=memory, image=image).images.numpy()

    first = again()
    assert (again() == first).all()
    assert (again(memory=0) == first).all()
    assert decoded == [5]
    again(image=4)
    assert decoded == [5, 5]
    new = noise(1, 8, 8, 77)[0]
    save(tmp_path / "train/b/001.png", new)
    assert (again()[4] == chw(new)).all()
    assert decoded == [5, 5, 5]


def test_arrays_larger_than_memory_are_mapped_too(cache: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "s_train.npz", images=noise(9, 6, 6), labels=np.zeros(9, int))
    small = load(f"npz:{tmp_path}/s")
    assert not (cache / "images").exists()
    large = load(f"npz:{tmp_path}/s", memory=100)
    assert len(entries(cache)) == 1
    assert large.fingerprint == small.fingerprint


def test_broken_files_stay_broken_in_the_cache(kept: Path, tmp_path: Path) -> None:
    tree(tmp_path, {"train/a": 3})
    (tmp_path / "train/a/001.png").write_bytes(b"")
    whole = load(f"folder:{tmp_path}", skip_corrupt=True)
    assert len(whole) == 2
    for _ in range(2):
        with pytest.raises(VitreousError, match=r"001\.png"):
            load(f"folder:{tmp_path}")
    again = load(f"folder:{tmp_path}", skip_corrupt=True)
    assert again.fingerprint == whole.fingerprint
    assert again.skipped == whole.skipped
