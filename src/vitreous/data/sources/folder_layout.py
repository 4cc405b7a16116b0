"""Split and class of a picture from its path: `train/cat/1.jpg`, `cat/1.jpg` or `1.jpg`."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.data.sources.listing import (
    ALL_SPLIT_NAMES,
    SPLIT_NAMES,
    Listing,
    NoSplit,
    check_classes,
    enumerate_few,
    hold_out,
    list_all,
)

SPLIT_IN_NAME = re.compile(f"(?<![a-z])({'|'.join(ALL_SPLIT_NAMES)})(?![a-z])")
"""Finds the split in a file name: `shards-train-000.tar`, `val.parquet`."""

log = logging.getLogger("vitreous")


def split_folders(folders: Mapping[str, bool]) -> dict[str, str]:
    """The folders that are splits, by our name of the split; empty if they are classes.

    The values of `folders` say whether a folder has subfolders. A folder "train" with pictures next
    to other such folders is a class, the vehicle.
    """
    by_word = {name.lower(): name for name in folders}
    splits = {word: by_word[word] for word in ALL_SPLIT_NAMES if word in by_word}
    nothing_else = len(splits) == len(folders)
    return splits if nothing_else or any(folders[name] for name in splits.values()) else {}


def split_word(split: str, words: Sequence[str], where: str) -> str:
    """The name among `words` that means a split; raises if there is none."""
    for word in SPLIT_NAMES[split]:
        if word in words:
            return word
    known = enumerate_few(list(words))
    raise NoSplit(f"{where!r} has no split {split!r}, only {known}; ask for that one.")


def files_of_split(files: Sequence[Path], split: str, where: str) -> tuple[list[Path], bool]:
    """The files of a split, and whether file names tell the split."""
    matches = ((file, SPLIT_IN_NAME.search(file.stem.lower())) for file in files)
    word_of = {file: match[1] for file, match in matches if match}
    if not word_of or split == "all":
        return list(files), bool(word_of)
    word = split_word(split, list(dict.fromkeys(word_of.values())), where)
    return [file for file in files if word_of.get(file) == word], True


def list_by_path(
    pictures: Sequence[Any],
    paths: Sequence[str],
    split: str,
    where: str,
    describe_row: Callable[[int], str],
    key: str,
) -> Listing:
    """List the pictures of a split, if split and class are parts of their paths."""
    parts = [path.split("/") for path in paths]
    splits = _splits_in(paths)
    everything = list_all(pictures, np.full(len(parts), -1), (), describe_row, key)

    def in_classes(rows: Sequence[int], depth: int) -> Listing:
        """List these pictures, with the folder at `depth` as class."""
        labels, classes = _label_by_folder([parts[row][depth:] for row in rows], where)
        chosen = everything.take(np.asarray(rows, np.int64))
        chosen = replace(chosen, labels=labels, classes=tuple(classes))
        return chosen.take(np.flatnonzero(labels >= 0)) if classes else chosen

    if not splits:
        complete = in_classes(range(len(parts)), 0)
        return hold_out_labelled(complete, split, where, [paths[row] for row in complete.rows])
    words = list(splits) if split == "all" else [split_word(split, list(splits), where)]
    chosen = [
        in_classes([row for row, part in enumerate(parts) if part[0] == splits[word]], 1)
        for word in words
    ]
    for word, listing in zip(words, chosen, strict=True):
        here, there = listing.classes or (), chosen[0].classes or ()
        check_classes(f"{splits[word]!r} in {where!r}", here, there)
    rows = np.concatenate([listing.rows for listing in chosen])
    labels = np.concatenate([listing.labels for listing in chosen])
    return replace(chosen[0], rows=rows, labels=labels)


def has_split_folders(paths: Sequence[str]) -> bool:
    """Whether the first folders of some paths are splits."""
    return bool(_splits_in(paths))


def _splits_in(paths: Sequence[str]) -> dict[str, str]:
    folders: defaultdict[str, bool] = defaultdict(bool)
    for path in paths:
        first, *rest = path.split("/")
        if rest:
            folders[first] |= len(rest) > 1
    return split_folders(folders)


def hold_out_labelled(
    complete: Listing, split: str, where: str, names: Sequence[str] | None = None
) -> Listing:
    """One split of pictures without splits; they must have labels unless `split` is "all"."""
    if split != "all" and (complete.labels < 0).all():
        raise NoSplit(
            f"{where!r} holds images but no labels, so none can be held out for the split "
            f"{split!r}; take split 'all'."
        )
    return hold_out(complete, split, names)


def _label_by_folder(
    parts: Sequence[Sequence[str]], where: str
) -> tuple[NDArray[np.int64], list[str]]:
    """Number the folders of the pictures, -1 outside of any; return also their names."""
    classes = sorted({part[0] for part in parts if len(part) > 1})
    number = {name: label for label, name in enumerate(classes)}
    labels = np.array([number[part[0]] if len(part) > 1 else -1 for part in parts], np.int64)
    if classes:
        warn_of_loose(int((labels < 0).sum()), where)
    return labels, classes


def warn_of_loose(count: int, where: str) -> None:
    """Warn about the number of pictures that are left out because they are in no class folder."""
    if count:
        pictures = "1 picture that lies" if count == 1 else f"{count:,} pictures that lie"
        log.warning("Left out of %r: %s in no folder of a class, as others do.", where, pictures)
