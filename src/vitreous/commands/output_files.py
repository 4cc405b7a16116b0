"""Choosing the file that a command writes, so that no earlier file is lost.

A file with a default name carries a mark: a checksum of the command, its models and its options (in
the head of a page, in the metadata of a picture). The same command replaces its own file. A file of
another command or program is kept, and the new one gets the suffix `-2`. A file given with `--out`
is replaced, and the command says so.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from vitreous.errors import VitreousError
from vitreous.storage.atomic_files import explain_write_errors
from vitreous.storage.fingerprints import checksum

SEARCHED_BYTES = 8192
"""Bytes at the beginning of a file that may hold a mark."""
OWNER = "command.txt"
"""The file in a folder of partial results that holds the mark."""
IGNORED_OPTIONS = ("out", "figures", "results", "device", "batch")
"""Options that do not change what a file shows."""


def mark_of_command(command: str, names: Sequence[str], options: Mapping[str, Any]) -> str:
    """A text that identifies a command with its models and options.

    >>> mark_of_command("inspect", ["nano:vit"], {"seed": 0, "out": "a.html"})
    'vitreous-run-b5b6f5ad18fa5d2c'
    """
    relevant = {name: str(value) for name, value in options.items() if name not in IGNORED_OPTIONS}
    return f"vitreous-run-{checksum([command, *names, relevant])[:16]}"


@dataclass(frozen=True)
class OutputFile:
    """The file that a command writes."""

    path: Path
    mark: str
    replaces: bool = False
    """Whether a file of this name exists, and will be replaced."""
    avoided: Path | None = None
    """The default name, if a file of another command has it."""

    @property
    def partial(self) -> Path:
        """The folder of partial results, for a command that can be interrupted."""
        return _partial_folder(self.path)

    def sentence(self, *others: Path) -> str:
        """The message that this file was written, and with it other files or folders."""
        also = "".join(f", {each}" for each in others)
        if self.replaces:
            return f"Replaced {self.path}{also}"
        kept = "" if self.avoided is None else f" ({self.avoided} is of another run and was kept)"
        return f"Wrote {self.path}{also}{kept}"


def written_sentence(outputs: Sequence[OutputFile]) -> str:
    """The message that several files were written: first the new ones, then those replaced."""
    new = [str(each.path) for each in outputs if not each.replaces]
    old = [str(each.path) for each in outputs if each.replaces]
    parts = [f"Wrote {', '.join(new)}"] if new else []
    parts += [f"{'replaced' if new else 'Replaced'} {', '.join(old)}"] if old else []
    return "; ".join(parts)


def named_outputs(paths: Sequence[Path]) -> list[OutputFile]:
    """The files that a user names; call it before they are written."""
    return [choose_output(path, "", "") for path in paths]


def choose_output(given: Path | None, default: str, mark: str) -> OutputFile:
    """The file given with `--out`, or the first of `default`, `default-2`, `default-3` … that does
    not exist or has this command's mark."""
    if given is not None:
        path = given.expanduser()
        return OutputFile(path, mark, path.exists())
    preferred = Path(default)
    numbered = (preferred.with_stem(f"{preferred.stem}-{number}") for number in count(2))
    path = preferred
    while not _is_free_or_ours(path, mark):
        path = next(numbered)
    return OutputFile(path, mark, path.exists(), None if path == preferred else preferred)


def check_writable(out: Path, *folders: Path | None) -> None:
    """Raise if the file `out` or files in these folders cannot be written.

    Called before hours are spent measuring. No folder is created yet.
    """
    if out.is_dir():
        inside = str(out / f"report{out.suffix}")
        raise VitreousError(f"{str(out)!r} is a folder; name a file, for example {inside!r}.")
    places = {out: out.parent}
    places |= {each: each.expanduser() for each in folders if each is not None}
    for place, folder in places.items():
        with explain_write_errors(place):
            existing = next(each for each in (folder, *folder.parents) if each.exists())
            tempfile.TemporaryFile(dir=existing).close()


@contextmanager
def reserve(output: OutputFile) -> Iterator[Path]:
    """Reserve the name of a file while measuring; yields the folder for partial results.

    Other commands avoid the name as long as this folder exists. It is removed at the end, unless it
    holds results from which an interrupted command can resume.
    """
    folder = output.partial
    new_parents = [each for each in folder.parents if not each.exists()]
    with explain_write_errors(folder):
        _make_folder(folder, output.mark)
    try:
        yield folder
    finally:
        if not any(folder.rglob("piece-*")):
            shutil.rmtree(folder, ignore_errors=True)
            for each in new_parents:
                with suppress(OSError):  # the report is in it
                    each.rmdir()


def _make_folder(folder: Path, mark: str) -> None:
    """Create a folder of partial results atomically: other processes never see it without its
    mark."""
    if folder.exists():
        return
    new = folder.with_name(f".{folder.name}.{os.getpid()}")
    new.mkdir(parents=True)
    (new / OWNER).write_text(f"{mark}\n", encoding="utf-8")
    try:
        new.rename(folder)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        if not folder.exists():
            raise


def _partial_folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def _is_free_or_ours(path: Path, mark: str) -> bool:
    owner = _partial_folder(path) / OWNER
    if owner.parent.exists() and not _has_mark(owner, mark):
        return False
    return not path.exists() or _has_mark(path, mark)


def _has_mark(path: Path, mark: str) -> bool:
    """Whether the mark is at the beginning of a file; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return mark.encode() in file.read(SEARCHED_BYTES)
    except OSError:
        return False
