"""`Listing`: the pictures of a source before decoding, and the held-out split of unsplit data.

Every source M (`folder`, `archives`, `npz`, …) has a function `list_M(where, split, root)` that
returns a listing. Decoding, caching, normalisation and all checks follow and are the same for all
sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import VitreousError

Rows = NDArray[np.int64]

SPLIT_NAMES = {
    "train": ("train", "training", "trainval"),
    "test": ("test", "testing", "val", "valid", "validation"),
    "val": ("val", "valid", "validation"),
}
"""Common names of a split, best first: without a test split the validation split is used."""

ALL_SPLIT_NAMES = tuple(dict.fromkeys(word for words in SPLIT_NAMES.values() for word in words))

HELD_OUT = 0.1
"""Share of each class that is the test split of a set without splits."""


class NoSplit(VitreousError):
    """The source has no such split."""


@dataclass(frozen=True)
class Listing:
    """Pictures before decoding, and their labels."""

    # Paths, encoded bytes or Pillow images; or one array (n, h, w, 1 or 3).
    pictures: Sequence[Any] | NDArray[np.uint8]
    labels: Rows  # of `rows`; -1 for unknown
    classes: tuple[str, ...] | None  # None if classes have numbers but no names
    describe_row: Callable[[int], str]  # for errors: a path, or a file and a position
    key: str  # changes whenever the pixels might have; "" if that is unknown
    rows: Rows  # the images of this listing, in order
    per: int = 1  # images in one picture: more than one is a sheet, a grid of equal squares
    complete: Listing | None = None  # all images, if the set has no splits and these are held out

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: Rows) -> Listing:
        return replace(self, rows=self.rows[index], labels=self.labels[index])


class LazyPictures(Sequence[Any]):
    """Pictures that are read one by one whenever they are needed."""

    def __init__(self, length: int, read: Callable[[int], Any]) -> None:
        self._length, self._read = length, read

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: Any) -> Any:
        return self._read(row)


def list_all(
    pictures: Sequence[Any] | NDArray[np.uint8],
    labels: Sequence[int] | NDArray[Any],
    classes: Sequence[str] | None,
    describe_row: Callable[[int], str],
    key: str,
    per: int = 1,
) -> Listing:
    """A listing of all pictures, in order."""
    numbers = np.asarray(labels, dtype=np.int64)
    names = None if classes is None else tuple(str(each) for each in classes)
    return Listing(pictures, numbers, names, describe_row, key, np.arange(len(numbers)), per)


def hold_out(complete: Listing, split: str, names: Sequence[str] | None = None) -> Listing:
    """One split of data without splits: a fixed tenth of each class is the test split.

    The tenth is chosen by a hash of each image's name (by default its row number), independent of
    order, machine and seed. A class with one image is for training only.
    """
    if split == "all":
        return complete
    names = [str(row) for row in range(len(complete))] if names is None else names
    hashes = [hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest() for name in names]
    order, held = np.array(hashes), np.zeros(len(complete), dtype=bool)
    for label in np.unique(complete.labels):
        rows = np.flatnonzero(complete.labels == label)
        count = max(round(HELD_OUT * len(rows)), 1) if len(rows) > 1 else 0
        held[rows[np.argsort(order[rows])[:count]]] = True
    chosen = held if split in ("test", "val") else ~held
    return replace(complete.take(np.flatnonzero(chosen)), complete=complete)


def cache_key(*parts: object) -> str:
    """24 hexadecimal digits that change when a part changes."""
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:24]


def file_stamps(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Path, size and modification time of each file, on which a decoded copy of it depends."""
    return [_stamp(path) for path in files]


def _stamp(file: Path) -> tuple[str, int, int]:
    try:
        stat = file.stat()
    except OSError:  # a broken link, which is reported by decoding
        return str(file.absolute()), -1, -1
    return str(file.absolute()), stat.st_size, stat.st_mtime_ns


def check_classes(what: str, here: Sequence[str], there: Sequence[str]) -> None:
    """Raise unless a split has the classes of the training split, in the same order."""
    if list(here) == list(there):
        return
    extra, missing = sorted(set(here) - set(there)), sorted(set(there) - set(here))
    parts = []
    if extra:
        parts.append(f"{enumerate_few(extra)} only here")
    if missing:
        parts.append(f"{enumerate_few(missing)} only there")
    difference = " and ".join(parts) or "another order"
    raise VitreousError(
        f"The classes of {what} differ from those of the training split: {difference}; make them "
        "the same."
    )


def enumerate_few(names: Sequence[str], most: int = 5) -> str:
    """List the first names, and the number of others."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def channels_last(array: NDArray[Any], what: str) -> NDArray[np.uint8]:
    """A view of uint8 images as (n, h, w, 1 or 3), from any usual order of axes."""
    if array.dtype != np.uint8:
        raise VitreousError(
            f"{what} is {array.dtype}; images are uint8, 0 to 255: convert it and save it again."
        )
    if array.ndim == 3:
        return array[..., None]
    if array.ndim == 4 and array.shape[3] in (1, 3):
        return array
    if array.ndim == 4 and array.shape[1] in (1, 3):
        return array.transpose(0, 2, 3, 1)
    shape = "x".join(map(str, array.shape))
    raise VitreousError(
        f"{what} is of shape {shape}; images are n x h x w, n x h x w x 3 or n x 3 x h x w."
    )


def label_numbers(array: NDArray[Any], count: int, what: str) -> NDArray[np.int64]:
    """Labels as integers, one for each of `count` images."""
    flat = array.reshape(-1)
    if not np.issubdtype(flat.dtype, np.integer):
        raise VitreousError(f"{what} is {flat.dtype}; labels are integers, counted from 0.")
    if len(flat) != count:
        raise VitreousError(
            f"{what} has {len(flat)} labels for {count} images; there has to be one for each."
        )
    return flat.astype(np.int64)
