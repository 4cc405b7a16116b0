"""`npz:path`: numpy files, which hold pictures as arrays, encoded one after the other, or encoded in sheets.

| arrays in a file | what they are |
|---|---|
| `images`, `labels` | uint8, n x h x w, n x h x w x 3 or n x 3 x h x w, and integers |
| `x_train`, `y_train`, `x_test`, `y_test` | the same by split; also `train_images`, `train_labels`, … |
| `bytes`, `offsets`, `labels` | picture i is encoded in `bytes[offsets[i]:offsets[i + 1]]` |
| `class_names` | strings, if the classes have names |

With k labels for each encoded picture it is a sheet: a grid of k equal squares, row by row. A path can be a file,
several with commas between, a pattern, a folder, or how the names begin: `npz:data/cifar10` is `data/cifar10*.npz`.
Files with "train", "test" or "val" in their name hold that split.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.sources.arrays import channels_last, label_numbers
from vitreous.data.sources.listing import (
    EVERY,
    WORDS,
    Listing,
    NoSplit,
    check_classes,
    few,
    hold_out,
    key_of,
    listing,
    stamps,
)
from vitreous.errors import VitreousError

MARK = re.compile(f"(?<![a-z])({'|'.join(EVERY)})(?![a-z])")
"""A split in the name of a file."""

WHOLE = (("images", "labels"), ("bytes", "labels"))
"""Names of the arrays in a file that does not tell splits apart."""


@dataclass(frozen=True)
class Part:
    """What one file holds of a split."""

    file: Path
    name: str  # of the array
    pictures: NDArray[np.uint8] | list[bytes]
    labels: NDArray[np.int64]
    classes: tuple[str, ...] | None
    per: int = 1


def find(where: str, split: str, root: Path) -> Listing:
    """The images of one split, in the order of the files."""
    found = files(where)
    marks = {file: mark[1] for file in found if (mark := MARK.search(file.stem.lower()))}
    if marks and split != "all":
        word = next((word for word in WORDS[split] if word in marks.values()), None)
        if word is None:
            names = few([file.name for file in found])
            raise NoSplit(
                f"No file of 'npz:{where}' holds the split {split!r}, only {names} is there; ask for another."
            )
        found = [file for file in found if marks.get(file) == word]
    parts = [part for file in found for part in _parts(file, split)]
    if not parts:
        raise NoSplit(f"'npz:{where}' has no arrays for the split {split!r}; ask for another.")
    whole = _joined(parts)
    if marks or parts[0].name not in dict(WHOLE):
        return whole
    if split != "all" and (whole.labels < 0).all():
        raise NoSplit(f"'npz:{where}' holds images but no labels; split 'all' takes them without.")
    return hold_out(whole, split, [str(row) for row in range(len(whole))])


def files(where: str) -> list[Path]:
    """All that a name means."""
    return [file for part in where.split(",") for file in _files(part.strip())]


def _files(part: str) -> list[Path]:
    """A file, a pattern, a folder, or how names begin."""
    path = Path(part).expanduser()
    if path.is_file():
        return [path]
    patterns = [str(path), str(path / "*.npz") if path.is_dir() else f"{path}*.npz"]
    found = {Path(name) for pattern in patterns for name in glob(pattern) if name.endswith(".npz")}
    if not found:
        raise VitreousError(
            f"There is no file {part!r}, and none whose name begins so and ends in .npz."
        )
    return sorted(found)


def _parts(file: Path, split: str) -> Iterator[Part]:
    """What a file holds of a split; of `all`, everything."""
    if not zipfile.is_zipfile(file):
        raise VitreousError(f"{str(file)!r} is not an npz file, or is damaged.")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            words = EVERY if split == "all" else WORDS[split]
            pairs = [
                pair
                for word in words
                for pair in ((f"x_{word}", f"y_{word}"), (f"{word}_images", f"{word}_labels"))
            ]
            found = [pair for pair in (*WHOLE, *pairs) if pair[0] in arrays.files]
            if not found and not any(MARK.search(name) for name in arrays.files):
                there = few(arrays.files) or "nothing"
                raise VitreousError(
                    f"{str(file)!r} has no arrays 'images' and 'labels', it has {there}."
                )
            names = arrays["class_names"] if "class_names" in arrays.files else None
            classes = None if names is None else tuple(names.astype(str).tolist())
            for images, labels in found if split == "all" else found[:1]:
                yield _part(file, arrays, images, labels, classes)
    except (zipfile.BadZipFile, OSError, ValueError, AttributeError, TypeError) as error:
        if "pickle" in str(error):
            raise VitreousError(
                f"{str(file)!r} holds Python objects: a pickle, which can run code, so Vitreous does not load it; "
                "save images as uint8, labels as integers and names as np.array(names, dtype=str)."
            ) from error
        raise VitreousError(
            f"{str(file)!r} is not an npz file, or is damaged ({error})."
        ) from error


def _part(
    file: Path, arrays: Any, images: str, labels: str, classes: tuple[str, ...] | None
) -> Part:
    what = f"{images!r} of {str(file)!r}"
    known = arrays[labels] if labels in arrays.files else None
    if images != "bytes":
        pictures = channels_last(arrays[images], what)
        known = np.full(len(pictures), -1) if known is None else known
        return Part(
            file,
            images,
            pictures,
            label_numbers(known, len(pictures), f"{labels!r} of {str(file)!r}"),
            classes,
        )
    if "offsets" not in arrays.files:
        raise VitreousError(
            f"{str(file)!r} has 'bytes' but no 'offsets', which say where each picture begins and ends."
        )
    content, offsets = arrays["bytes"].tobytes(), arrays["offsets"].tolist()
    if offsets != sorted(offsets) or offsets[0] < 0 or offsets[-1] > len(content):
        raise VitreousError(
            f"The 'offsets' of {str(file)!r} do not lie in order within its {len(content)} 'bytes'."
        )
    encoded = [content[start:end] for start, end in pairwise(offsets)]
    known = np.full(len(encoded), -1) if known is None else known
    per = max(len(known) // max(len(encoded), 1), 1)
    return Part(
        file,
        images,
        encoded,
        label_numbers(known, len(encoded) * per, f"'labels' of {str(file)!r}"),
        classes,
        per,
    )


def _joined(parts: list[Part]) -> Listing:
    """Several files as one."""
    first = parts[0]
    for part in parts[1:]:
        check_classes(str(part.file), part.classes or (), first.classes or ())
        kinds = [(each.per, np.shape(each.pictures)[1:]) for each in (first, part)]
        if kinds[0] != kinds[1]:
            raise VitreousError(
                f"{str(first.file)!r} and {str(part.file)!r} hold images of different kinds; load one."
            )
    starts = np.cumsum([0, *(len(part.labels) for part in parts)])

    def called(row: int) -> str:
        which = int(np.searchsorted(starts, row, side="right")) - 1
        return f"{parts[which].file}, image {row - starts[which]}"

    if isinstance(first.pictures, np.ndarray):
        pictures: Any = (
            first.pictures if len(parts) == 1 else np.concatenate([part.pictures for part in parts])
        )
    else:
        pictures = [picture for part in parts for picture in part.pictures]
    labels = np.concatenate([part.labels for part in parts])
    key = key_of(stamps(part.file for part in parts), [part.name for part in parts])
    return listing(pictures, labels, first.classes, called, key, first.per)
