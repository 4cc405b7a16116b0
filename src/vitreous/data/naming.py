"""Which images there are by name, known without importing torch: a wrong name is reported within a second."""

from __future__ import annotations

from pathlib import Path

from vitreous.errors import UnknownName, VitreousError

SPLITS = ("train", "test", "val", "all")

SOURCES = {"folder": "folder", "npz": "npz", "tv": "torchvision_sets", "hf": "hugging_face"}
"""Prefix and module; each module has a function `find(where, split, root)`."""

TASKS = (
    "shapes", "textures", "colours", "cues", "conflict", "syn-a:shape", "syn-a:texture", "syn-a:cues", "syn-a:conflict",
    "syn-b", "syn-b:four", "syn-c", "syn-c:row", "syn-c:column", "syn-d", "syn-e",
)  # fmt: skip
"""Of the embedded world, as a test finds them there."""


def check(name: str, split: str | None = None) -> None:
    """An error if there are no such images; what only a download could tell passes."""
    source, colon, where = name.partition(":")
    if split is not None and split not in SPLITS:
        raise UnknownName("split", split, SPLITS, f"A split is one of {', '.join(SPLITS)}.")
    if not colon or source not in (*SOURCES, "world"):
        raise unknown(name, source)
    if not where.strip():
        raise VitreousError(f"{name!r} names no images: something has to follow the colon.")
    if "\0" in where:
        raise VitreousError(f"{name!r} holds a NUL character, which no name of a file has.")
    if source == "world" and where not in TASKS:
        raise UnknownName("task of the world", where, TASKS, f"There are {', '.join(TASKS)}.")
    try:
        _check_source(source, where)
    except (OSError, RuntimeError) as error:  # too long, not to be read, a user who does not exist
        raise VitreousError(
            f"{name!r} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from None


def _check_source(source: str, where: str) -> None:
    if source == "folder":
        from vitreous.data.sources.folder import top

        top(where)
    elif source == "npz":
        from vitreous.data.sources.npz import files

        files(where)
    elif source == "tv":
        from vitreous.data.sources.torchvision_sets import check_name

        check_name(where)


def unknown(name: str, source: str) -> VitreousError:
    """Of a name without a known prefix."""
    try:
        there = bool(name) and Path(name).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        there = False
    if there:
        kind = "npz" if name.endswith(".npz") else "folder"
        return VitreousError(
            f"{name!r} does not say what it is; a folder or file is written '{kind}:{name}'."
        )
    known = [*SOURCES, "world"]
    return UnknownName(
        "source of images", source, known, f"A name begins with {':, '.join(known)}:."
    )
