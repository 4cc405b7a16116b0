"""`folder:path`: pictures in folders named after their class, with or without a folder for each
split around them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from vitreous.data.sources.listing import (
    ALL_SPLIT_NAMES,
    SPLIT_NAMES,
    Listing,
    NoSplit,
    cache_key,
    check_classes,
    enumerate_few,
    file_stamps,
    hold_out,
    list_all,
)
from vitreous.errors import VitreousError

ENDINGS = (
    ".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm",
    ".avif", ".jp2",
)  # fmt: skip


def list_folder(where: str, split: str, root: Path) -> Listing:
    """The pictures of one split, by class and then by name."""
    top = top_folder(where)
    splits = _splits(top)
    if not splits:
        complete = _pictures([top])
        if not complete.classes and split != "all":
            raise NoSplit(
                f"{where!r} holds pictures but no folders of classes; split 'all' takes them "
                "without labels."
            )
        names = [path.relative_to(top).as_posix() for path in complete.pictures]
        return hold_out(complete, split, names)
    if split == "all":
        return _pictures(list(splits.values()))
    chosen = next((splits[word] for word in SPLIT_NAMES[split] if word in splits), None)
    if chosen is None:
        known = enumerate_few(list(splits))
        raise NoSplit(f"{where!r} has no split {split!r}, only {known}; ask for that one.")
    return _pictures([chosen])


def top_folder(where: str) -> Path:
    """The folder of this name; raise if it is none or cannot be read."""
    top = Path(where).expanduser()
    if not top.is_dir():
        is_file = top.exists()
        raise VitreousError(
            f"{where!r} is a file, not a folder." if is_file else f"There is no folder {where!r}."
        )
    next(top.iterdir(), None)  # raises if it may not be read
    return top


def _splits(top: Path) -> dict[str, Path]:
    """Folders of splits. A folder of pictures called "train" among other such folders is a
    class: the vehicle."""
    folders = _folders(top)
    by_name = {path.name.lower(): path for path in folders}
    splits = {word: by_name[word] for word in ALL_SPLIT_NAMES if word in by_name}
    nothing_else = len(splits) == len(folders)
    return splits if nothing_else or any(_folders(path) for path in splits.values()) else {}


def _pictures(tops: list[Path]) -> Listing:
    """All pictures in the folders of classes under `tops`; without such folders, all pictures,
    without labels."""
    classes = [path.name for path in _folders(tops[0])]
    for top in tops[1:]:
        check_classes(str(top), [path.name for path in _folders(top)], classes)
    labels, paths, empty = list[int](), list[Path](), list[str]()
    for top in tops:
        places = [(label, top / name) for label, name in enumerate(classes)] or [(-1, top)]
        for label, place in places:
            inside = list(_walk(place))
            labels += [label] * len(inside)
            paths += inside
            if not inside:
                empty.append(str(place))
    if empty:
        raise VitreousError(
            f"There are no pictures in {enumerate_few(empty)}; Vitreous looks for "
            f"{', '.join(ENDINGS)}."
        )
    names = [_legible(name) for name in classes]
    key = cache_key(file_stamps(paths))
    return list_all(paths, labels, names, lambda row: _legible(str(paths[row])), key)


def _legible(name: str) -> str:
    """A file name with escapes for bytes that are no UTF-8, which could not be printed."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _folders(top: Path) -> list[Path]:
    return sorted(path for path in top.iterdir() if path.is_dir() and not path.name.startswith("."))


def _walk(top: Path) -> Iterator[Path]:
    """Pictures anywhere below `top`, by name. Links are followed, never in a circle; hidden
    files are skipped."""
    visited = set[str]()
    for folder, folders, files in os.walk(top, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        # os.walk continues with what is left in this very list, in this order.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and name.lower().endswith(ENDINGS):
                yield Path(folder, name)
