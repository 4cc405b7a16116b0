"""Atomic writes with checksums: a file is there complete or not at all, and damage to it is noticed
when it is read.

JSON objects carry the SHA-256 of their values under `sha256`, so reformatting them by hand does no
harm. Safetensors files carry, in the metadata of their header, the SHA-256 of the file with that
field filled with zeros.

Files that Vitreous 0.1 wrote have no checksum. They are read with a warning, or refused with
`strict`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.errors import VitreousError
from vitreous.storage.fingerprints import checksum, checksum_of_parsed

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("vitreous")

CHECKSUM_FIELD = "sha256"
_ZEROS = b"0" * 64
_CHECKSUM = re.compile(rb'\\"sha256\\": \\"([0-9a-f]{64})\\"')
"""The checksum in the header of a safetensors file. It shares one metadata field with the notes, as
JSON within JSON: safetensors writes several fields in no fixed order, and equal tensors have to
give equal bytes."""
_without_checksum: list[Path] = []
"""The first file without a checksum, which is the only one that is warned about."""


class Damaged(VitreousError):
    """The content of a file is not what was written."""

    def __init__(
        self, path: Path, why: str, remedy: str = "copy it anew, or delete it and run again"
    ) -> None:
        self.path, self.why = path, why
        super().__init__(f"{str(path)!r} is damaged ({why}); {remedy}.")


@contextlib.contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError inside the block into a `VitreousError` that says why `path` cannot be
    written."""
    try:
        yield
    except OSError as error:
        raise VitreousError(
            f"Cannot write {str(path)!r}: {_why_unwritable(path, error)}"
        ) from error


def _why_unwritable(path: Path, error: OSError) -> str:
    """Why an OSError stopped the writing of a path, as the end of a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full. What was saved before is untouched."
    message = error.strerror or str(error)
    files = [each for each in (path, *path.parents) if each.exists() and not each.is_dir()]
    if files and error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"{str(files[0])!r} is a file, not a folder."
    if path.is_dir() and error.errno in (errno.EISDIR, errno.EEXIST):
        return "it is a folder."
    folder = next((each for each in (path, *path.parents) if each.is_dir()), path)
    if error.errno == errno.ENOENT:  # the folder exists: it is one like /proc
        return f"nothing can be written in {str(folder)!r}."
    if folder == path:
        return f"{message}."
    return f"{message} in {str(folder)!r}."


def write_bytes(path: Path, *parts: bytes | memoryview) -> None:
    """Replace a file in one step: a reader finds the old content or the new, also after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with explain_write_errors(path):
        try:
            with temporary.open("wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut; Windows cannot open folders, and needs no such step."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def remove_partial_files(folder: Path) -> None:
    """Remove temporary files of killed processes. Call it only while holding the folder's lock."""
    for path in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            path.unlink()


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object as JSON, with its checksum."""
    complete = {**value, CHECKSUM_FIELD: checksum(value)}
    write_bytes(path, (json.dumps(complete, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: Path, *, strict: bool = False) -> dict[str, Any]:
    """Read what `write_json` wrote, without the checksum; raise `Damaged` if the content has
    changed."""
    return read_json_and_checksum(path, strict=strict)[0]


def read_json_and_checksum(path: Path, *, strict: bool = False) -> tuple[dict[str, Any], str]:
    """Read what `write_json` wrote, and its checksum; raise `Damaged` if they do not match."""
    try:
        value = json.loads(_read_bytes(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Damaged(path, f"no JSON: {_one_line(error)}") from None
    if not isinstance(value, dict):
        raise Damaged(path, f"an object was written and a {type(value).__name__} is there")
    expected = value.pop(CHECKSUM_FIELD, None)
    actual = checksum_of_parsed(value)
    if expected is None:
        _warn_without_checksum(path, strict)
    elif expected != actual:
        raise Damaged(path, "its checksum does not match")
    return value, actual


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Write tensors as safetensors, with `notes` as JSON and a checksum in the header."""
    # Not `save_file`, which would leave its own temporary file behind when killed.
    from safetensors.torch import save

    on_cpu = {
        key: tensor.detach().to("cpu", copy=True).contiguous() for key, tensor in tensors.items()
    }
    metadata = json.dumps({CHECKSUM_FIELD: _ZEROS.decode(), **notes})
    content = save(on_cpu, metadata={"vitreous": metadata})
    place = _CHECKSUM.search(content)
    assert place is not None
    start, end = place.span(1)
    view = memoryview(content)
    digest = hashlib.sha256(view).hexdigest().encode()
    write_bytes(path, view[:start], digest, view[end:])


def read_tensors(path: Path, *, strict: bool = False) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and notes that `write_tensors` wrote; raise `Damaged` if the content has
    changed."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = _read_bytes(path)
    length = int.from_bytes(content[:8], "little") + 8
    place = _CHECKSUM.search(content, 0, min(length, len(content)))
    try:
        if place is not None:
            _check(path, content, place)
        tensors = load(content)
        notes = _notes(content[8:length])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(path, f"no safetensors file of Vitreous: {_one_line(error)}") from None
    if place is None:
        _warn_without_checksum(path, strict)
    return tensors, notes


def _notes(header: bytes) -> dict[str, Any]:
    notes = dict(json.loads(json.loads(header)["__metadata__"]["vitreous"]))
    notes.pop(CHECKSUM_FIELD, None)
    return notes


def _check(path: Path, content: bytes, place: re.Match[bytes]) -> None:
    start, end = place.span(1)
    view, digest = memoryview(content), hashlib.sha256()
    for part in (view[:start], _ZEROS, view[end:]):
        digest.update(part)
    if digest.hexdigest().encode() != place[1]:
        raise Damaged(path, "its checksum does not match")


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise Damaged(path, "it is not there") from None
    except OSError as error:
        raise VitreousError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from None


def _warn_without_checksum(path: Path, strict: bool) -> None:
    if strict:
        raise Damaged(path, "it has no checksum")
    if not _without_checksum:
        _without_checksum.append(path)
        log.warning(
            "%s has no checksum, as all files of Vitreous 0.1: damage to it would go unnoticed.",
            path,
        )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:120].rstrip(".") or type(error).__name__
