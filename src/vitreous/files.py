"""Files that are read back. A write is complete or absent, a checksum inside shows damage, one lock keeps others out.

JSON objects carry the SHA-256 of their values under `sha256`, so reformatting them by hand does no harm. Safetensors
files carry, in the metadata of their header, the SHA-256 of the whole file with that field filled with zeros.

Files that Vitreous 0.1 wrote have no checksum. They are read with a notice, unless the caller knows better.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from vitreous.errors import VitreousError

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("vitreous")

FIELD = "sha256"
BLANK = b"0" * 64
SEAL = re.compile(rb'\\"sha256\\": \\"([0-9a-f]{64})\\"')
"""The checksum in the header of a safetensors file. It is JSON within JSON, as the notes beside it: safetensors writes
several fields of metadata in an order that changes from time to time, and the same tensors are to be the same bytes."""
_noticed: list[Path] = []
"""The first file without a checksum, which stands for all others in one notice."""


class Damaged(VitreousError):
    """The content of a file is not what was written."""

    def __init__(
        self, path: Path, why: str, remedy: str = "copy it anew, or delete it and run again"
    ) -> None:
        self.path, self.why = path, why
        super().__init__(f"{str(path)!r} is damaged ({why}); {remedy}.")


class Busy(VitreousError):
    """Another process holds the lock."""


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """What the disk refuses, as one sentence."""
    try:
        yield
    except OSError as error:
        reason = (
            "the disk is full"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else error.strerror or str(error)
        )
        raise VitreousError(
            f"Cannot write {str(path)!r}: {reason}. What was saved before is untouched."
        ) from error


def write(path: Path, *parts: bytes | memoryview) -> None:
    """Replace a file in one step: whoever reads it finds the old content or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with explained(path):
        try:
            with temporary.open("wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _settle(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _settle(folder: Path) -> None:
    """Make a rename survive a power cut; Windows cannot open folders, and needs no such step."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what killed processes were writing; only for whoever holds the folder's lock."""
    for left in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            left.unlink()


def checksum(value: Any) -> str:
    """SHA-256 of a value that JSON can hold, however it is formatted."""
    plain = json.loads(json.dumps(value))  # numbers as keys become text before they are sorted
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with its checksum."""
    return {**value, FIELD: checksum(value)}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object as JSON, with its checksum."""
    write(path, (json.dumps(sealed(value), indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: Path, *, strict: bool = False) -> dict[str, Any]:
    """Read what `write_json` wrote. `strict` refuses files without a checksum."""
    try:
        value = json.loads(_content(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Damaged(path, f"no JSON: {_line(error)}") from None
    if not isinstance(value, dict):
        raise Damaged(path, f"an object was written and a {type(value).__name__} is there")
    found = value.pop(FIELD, None)
    if found is None:
        _no_checksum(path, strict)
    elif found != checksum(value):
        raise Damaged(path, "its checksum does not match")
    return value


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Write tensors as safetensors, with `notes` as JSON and a checksum in the header."""
    from safetensors.torch import (
        save,
    )  # save_file would leave its own temporary file behind when killed

    plain = {
        key: tensor.detach().to("cpu", copy=True).contiguous() for key, tensor in tensors.items()
    }
    content = save(plain, metadata={"vitreous": json.dumps({FIELD: BLANK.decode(), **notes})})
    place = SEAL.search(content)
    assert place is not None
    start, end = place.span(1)
    view = memoryview(content)
    digest = hashlib.sha256(view).hexdigest().encode()
    write(path, view[:start], digest, view[end:])


def read_tensors(path: Path, *, strict: bool = False) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and notes that `write_tensors` wrote. `strict` refuses files without a checksum."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = _content(path)
    length = int.from_bytes(content[:8], "little") + 8
    place = SEAL.search(content, 0, min(length, len(content)))
    try:
        if place is not None:
            _check(path, content, place)
        tensors = load(content)
        notes = _notes(content[8:length])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(path, f"no safetensors file of Vitreous: {_line(error)}") from None
    if place is None:
        _no_checksum(path, strict)
    return tensors, notes


def read_notes(path: Path) -> dict[str, Any]:
    """The notes of a safetensors file without reading, and so without verifying, its tensors."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length) if length <= path.stat().st_size else b""
        return _notes(header)
    except OSError as error:
        raise VitreousError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(path, f"no safetensors file of Vitreous: {_line(error)}") from None


def _notes(header: bytes) -> dict[str, Any]:
    notes = dict(json.loads(json.loads(header)["__metadata__"]["vitreous"]))
    notes.pop(FIELD, None)
    return notes


def _check(path: Path, content: bytes, place: re.Match[bytes]) -> None:
    start, end = place.span(1)
    view, digest = memoryview(content), hashlib.sha256()
    for part in (view[:start], BLANK, view[end:]):
        digest.update(part)
    if digest.hexdigest().encode() != place[1]:
        raise Damaged(path, "its checksum does not match")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise Damaged(path, "it is not there") from None
    except OSError as error:
        raise VitreousError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from None


def _no_checksum(path: Path, strict: bool) -> None:
    if strict:
        raise Damaged(path, "it has no checksum")
    if not _noticed:
        _noticed.append(path)
        log.warning(
            "%s has no checksum, as all files of Vitreous 0.1: damage to it would go unnoticed.",
            path,
        )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:120].rstrip(".") or type(error).__name__


@contextlib.contextmanager
def locked(path: Path, doing: str) -> Iterator[None]:
    """Hold a lock file, or raise `Busy`. The system takes the lock back from a process that has ended."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _acquired(path, doing)
    try:
        yield
    finally:
        lock.release()


def _acquired(path: Path, doing: str) -> BaseFileLock:
    busy = f"Another process is {doing} in {str(path.parent)!r}; wait for it, or stop it."
    lock: BaseFileLock = FileLock(path, timeout=0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about file systems without locks, which is said below
            lock.acquire()
    except Timeout:
        raise Busy(busy) from None
    except (OSError, NotImplementedError) as error:
        if getattr(error, "errno", errno.ENOSYS) not in NO_LOCKS:
            raise
        lock = SoftFileLock(path.with_suffix(".held"), timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise Busy(f"{busy} If there is none, delete {lock.lock_file!r}.") from None
    if isinstance(lock, SoftFileLock):
        log.warning(
            "%s is on a file system without locks; the file %s stands for one.",
            path.parent,
            lock.lock_file,
        )
    return lock


NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What a file system answers that has no locks."""
