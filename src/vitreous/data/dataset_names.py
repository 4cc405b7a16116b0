"""Names of data sets, checked without importing torch: a wrong name is reported within a second."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from vitreous.errors import UnknownName, VitreousError

SPLITS = ("train", "test", "val", "all")

SOURCES = {"folder": "folder", "npz": "npz", "tv": "torchvision_sets", "hf": "hugging_face"}
"""Prefix and module of `vitreous.data.sources`; a module M has a function `list_M(where, split,
root)`."""

TASKS = (
    "shapes", "textures", "colours", "cues", "conflict",
    "syn-a:shape", "syn-a:texture", "syn-a:cues", "syn-a:conflict",
    "syn-b", "syn-b:four", "syn-c", "syn-c:row", "syn-c:column", "syn-d", "syn-e",
)  # fmt: skip
"""Tasks of the embedded world; a test compares them with `vitreous.data.world.TASKS`."""


def check_dataset(name: str, split: str | None = None) -> None:
    """Raise if there is no such data set or split; names that only a download can check pass."""
    source, colon, where = name.partition(":")
    if split is not None and split not in SPLITS:
        raise UnknownName("split", split, SPLITS, f"A split is one of {', '.join(SPLITS)}.")
    if not colon or source not in (*SOURCES, "world"):
        raise _unknown_source(name, source)
    if not where.strip():
        raise VitreousError(f"{name!r} names no images: something has to follow the colon.")
    if "\0" in where:
        raise VitreousError(f"{name!r} holds a NUL character, which no name of a file has.")
    if source == "world" and where not in TASKS:
        raise UnknownName("task of the world", where, TASKS, f"There are {', '.join(TASKS)}.")
    checks = {"folder": "top_folder", "npz": "npz_files", "tv": "check_torchvision_set"}
    if source not in checks:
        return
    try:
        module = import_module(f"vitreous.data.sources.{SOURCES[source]}")
        getattr(module, checks[source])(where)
    except (OSError, RuntimeError) as error:  # too long, not to be read, a user who does not exist
        raise VitreousError(
            f"{name!r} cannot be read: {getattr(error, 'strerror', None) or error}."
        ) from None


def _unknown_source(name: str, source: str) -> VitreousError:
    try:
        exists = bool(name) and Path(name).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        exists = False
    if exists:
        kind = "npz" if name.endswith(".npz") else "folder"
        return VitreousError(
            f"{name!r} does not say what it is; a folder or file is written '{kind}:{name}'."
        )
    known = [*SOURCES, "world"]
    return UnknownName(
        "source of images", source, known, f"A name begins with {':, '.join(known)}:."
    )
