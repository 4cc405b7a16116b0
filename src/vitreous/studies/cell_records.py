"""Records of a cell in the study's folder: its lock (`locks`), and why it failed (`failed`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vitreous.storage.locks import Busy, hold_lock
from vitreous.studies.plan import Cell


def lock_path(cell: Cell, root: Path) -> Path:
    """The lock file of a cell, held by the process that runs it."""
    return root / "locks" / f"{cell.key}.lock"


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Yield whether this process got the lock, and hold it inside the block.

    The system releases the lock of a process that has ended.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(path, "studying"))
        except Busy:
            yield False
            return
        yield True


def read_failure(cell: Cell, root: Path) -> str:
    """Why a cell failed; empty if it did not."""
    try:
        text = _failure_file(cell, root).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.partition("\n")[0]


def note_failure(cell: Cell, root: Path, why: str, more: str = "") -> str:
    """Write why a cell failed, if the disk has room for it; returns the reason in one line."""
    why = " ".join(why.split())
    with contextlib.suppress(OSError):
        _failure_file(cell, root).parent.mkdir(parents=True, exist_ok=True)
        _failure_file(cell, root).write_text(f"{why}\n{more}", encoding="utf-8")
    return why


def forget_failure(cell: Cell, root: Path) -> None:
    """Delete the reason why a cell failed."""
    _failure_file(cell, root).unlink(missing_ok=True)


def _failure_file(cell: Cell, root: Path) -> Path:
    return root / "failed" / f"{cell.key}.txt"
