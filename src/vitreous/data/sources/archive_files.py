"""Read zip and tar files: list their members, and read the content of one member at a time.

Nothing is extracted to a path that the archive chooses. A compressed tar can only be read
from its beginning, so it is unpacked once, as a whole, into an unnamed temporary file.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import tarfile
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import IO, Any, NamedTuple, Protocol

from vitreous.data.sources.listing import file_stamps
from vitreous.data.sources.paths import ZIPS
from vitreous.errors import VitreousError
from vitreous.progress import progress

LARGEST = 1 << 30
"""Maximum size of a picture in bytes; a larger member could fill the memory."""

BLOCK = 512
"""Bytes of a block of a tar file."""

COMPRESSED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""First bytes of compressed files, and the functions that open them."""

DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)
"""Exceptions for an archive that is damaged or unreadable."""


Wanted = Callable[[str], bool]
"""Whether to read the content of a file while listing, by its path."""

Entry = tuple[str, int, int, bytes | None]
"""Path, place, size and, if `Wanted`, content of a file."""


class Member(NamedTuple):
    """A file in an archive."""

    archive: int  # number of the archive
    path: str
    place: int  # offset in a tar, number in a zip
    size: int  # in bytes
    note: bytes | None = None  # the content, if `wanted`


class Archive(Protocol):
    """An open archive."""

    def members(self, wanted: Wanted) -> Iterator[Entry]:
        """Every file, in the order of the archive."""

    def read(self, place: int, size: int) -> bytes:
        """Read the content of a member; thread-safe."""


def open_archives(files: Sequence[Path], wanted: Wanted) -> tuple[list[Archive], list[Member]]:
    """Open archives and list their files, without hidden ones; raises if one cannot be read."""
    return _opened(tuple(files), tuple(file_stamps(files)), wanted)


@lru_cache(maxsize=1)  # a set is listed once for the split and once for its training split
def _opened(
    files: Sequence[Path], stamps: object, wanted: Wanted
) -> tuple[list[Archive], list[Member]]:
    archives: list[Archive] = []
    members: list[Member] = []
    total = sum(file.stat().st_size for file in files) >> 20
    with progress("Listing archives (MiB)", total) as advance:
        for number, file in enumerate(files):
            with _explain_damage(file):
                archive: Archive = _Zip(file) if _is_zip(file) else _open_tar(file)
                for path, place, size, note in archive.members(wanted):
                    if not _is_hidden(path):
                        members.append(Member(number, _tidy(path), place, size, note))
            archives.append(archive)
            advance(file.stat().st_size >> 20)
    return archives, members


@contextmanager
def _explain_damage(file: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        why = getattr(error, "strerror", None) or str(error) or "it ends too early"
        raise VitreousError(
            f"Cannot read the archive {str(file)!r}: {why}; if it is damaged, fetch it again."
        ) from error


def _is_zip(file: Path) -> bool:
    return file.name.lower().endswith(ZIPS)


def _tidy(path: str) -> str:
    """A member's path without leading "/", "." and ".."."""
    parts = path.replace("\\", "/").split("/")
    return "/".join(part for part in parts if part not in ("", ".", ".."))


def _is_hidden(path: str) -> bool:
    parts = _tidy(path).split("/")
    return any(part.startswith(".") or part == "__MACOSX" for part in parts)


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise ValueError(f"{size:,} bytes, more than a picture has")


class _Zip:
    def __init__(self, file: Path) -> None:
        self._zip = zipfile.ZipFile(file)
        self._infos = [info for info in self._zip.infolist() if not info.is_dir()]

    def members(self, wanted: Wanted) -> Iterator[Entry]:
        for place, info in enumerate(self._infos):
            note = self.read(place, info.file_size) if wanted(info.filename) else None
            yield info.filename, place, info.file_size, note

    def read(self, place: int, size: int) -> bytes:
        _check_size(size)
        try:
            return self._zip.read(self._infos[place])
        except RuntimeError as error:  # zipfile's exception if a password is needed
            raise OSError("it is encrypted") from error


class _Tar:
    """An uncompressed tar. It is opened again for every member, because there can be more shards
    than files that a process may have open."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextmanager
    def _handle(self) -> Iterator[IO[bytes]]:
        with self._file.open("rb") as handle:
            yield handle

    def members(self, wanted: Wanted) -> Iterator[Entry]:
        with self._handle() as handle, tarfile.open(fileobj=handle, mode="r:") as tar:
            for info in tar:
                if info.isreg() and not info.issparse():
                    start, size = info.offset_data, info.size
                    note = _read_range(handle, start, size) if wanted(info.name) else None
                    yield info.name, start, size, note
            _check_end(handle, tar.offset)

    def read(self, place: int, size: int) -> bytes:
        with self._handle() as handle:
            return _read_range(handle, place, size)


class _CompressedTar(_Tar):
    """A compressed tar, unpacked into an unnamed temporary file."""

    def __init__(self, file: Path, opener: Callable[[Path], Any]) -> None:
        super().__init__(file)
        self._lock = Lock()
        self._unpacked: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._unpacked.close)
        with opener(file) as packed:
            shutil.copyfileobj(packed, self._unpacked, 1 << 20)

    @contextmanager
    def _handle(self) -> Iterator[IO[bytes]]:
        with self._lock:
            self._unpacked.seek(0)
            yield self._unpacked


def _open_tar(file: Path) -> _Tar:
    with file.open("rb") as handle:
        start = handle.read(8)
    for magic, opener in COMPRESSED.items():
        if start.startswith(magic):
            return _CompressedTar(file, opener)
    return _Tar(file)


def _read_range(handle: IO[bytes], start: int, size: int) -> bytes:
    _check_size(size)
    handle.seek(start)
    content = handle.read(size)
    if len(content) < size:
        raise EOFError("the archive ends before it does")
    return content


def _check_end(handle: IO[bytes], offset: int) -> None:
    """Raise unless a tar ends where tarfile stopped: it also stops at a damaged header."""
    handle.seek(offset)
    if handle.read(BLOCK).strip(b"\0"):
        raise tarfile.ReadError(f"no member begins at byte {offset:,}, where one should")
