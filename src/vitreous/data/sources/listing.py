"""`Listing`: what a source holds, before a picture is decoded, and how a set without splits is split.

Every source (`folder`, `npz`, `torchvision_sets`, `hugging_face`) has one function, `find(where, split, root)`, that
gives a listing. Decoding, caching, normalising and all checks come after it and are the same for all.
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

WORDS = {
    "train": ("train", "training", "trainval"),
    "test": ("test", "testing", "val", "valid", "validation"),
    "val": ("val", "valid", "validation"),
}
"""What a split is called in the wild, the best word first: a set that is validated but not tested is tested on that."""

EVERY = tuple(dict.fromkeys(word for words in WORDS.values() for word in words))

HELD_OUT = 0.1
"""Share of each class that is the test split of a set without splits."""


class NoSplit(VitreousError):
    """A source that has no such split."""


@dataclass(frozen=True)
class Listing:
    """Pictures nobody has opened yet, and their labels."""

    pictures: (
        Sequence[Any] | NDArray[np.uint8]
    )  # paths, encoded bytes, Pillow images; or one array (n, h, w, 1 or 3)
    labels: Rows  # of `rows`; -1 where nobody knows
    classes: tuple[str, ...] | None  # None where classes have numbers but no names
    called: Callable[[int], str]  # what a row is called in an error: its path, or file and position
    key: str  # changes whenever the pixels might have; "" if that cannot be told
    rows: Rows  # which of the images are meant, in this order
    per: int = 1  # images in one picture: more than one is a sheet, a grid of equal squares
    whole: Listing | None = (
        None  # all images, where the set has no splits of its own and these are held out of it
    )

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: Rows) -> Listing:
        return replace(self, rows=self.rows[index], labels=self.labels[index])


def listing(
    pictures: Sequence[Any] | NDArray[np.uint8],
    labels: Sequence[int] | NDArray[Any],
    classes: Sequence[str] | None,
    called: Callable[[int], str],
    key: str,
    per: int = 1,
) -> Listing:
    """All images there are, in order."""
    known = np.asarray(labels, dtype=np.int64)
    names = None if classes is None else tuple(str(each) for each in classes)
    return Listing(pictures, known, names, called, key, np.arange(len(known)), per)


def hold_out(whole: Listing, split: str, names: Sequence[str]) -> Listing:
    """`split` of a set that has none: a tenth of each class is for testing, always the same.

    Which tenth is decided by a hash of each image's name, so that it does not depend on order, machine or seed. A class
    of one image is for training only.
    """
    if split == "all":
        return whole
    held = np.zeros(len(whole), dtype=bool)
    draw = np.array(
        [hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest() for name in names]
    )
    for label in np.unique(whole.labels):
        rows = np.flatnonzero(whole.labels == label)
        count = max(round(HELD_OUT * len(rows)), 1) if len(rows) > 1 else 0
        held[rows[np.argsort(draw[rows])[:count]]] = True
    return replace(
        whole.take(np.flatnonzero(held if split in ("test", "val") else ~held)), whole=whole
    )


def key_of(*parts: object) -> str:
    """One short word for whatever `parts` say."""
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:24]


def stamps(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Path, length and time of change of each file: what a decoded copy of it depends on."""
    return [
        (str(path.absolute()), stat.st_size, stat.st_mtime_ns)
        for path in files
        for stat in (path.stat(),)
    ]


def check_classes(what: str, here: Sequence[str], there: Sequence[str]) -> None:
    """The classes of a split have to be those of the training split, in the same order."""
    if list(here) == list(there):
        return
    extra, missing = sorted(set(here) - set(there)), sorted(set(there) - set(here))
    parts = [f"{few(extra)} only here"] * bool(extra) + [f"{few(missing)} only there"] * bool(
        missing
    )
    differ = " and ".join(parts) or "another order"
    raise VitreousError(
        f"The classes of {what} differ from those of the training split: {differ}; make them the same."
    )


def few(names: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
