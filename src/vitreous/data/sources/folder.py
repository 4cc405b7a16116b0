"""`folder:path`: pictures in folders named after their class, with or without a folder for each split around them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

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

ENDINGS = (
    ".jpg",
    ".jpeg",
    ".png",
    ".webp",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
    ".avif",
    ".jp2",
)


def find(where: str, split: str, root: Path) -> Listing:
    """The pictures of one split, by class and then by name."""
    home = top(where)
    splits = _splits(home)
    if not splits:
        whole = _pictures([home])
        if not whole.classes and split != "all":
            raise NoSplit(
                f"{where!r} holds pictures but no folders of classes; split 'all' takes them without labels."
            )
        return hold_out(
            whole, split, [path.relative_to(home).as_posix() for path in whole.pictures]
        )
    if split == "all":
        return _pictures(list(splits.values()))
    found = next((splits[word] for word in WORDS[split] if word in splits), None)
    if found is None:
        raise NoSplit(
            f"{where!r} has no split {split!r}, only {few(list(splits))}; ask for that one."
        )
    return _pictures([found])


def top(where: str) -> Path:
    """The folder that is meant, if it is one."""
    home = Path(where).expanduser()
    if not home.is_dir():
        is_file = home.exists()
        raise VitreousError(
            f"{where!r} is a file, not a folder." if is_file else f"There is no folder {where!r}."
        )
    next(home.iterdir(), None)  # whether it may be read at all
    return home


def _splits(top: Path) -> dict[str, Path]:
    """Folders of splits. A folder of pictures called "train" among other such folders is a class: the vehicle."""
    folders = _folders(top)
    inside = {path.name.lower(): path for path in folders}
    splits = {word: inside[word] for word in EVERY if word in inside}
    only = len(splits) == len(folders)
    return splits if only or any(_folders(path) for path in splits.values()) else {}


def _pictures(tops: list[Path]) -> Listing:
    """All pictures in the folders of classes under `tops`; without such folders, all that lie there, with no labels."""
    classes = [path.name for path in _folders(tops[0])]
    for top in tops[1:]:
        check_classes(str(top), [path.name for path in _folders(top)], classes)
    found = [
        (label, path)
        for top in tops
        for label, name in enumerate(classes)
        for path in _walk(top / name)
    ]
    names = [_legible(name) for name in classes]
    if not classes:
        found = [(-1, path) for top in tops for path in _walk(top)]
    places = [top / name for top in tops for name in classes] or tops
    filled = {parent for _, path in found for parent in path.parents}
    if empty := [str(place) for place in places if place not in filled]:
        raise VitreousError(
            f"There are no pictures in {few(empty)}; Vitreous looks for {', '.join(ENDINGS)}."
        )
    paths = [path for _, path in found]
    called = partial(_called, paths)
    return listing(paths, [label for label, _ in found], names, called, key_of(stamps(paths)))


def _called(paths: list[Path], row: int) -> str:
    return _legible(str(paths[row]))


def _legible(name: str) -> str:
    """A file's name may be any bytes; those that are no UTF-8 are written as such, because nobody could print them."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _folders(top: Path) -> list[Path]:
    return sorted(path for path in top.iterdir() if path.is_dir() and not path.name.startswith("."))


def _walk(top: Path) -> Iterator[Path]:
    """Pictures anywhere below `top`, by name. Links are followed, never in a circle; hidden files are left alone."""
    seen = set[str]()
    for folder, folders, files in os.walk(top, followlinks=True):
        real = os.path.realpath(folder)
        folders[:] = (
            sorted(name for name in folders if not name.startswith(".")) if real not in seen else []
        )
        visible = () if real in seen else sorted(name for name in files if not name.startswith("."))
        seen.add(real)
        yield from (Path(folder, name) for name in visible if name.lower().endswith(ENDINGS))
