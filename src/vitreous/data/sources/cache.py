"""Decoded images on disk, so that a set is decoded once in its life and one larger than memory need not fit into it.

An entry is a folder under `$VITREOUS_CACHE` (or `~/.cache/vitreous`): `images.npy`, and `entry.json` with checksums.
It is written under another name and renamed when it is complete: a reader never sees half of one, and of two processes
that decode the same set one comes first and the other takes what it finds. A damaged entry is made again; everything
in there can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vitreous.data.sources.decode import Faults
from vitreous.errors import VitreousError
from vitreous.storage.atomic_files import read_json, write_json

Images = NDArray[np.uint8]
Shape = tuple[int, int, int, int]

ENTRY = "entry.json"
PIECE = 32 << 20
"""Bytes of images with a checksum of their own."""

WORTH = 0.5
"""Seconds of work that an entry has to save."""

PRIVATE: Literal["c"] = "c"
"""How files are mapped: what is changed in memory stays there and never reaches the cache."""

ABANDONED = 24 * 3600
"""Seconds after which what somebody was writing will never be finished."""


def folder(chosen: Path | str | None = None) -> Path:
    """Where the cache is: as chosen, as the environment says, or in the user's folder."""
    return Path(chosen or os.environ.get("VITREOUS_CACHE") or "~/.cache/vitreous").expanduser()


def images(
    home: Path, key: str, shape: Shape, make: Callable[[Images], Faults], *, memory: int
) -> tuple[Images, Faults]:
    """The array that `make` fills, from the cache or into it; mapped from its file if larger than `memory` bytes.

    Without a key, or where the cache cannot be written, the array is made in memory and nothing is kept.
    """
    entry = home / "images" / key
    found = _read(entry, shape, memory) if key else None
    if found is not None:
        return found
    draft = _draft(entry.parent) if key else None
    try:
        return _make(entry, draft, shape, make, memory)
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _make(
    entry: Path, draft: Path | None, shape: Shape, make: Callable[[Images], Faults], memory: int
) -> tuple[Images, Faults]:
    begun = time.monotonic()
    out = None if draft is None else _room(draft / "images.npy", shape)
    if draft is None or out is None:
        plain = np.empty(shape, np.uint8)
        return plain, make(plain)
    faults = make(out)
    large = out.nbytes > memory
    if large or time.monotonic() - begun >= WORTH:
        out.flush()
        with suppress(OSError, VitreousError):  # no room, or somebody else was first
            write_json(
                draft / ENTRY, {"key": entry.name, "faults": faults, "images": _checksums(out)}
            )
            draft.rename(entry)
    if not large:
        return np.array(out), faults
    where = entry if entry.is_dir() else draft  # a mapping stays valid when its file is deleted
    return np.load(where / "images.npy", mmap_mode=PRIVATE), faults


def _read(entry: Path, shape: Shape, memory: int) -> tuple[Images, Faults] | None:
    """An entry as it was written; one that was damaged since is thrown away."""
    if not entry.is_dir():
        return None
    try:
        known = read_json(entry / ENTRY, strict=True)
        faults = {int(row): why for row, why in known["faults"].items()}
        large = int(np.prod(shape)) > memory
        stored = np.load(
            entry / "images.npy", mmap_mode=PRIVATE if large else None, allow_pickle=False
        )
        if stored.shape != shape or stored.dtype != np.uint8:
            raise ValueError("another array")
        if known["key"] != entry.name or _checksums(stored) != known["images"]:
            raise ValueError("another content")
    except (OSError, ValueError, EOFError, KeyError, VitreousError):
        shutil.rmtree(entry, ignore_errors=True)
        return None
    return stored, faults


def _checksums(images: Images) -> list[str]:
    """Of pieces of the array, by several threads: the images of a large set pass at the speed of memory."""
    flat = images.reshape(-1)
    pieces = [flat[start : start + PIECE] for start in range(0, len(flat), PIECE)]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda piece: hashlib.sha256(piece).hexdigest(), pieces))


def _draft(home: Path) -> Path | None:
    """A new folder to write in, or None where there cannot be one; what was abandoned long ago is cleared away."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        for old in home.glob("draft-*"):
            if time.time() - old.stat().st_mtime > ABANDONED:
                shutil.rmtree(old, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix="draft-", dir=home))
    except OSError:
        return None


def _room(file: Path, shape: Shape) -> np.memmap[Any, np.dtype[np.uint8]] | None:
    """An array in a file that has all its space from the start: a full disk is an answer now and a crash later."""
    try:
        out = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
        if hasattr(os, "posix_fallocate"):
            with file.open("r+b") as handle:
                os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)
    except OSError:
        return None
    return out


def note(home: Path, key: str, make: Callable[[], Any]) -> Any:
    """The small result of something long, kept as JSON."""
    file = home / "notes" / f"{key}.json"
    if key:
        with suppress(VitreousError, KeyError):
            known = read_json(file, strict=True)
            if known["key"] == key:
                return known["value"]
    begun = time.monotonic()
    made = make()
    if key and time.monotonic() - begun >= WORTH:
        with suppress(OSError, VitreousError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, {"key": key, "value": made})
    return made
