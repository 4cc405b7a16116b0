"""Names of datasets, checked without importing torch: a wrong name is reported within a second.

A name is a path (`photos`, `photos.zip`, `photos/*.jpg`), or a source and a name within it:
`npz:PATH`, `tv:NAME`, `hf:NAME`, `world:TASK`. `folder:` may precede any path.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import PurePath

from vitreous.data.sources.paths import reader_of
from vitreous.errors import NoSuchPath, UnknownName, VitreousError, nearest_names

SPLITS = ("train", "test", "val", "all")

SOURCES = ("folder", "npz", "tv", "hf", "world")
"""Prefixes of names, before a colon."""

TASKS = (
    "shapes", "textures", "colours", "cues", "conflict",
    "syn-a:shape", "syn-a:texture", "syn-a:cues", "syn-a:conflict",
    "syn-b", "syn-b:four", "syn-c", "syn-c:row", "syn-c:column", "syn-d", "syn-e",
)  # fmt: skip
"""Synthetic tasks; a test compares them with `vitreous.data.world.TASKS`."""

MODULES = {"npz": "npz", "tv": "torchvision_sets", "hf": "hugging_face"}
"""Modules of `vitreous.data.sources` by prefix of a name; `reader_of` finds those for paths. Every
module M has a function `list_M(where, split, root)`."""

CHECKS = {
    "folder": "top_folder",
    "picture_files": "picture_paths",
    "archives": "archive_paths",
    "parquet": "parquet_paths",
    "npz": "npz_files",
    "torchvision_sets": "check_torchvision_set",
}
"""Functions of these modules that raise if a name does not exist."""


def parse_dataset(name: str) -> tuple[str, str]:
    """The module that reads a dataset ("world" for synthetic images), and the name for it.

    >>> parse_dataset("tv:CIFAR10"), parse_dataset("world:shapes")
    (('torchvision_sets', 'CIFAR10'), ('world', 'shapes'))
    """
    source, colon, where = name.partition(":")
    is_drive = len(source) == 1  # C:\photos
    if not colon or is_drive or source not in SOURCES:
        return _parse_path(name, "" if is_drive else source if colon else ""), name
    if not where.strip():
        raise VitreousError(f"{name!r} names no images: something has to follow the colon.")
    if source == "world":
        return source, where
    return (reader_of(where) if source == "folder" else MODULES[source]), where


def plain_name(name: str) -> str:
    """The name, with its path written in one way: `./photos/` is photos.

    >>> plain_name("./photos/"), plain_name("folder:photos//cats/"), plain_name("world:shapes")
    ('photos', 'folder:photos/cats', 'world:shapes')
    """
    source, colon, where = name.partition(":")
    if not colon or source not in SOURCES:
        return str(PurePath(name))
    return f"{source}:{PurePath(where)}" if source in ("folder", "npz") else name


def _parse_path(name: str, source: str) -> str:
    """The module that reads a path; errors say whether the source or the dataset is unknown."""
    if not name.strip():
        raise VitreousError(f"A dataset needs a name, and {name!r} is none: {_forms()}.")
    try:
        return reader_of(name)
    except NoSuchPath as error:
        nearest = error.nearest
    if source and not nearest:
        raise UnknownName("source of images", source, SOURCES, f"Images are {_forms()}.")
    sets = import_module("vitreous.data.sources.torchvision_sets").SETS
    known = {task.lower(): f"world:{task}" for task in TASKS}
    known |= {each.lower(): f"tv:{each}" for each in sets}
    near = nearest_names(name.lower(), known, count=1)
    hint = f"Images are {_forms()}."
    if near and len(name) > 2 and not nearest:
        hint = f"Did you mean {known[near[0]]}? {hint}"
    raise NoSuchPath("file or folder", name, hint=hint)


def _forms() -> str:
    return "a path, npz:PATH, tv:NAME, hf:NAME or world:TASK"


def check_dataset(name: str, split: str | None = None) -> None:
    """Raise if there is no such dataset or split; names that only a download can check pass."""
    if split is not None and split not in SPLITS:
        raise UnknownName("split", split, SPLITS, f"A split is one of {', '.join(SPLITS)}.")
    if "\0" in name:
        raise VitreousError(f"{name!r} holds a NUL character, which no name of a file has.")
    try:
        module, where = parse_dataset(name)
        if module == "world" and where not in TASKS:
            raise UnknownName("synthetic dataset", where, TASKS, f"There are {', '.join(TASKS)}.")
        if module in CHECKS:
            getattr(import_module(f"vitreous.data.sources.{module}"), CHECKS[module])(where)
    except (OSError, RuntimeError, ValueError) as error:
        # a path that is too long, unreadable, or of an unknown user
        raise VitreousError(
            f"{name!r} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from None
