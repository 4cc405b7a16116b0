"""`hf:name`: a dataset on the Hugging Face hub, or a folder of one, read with the `datasets`
package."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.data.sources.listing import (
    SPLIT_NAMES,
    LazyPictures,
    Listing,
    NoSplit,
    cache_key,
    enumerate_few,
    hold_out,
    label_numbers,
    list_all,
)
from vitreous.errors import VitreousError
from vitreous.hub import offline, reachable

SAVED = ("dataset_dict.json", "dataset_info.json", "state.json")
"""Files that `save_to_disk` leaves in a folder."""

LABELS = ("label", "labels", "fine_label")
"""Columns of labels that are preferred to others."""


def list_hugging_face(where: str, split: str, root: Path) -> Listing:
    """The images of one split; the types of the columns say which hold images and labels."""
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise VitreousError(
            "Hugging Face datasets need one more package: pip install 'vitreous[hf]'."
        ) from error
    splits = _splits(where)
    if split == "all":
        return _listing(where, datasets.concatenate_datasets(list(splits.values())))
    if len(splits) == 1 and set(splits) <= set(SPLIT_NAMES["train"]):
        return hold_out(_listing(where, next(iter(splits.values()))), split)
    word = next((word for word in SPLIT_NAMES[split] if word in splits), None)
    if word is None:
        known = enumerate_few(list(splits))
        raise NoSplit(f"'hf:{where}' has no split {split!r}, only {known}; ask for that one.")
    return _listing(where, splits[word])


def _splits(where: str) -> dict[str, Any]:
    """Every split there is, by its name."""
    import datasets

    path, _, config = where.partition(":")
    folder = Path(path).expanduser()
    try:
        if any((folder / name).is_file() for name in SAVED):
            loaded = datasets.load_from_disk(str(folder))
        elif folder.exists():
            loaded = datasets.load_dataset(str(folder), config or None)
        else:
            with nullcontext() if reachable() else offline():
                loaded = datasets.load_dataset(path, config or None)
    except (OSError, ValueError, RuntimeError) as error:
        why = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise VitreousError(f"Cannot load 'hf:{where}': {why}.") from error
    return dict(loaded) if isinstance(loaded, dict) else {"train": loaded}


def _listing(where: str, table: Any) -> Listing:
    import datasets

    features = table.features
    images = [name for name, kind in features.items() if isinstance(kind, datasets.Image)]
    if len(images) != 1:
        columns = [f"{name} ({type(kind).__name__})" for name, kind in features.items()]
        raise VitreousError(
            f"'hf:{where}' has {len(images)} columns of images and should have one; it has "
            f"{enumerate_few(columns, most=8)}."
        )
    named = [name for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    column = next((name for name in (*LABELS, *named) if name in features), None)
    names: Sequence[str] | None = ()
    labels = np.full(len(table), -1)
    if column is not None:
        names = getattr(features[column], "names", None)
        numbers = np.array([-1 if label is None else label for label in table[column]])
        labels = label_numbers(numbers, len(table), f"The column {column!r} of 'hf:{where}'")
    encoded = table.cast_column(images[0], datasets.Image(decode=False))

    def read(row: int) -> bytes | Path:
        cell = encoded[row][images[0]]
        return cell["bytes"] if cell["bytes"] is not None else Path(cell["path"])

    pictures, key = LazyPictures(len(table), read), cache_key(table._fingerprint)
    return list_all(pictures, labels, names, lambda row: f"'hf:{where}', image {row}", key)
