"""Decoded images on disk: a set is decoded once, and may be larger than memory.

An entry is a folder under `$VITREOUS_CACHE` (or `~/.cache/vitreous`): `images.npy`, and
`entry.json` with checksums. It is written under another name and renamed when complete. So readers
never see an incomplete entry, and several processes can decode the same dataset. A damaged entry
is decoded again. Everything in the cache can be deleted at any time.
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
CHUNK = 32 << 20
"""Bytes of images per checksum."""

WORTH = 0.5
"""Minimum time in seconds that an entry must save."""

PRIVATE: Literal["c"] = "c"
"""Map files copy-on-write: changes stay in memory and never reach the cache."""

ABANDONED = 24 * 3600
"""Seconds after which an unfinished entry is removed."""


def cache_folder(chosen: Path | str | None = None) -> Path:
    """The folder of the cache: the chosen one, that of the environment, or the default."""
    return Path(chosen or os.environ.get("VITREOUS_CACHE") or "~/.cache/vitreous").expanduser()


def cached_images(
    home: Path, key: str, shape: Shape, fill: Callable[[Images], Faults], *, memory: int
) -> tuple[Images, Faults]:
    """Return decoded images from the cache, or decode them with `fill` and store them.

    Also returns the faults of images that could not be decoded. An array of more than `memory`
    bytes is memory-mapped. Without a key, or if the cache is not writable, nothing is stored.
    """
    entry = home / "images" / key
    cached = _read(entry, shape, memory) if key else None
    if cached is not None:
        return cached
    draft = _new_draft(entry.parent) if key else None
    try:
        return _make(entry, draft, shape, fill, memory)
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _make(
    entry: Path, draft: Path | None, shape: Shape, fill: Callable[[Images], Faults], memory: int
) -> tuple[Images, Faults]:
    begun = time.monotonic()
    out = None if draft is None else _allocate(draft / "images.npy", shape)
    if draft is None or out is None:
        plain = np.empty(shape, np.uint8)
        return plain, fill(plain)
    faults = fill(out)
    large = out.nbytes > memory
    if large or time.monotonic() - begun >= WORTH:
        out.flush()
        facts = {"key": entry.name, "faults": faults, "images": _checksums(out)}
        with suppress(OSError, VitreousError):  # disk full, or another process was faster
            write_json(draft / ENTRY, facts)
            draft.rename(entry)
    if not large:
        return np.array(out), faults
    where = entry if entry.is_dir() else draft  # a mapping stays valid when its file is deleted
    return np.load(where / "images.npy", mmap_mode=PRIVATE), faults


def _read(entry: Path, shape: Shape, memory: int) -> tuple[Images, Faults] | None:
    """Read an entry; a damaged one is deleted."""
    if not entry.is_dir():
        return None
    try:
        facts = read_json(entry / ENTRY, strict=True)
        faults = {int(row): why for row, why in facts["faults"].items()}
        mode = PRIVATE if int(np.prod(shape)) > memory else None
        stored = np.load(entry / "images.npy", mmap_mode=mode, allow_pickle=False)
        if stored.shape != shape or stored.dtype != np.uint8:
            raise ValueError("another array")
        if facts["key"] != entry.name or _checksums(stored) != facts["images"]:
            raise ValueError("another content")
    except (OSError, ValueError, EOFError, KeyError, VitreousError):
        shutil.rmtree(entry, ignore_errors=True)
        return None
    return stored, faults


def _checksums(images: Images) -> list[str]:
    """SHA-256 of each chunk of the array, in several threads, which is as fast as reading it."""
    flat = images.reshape(-1)
    chunks = [flat[start : start + CHUNK] for start in range(0, len(flat), CHUNK)]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda chunk: hashlib.sha256(chunk).hexdigest(), chunks))


def _new_draft(home: Path) -> Path | None:
    """A new folder for an entry, or None if it cannot be created; removes abandoned ones."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        for old in home.glob("draft-*"):
            if time.time() - old.stat().st_mtime > ABANDONED:
                shutil.rmtree(old, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix="draft-", dir=home))
    except OSError:
        return None


def _allocate(file: Path, shape: Shape) -> np.memmap[Any, np.dtype[np.uint8]] | None:
    """An array in a file whose disk space is reserved at once, so that a full disk is noticed now
    and not as a crash later."""
    try:
        out = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
        if hasattr(os, "posix_fallocate"):
            with file.open("r+b") as handle:
                os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)
    except OSError:
        return None
    return out


def cached_value(home: Path, key: str, compute: Callable[[], Any]) -> Any:
    """The small result of a long computation, cached as JSON."""
    file = home / "notes" / f"{key}.json"
    if key:
        with suppress(VitreousError, KeyError):
            stored = read_json(file, strict=True)
            if stored["key"] == key:
                return stored["value"]
    begun = time.monotonic()
    value = compute()
    if key and time.monotonic() - begun >= WORTH:
        with suppress(OSError, VitreousError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, {"key": key, "value": value})
    return value
