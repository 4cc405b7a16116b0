"""`hf:name`: a set on the Hugging Face hub, or a folder of one, read with their `datasets` package."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.data.sources.arrays import label_numbers
from vitreous.data.sources.listing import WORDS, Listing, NoSplit, few, hold_out, key_of, listing
from vitreous.errors import VitreousError
from vitreous.hub import offline, reachable

SAVED = ("dataset_dict.json", "dataset_info.json", "state.json")
"""Files that `save_to_disk` leaves in a folder."""

LABELS = ("label", "labels", "fine_label")
"""Columns of labels that are taken before any other."""


def find(where: str, split: str, root: Path) -> Listing:
    """The images of one split: the column of images and the column of labels are found by their types."""
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise VitreousError(
            "Hugging Face datasets need one more package: pip install 'vitreous[hf]'."
        ) from error
    splits = _splits(where)
    if split == "all":
        return _listing(where, datasets.concatenate_datasets(list(splits.values())))
    if len(splits) == 1 and set(splits) <= set(WORDS["train"]):
        whole = _listing(where, next(iter(splits.values())))
        return hold_out(whole, split, [str(row) for row in range(len(whole))])
    word = next((word for word in WORDS[split] if word in splits), None)
    if word is None:
        raise NoSplit(
            f"'hf:{where}' has no split {split!r}, only {few(list(splits))}; ask for that one."
        )
    return _listing(where, splits[word])


def _splits(where: str) -> dict[str, Any]:
    """Every split there is, by its name."""
    import datasets

    path, _, config = where.partition(":")
    folder = Path(path).expanduser()
    try:
        if any((folder / name).is_file() for name in SAVED):
            found = datasets.load_from_disk(str(folder))
        elif folder.exists():
            found = datasets.load_dataset(str(folder), config or None)
        else:
            with nullcontext() if reachable() else offline():
                found = datasets.load_dataset(path, config or None)
    except (OSError, ValueError, RuntimeError) as error:
        why = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise VitreousError(f"Cannot load 'hf:{where}': {why}.") from error
    return dict(found) if isinstance(found, dict) else {"train": found}


def _listing(where: str, table: Any) -> Listing:
    import datasets

    images = [name for name, kind in table.features.items() if isinstance(kind, datasets.Image)]
    if len(images) != 1:
        kinds = few(
            [f"{name} ({type(kind).__name__})" for name, kind in table.features.items()], most=8
        )
        raise VitreousError(
            f"'hf:{where}' has {len(images)} columns of images and should have one; it has {kinds}."
        )
    named = [name for name, kind in table.features.items() if isinstance(kind, datasets.ClassLabel)]
    column = next((name for name in (*LABELS, *named) if name in table.features), None)
    names: Sequence[str] | None = ()
    labels = np.full(len(table), -1)
    if column is not None:
        names = getattr(table.features[column], "names", None)
        known = np.array([-1 if label is None else label for label in table[column]])
        labels = label_numbers(known, len(table), f"The column {column!r} of 'hf:{where}'")
    encoded = table.cast_column(images[0], datasets.Image(decode=False))
    key = key_of(table._fingerprint)
    return listing(
        Pictures(encoded, images[0]), labels, names, lambda row: f"'hf:{where}', image {row}", key
    )


class Pictures(Sequence[Any]):
    """The encoded pictures of a table, read when they are asked for."""

    def __init__(self, table: Any, column: str) -> None:
        self.table, self.column = table, column

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, row: Any) -> Any:
        cell = self.table[row][self.column]
        return cell["bytes"] if cell["bytes"] is not None else Path(cell["path"])
