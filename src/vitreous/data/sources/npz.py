"""`npz:path`: numpy files with pictures as arrays, encoded one after the other, or encoded in
sheets.

| arrays in a file | what they are |
|---|---|
| `images`, `labels` | uint8, n x h x w, n x h x w x 3 or n x 3 x h x w, and integers |
| `x_train`, `y_train`, `x_test`, `y_test` | the same by split; also `train_images`, … |
| `bytes`, `offsets`, `labels` | picture i is encoded in `bytes[offsets[i]:offsets[i + 1]]` |
| `class_names` | strings, if the classes have names |

With k labels for each encoded picture it is a sheet: a grid of k equal squares, row by row. A path
can be a file, several with commas between, a pattern, a folder, or how the names begin:
`npz:data/cifar10` is `data/cifar10*.npz`. Files with "train", "test" or "val" in their name hold
that split.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.sources.folder_layout import SPLIT_IN_NAME, files_of_split, hold_out_labelled
from vitreous.data.sources.listing import (
    ALL_SPLIT_NAMES,
    SPLIT_NAMES,
    Listing,
    NoSplit,
    cache_key,
    channels_last,
    check_classes,
    enumerate_few,
    file_stamps,
    label_numbers,
    list_all,
)
from vitreous.errors import VitreousError

WITHOUT_SPLIT = (("images", "labels"), ("bytes", "labels"))
"""Names of the arrays in a file that has no splits."""


@dataclass(frozen=True)
class _Part:
    """The images of one split in one file."""

    file: Path
    name: str  # of the array
    pictures: NDArray[np.uint8] | list[bytes]
    labels: NDArray[np.int64]
    classes: tuple[str, ...] | None
    per: int = 1


def list_npz(where: str, split: str, root: Path) -> Listing:
    """The images of one split, in the order of the files."""
    files, by_name = files_of_split(npz_files(where), split, f"npz:{where}")
    parts = [part for file in files for part in _parts(file, split)]
    if not parts:
        raise NoSplit(f"'npz:{where}' has no arrays for the split {split!r}; ask for another.")
    listing = _join(parts)
    if by_name or parts[0].name not in dict(WITHOUT_SPLIT):
        return listing
    return hold_out_labelled(listing, split, f"npz:{where}")


def npz_files(where: str) -> list[Path]:
    """The files of a name: files, patterns, folders or prefixes, separated by commas."""
    files = []
    for part in map(str.strip, where.split(",")):
        path = Path(part).expanduser()
        if path.is_file():
            files.append(path)
            continue
        patterns = [str(path), str(path / "*.npz") if path.is_dir() else f"{path}*.npz"]
        names = {name for pattern in patterns for name in glob(pattern) if name.endswith(".npz")}
        if not names:
            raise VitreousError(
                f"There is no file {part!r}, and none whose name begins so and ends in .npz."
            )
        files += sorted(map(Path, names))
    return files


def _parts(file: Path, split: str) -> list[_Part]:
    """The images of a split in a file; for `all`, of every split."""
    if not zipfile.is_zipfile(file):
        raise VitreousError(f"{str(file)!r} is not an npz file, or is damaged.")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            names = arrays["class_names"] if "class_names" in arrays.files else None
            classes = None if names is None else tuple(names.astype(str).tolist())
            pairs = _array_names(file, arrays.files, split)
            return [_read_part(file, arrays, *pair, classes) for pair in pairs]
    except (zipfile.BadZipFile, OSError, ValueError, AttributeError, TypeError) as error:
        if "pickle" in str(error):
            raise VitreousError(
                f"{str(file)!r} holds Python objects: a pickle, which can run code, so Vitreous "
                "does not load it; save images as uint8, labels as integers and names as "
                "np.array(names, dtype=str)."
            ) from error
        raise VitreousError(
            f"{str(file)!r} is not an npz file, or is damaged ({error})."
        ) from error


def _array_names(file: Path, present: list[str], split: str) -> list[tuple[str, str]]:
    """Names of the arrays of images and labels of a split; for `all`, of every split."""
    pairs = list(WITHOUT_SPLIT)
    for word in ALL_SPLIT_NAMES if split == "all" else SPLIT_NAMES[split]:
        pairs += [(f"x_{word}", f"y_{word}"), (f"{word}_images", f"{word}_labels")]
    pairs = [pair for pair in pairs if pair[0] in present]
    if not pairs and not any(SPLIT_IN_NAME.search(name) for name in present):
        there = enumerate_few(present) or "nothing"
        raise VitreousError(f"{str(file)!r} has no arrays 'images' and 'labels', it has {there}.")
    return pairs if split == "all" else pairs[:1]


def _read_part(
    file: Path, arrays: Any, images: str, labels: str, classes: tuple[str, ...] | None
) -> _Part:
    per = 1
    pictures: NDArray[np.uint8] | list[bytes]
    known = arrays[labels] if labels in arrays.files else None
    if images == "bytes":
        pictures = _encoded(file, arrays)
        if known is not None:
            per = max(len(known) // max(len(pictures), 1), 1)
    else:
        pictures = channels_last(arrays[images], f"{images!r} of {str(file)!r}")
    if known is None:
        known = np.full(len(pictures), -1)
    numbers = label_numbers(known, len(pictures) * per, f"{labels!r} of {str(file)!r}")
    return _Part(file, images, pictures, numbers, classes, per)


def _encoded(file: Path, arrays: Any) -> list[bytes]:
    """The encoded pictures in the arrays 'bytes' and 'offsets'."""
    if "offsets" not in arrays.files:
        raise VitreousError(
            f"{str(file)!r} has 'bytes' but no 'offsets', which say where each picture begins and "
            "ends."
        )
    content, offsets = arrays["bytes"].tobytes(), arrays["offsets"].tolist()
    if offsets != sorted(offsets) or offsets[0] < 0 or offsets[-1] > len(content):
        raise VitreousError(
            f"The 'offsets' of {str(file)!r} do not lie in order within its {len(content)} 'bytes'."
        )
    return [content[start:end] for start, end in pairwise(offsets)]


def _join(parts: list[_Part]) -> Listing:
    """Join the images of several files, which must have the same form, to one listing."""
    first = parts[0]
    for part in parts[1:]:
        check_classes(str(part.file), part.classes or (), first.classes or ())
        if (part.per, np.shape(part.pictures)[1:]) != (first.per, np.shape(first.pictures)[1:]):
            raise VitreousError(
                f"{str(first.file)!r} and {str(part.file)!r} hold images of different kinds; load "
                "one."
            )
    starts = np.cumsum([0, *(len(part.labels) for part in parts)])

    def describe_row(row: int) -> str:
        which = int(np.searchsorted(starts, row, side="right")) - 1
        return f"{parts[which].file}, image {row - starts[which]}"

    pictures: Any = first.pictures
    if not isinstance(pictures, np.ndarray):
        pictures = [picture for part in parts for picture in part.pictures]
    elif len(parts) > 1:
        pictures = np.concatenate([part.pictures for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    key = cache_key(file_stamps(part.file for part in parts), [part.name for part in parts])
    return list_all(pictures, labels, first.classes, describe_row, key, first.per)
