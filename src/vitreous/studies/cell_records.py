"""What a study's folder says about a cell: who runs it (`locks`), and why it failed (`failed`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vitreous.storage.locks import Busy, hold_lock
from vitreous.studies.plan import Cell


def lock_path(cell: Cell, root: Path) -> Path:
    """The file that the process locks that runs a cell."""
    return root / "locks" / f"{cell.key}.lock"


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Whether this process got the lock; the system releases the lock of a process that ended."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(path, "studying"))
        except Busy:
            yield False
            return
        yield True


def noted_failure(cell: Cell, root: Path) -> str:
    """Why a cell failed; empty if it did not."""
    try:
        return _failed(cell, root).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return ""


def note_failure(cell: Cell, root: Path, why: str, more: str = "") -> str:
    """Write down why a cell failed; a disk that is too full for that is no further failure."""
    why = " ".join(why.split())
    with contextlib.suppress(OSError):
        _failed(cell, root).parent.mkdir(parents=True, exist_ok=True)
        _failed(cell, root).write_text(f"{why}\n{more}", encoding="utf-8")
    return why


def forget_failure(cell: Cell, root: Path) -> None:
    """Delete the reason why a cell failed."""
    _failed(cell, root).unlink(missing_ok=True)


def _failed(cell: Cell, root: Path) -> Path:
    return root / "failed" / f"{cell.key}.txt"
