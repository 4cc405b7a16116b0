"""Folders of pictures: one per class, with or without one per split, or a single folder."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from vitreous.data.sources.folder_layout import (
    hold_out_labelled,
    split_folders,
    split_word,
    warn_of_loose,
)
from vitreous.data.sources.listing import (
    Listing,
    cache_key,
    check_classes,
    enumerate_few,
    file_stamps,
    list_all,
)
from vitreous.data.sources.paths import PICTURES
from vitreous.errors import NoSuchPath, VitreousError

UNREADABLE = (
    ".heic", ".heif", ".jxl", ".svg", ".psd", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raw",
    ".orf", ".rw2", ".exr", ".hdr", ".dcm", ".nii", ".mp4", ".mov", ".avi",
)  # fmt: skip
"""Suffixes of images and videos that Vitreous cannot read, of which it warns (unlike text)."""

log = logging.getLogger("vitreous")


def list_folder(where: str, split: str, root: Path) -> Listing:
    """The pictures of one split, by class and then by name."""
    top = top_folder(where)
    splits = _splits(top)
    if not splits:
        complete = _pictures([top])
        names = [path.relative_to(top).as_posix() for path in complete.pictures]
        return hold_out_labelled(complete, split, where, names)
    warn_of_loose(len(_loose(top)), where)
    if split == "all":
        return _pictures(list(splits.values()))
    return _pictures([splits[split_word(split, list(splits), where)]])


def top_folder(where: str) -> Path:
    """The folder of this name; raise if it does not exist or cannot be read."""
    top = Path(where).expanduser()
    if not top.is_dir():
        if top.exists():
            raise VitreousError(f"{where!r} is a file, not a folder.")
        raise NoSuchPath("folder", where)
    next(top.iterdir(), None)  # raises if it may not be read
    return top


def _splits(top: Path) -> dict[str, Path]:
    """Folders of splits, by our name of the split."""
    splits = split_folders({path.name: bool(_folders(path)) for path in _folders(top)})
    return {word: top / name for word, name in splits.items()}


def _pictures(tops: list[Path]) -> Listing:
    """All pictures in the class folders under `tops`; without such folders, all pictures without
    labels."""
    classes = [path.name for path in _folders(tops[0])]
    for top in tops[1:]:
        check_classes(str(top), [path.name for path in _folders(top)], classes)
    labels, paths, empty = list[int](), list[Path](), list[Path]()
    for top in tops:
        places = [(label, top / name) for label, name in enumerate(classes)] or [(-1, top)]
        for label, place in places:
            inside = list(walk_pictures(place))
            labels += [label] * len(inside)
            paths += inside
            if not inside:
                empty.append(place)
        if classes:
            warn_of_loose(len(_loose(top)), str(top))
    if empty:
        raise VitreousError(_nothing_in(empty))
    names = [legible(name) for name in classes]
    key = cache_key(file_stamps(paths))
    return list_all(paths, labels, names, lambda row: legible(str(paths[row])), key)


def _nothing_in(folders: list[Path]) -> str:
    """The error message about folders without pictures, with what they contain."""
    files = [entry for folder in folders for entry in _visible(folder) if entry.is_file()]
    endings = Counter(file.suffix.lower() or "no ending" for file in files)
    there = ", ".join(f"{count} with {ending}" for ending, count in endings.most_common(4))
    others = "1 other file" if len(files) == 1 else f"{len(files):,} other files"
    only = f" but {others} ({there})" if files else ""
    names = enumerate_few([str(folder) for folder in folders])
    return f"There are no pictures in {names}{only}; Vitreous looks for {', '.join(PICTURES)}."


def _loose(top: Path) -> list[Path]:
    """Pictures directly in a folder."""
    return [path for path in _visible(top) if path.is_file() and _is_picture(path.name)]


def _is_picture(name: str) -> bool:
    return name.lower().endswith(PICTURES)


def legible(name: str) -> str:
    """A file name with escapes for bytes that are not UTF-8, which could not be printed."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _visible(top: Path) -> list[Path]:
    return sorted(path for path in top.iterdir() if not path.name.startswith("."))


def _folders(top: Path) -> list[Path]:
    return [path for path in _visible(top) if path.is_dir()]


def walk_pictures(top: Path) -> Iterator[Path]:
    """Pictures anywhere below `top`, by name. Follows links without cycles; skips hidden files."""
    visited = set[str]()
    unreadable = Counter[str]()
    for folder, folders, files in os.walk(top, followlinks=True, onerror=_cannot_read):
        real = os.path.realpath(folder)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        # os.walk continues with the entries that are left in this list, in this order
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.startswith("."):
                continue
            if _is_picture(name):
                yield Path(folder, name)
            elif name.lower().endswith(UNREADABLE):
                unreadable[os.path.splitext(name)[1].lower()] += 1
    for ending, count in unreadable.items():
        files_are = "1 file is" if count == 1 else f"{count:,} files are"
        log.warning("%s left out of %r: Vitreous cannot read %s.", files_are, str(top), ending)


def _cannot_read(error: OSError) -> None:
    """Raise an error for an unreadable folder, which os.walk would skip."""
    raise VitreousError(
        f"Cannot read the folder {legible(str(error.filename))!r}: {error.strerror}."
    ) from None
