"""What processes that a test may kill are at, and what they have left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from processes import PATIENCE
from vitreous.studies.measuring import evidence_folder
from vitreous.studies.plan import Cell
from vitreous.studies.run_cells import is_finished

Files = dict[Path, tuple[int, int]]


def until(holds: Callable[[], bool]) -> None:
    """Wait for it."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "It took too long."
        time.sleep(0.2)  # looking at all processes takes 20 ms


def at_work(root: Path) -> bool:
    """Whether somebody holds the lock of a cell."""
    return any(_held(path) for path in root.glob("locks/*.lock"))


def _held(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def files(cells: Sequence[Cell], root: Path) -> Files:
    """The files of all finished cells, with inodes and times. A training saves its state last."""
    found: Files = {}
    for cell in cells:
        if is_finished(cell, root):
            folders = [evidence_folder(item, root) for item in cell.items]
            folders += [root / "trainings" / cell.training.key] if cell.training else []
            for path in (
                path
                for home in folders
                for path in home.rglob("[!.]*.*")
                if path.name != "state.safetensors"
            ):
                found[path] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


def below(pid: int) -> dict[int, str]:
    """The descendants of a process, with their names."""
    parents = dict(_processes())
    found: dict[int, str] = {}
    for each in parents:
        above = each
        while above in parents and above != pid:
            above = parents[above]
        if above == pid != each:
            found[each] = _title(each)
    return found


def _processes() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue  # it has ended meanwhile
            if state != "Z":
                yield int(entry.name), int(parent)


def _title(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:
        return ""


def opened(pids: Sequence[int], folder: Path) -> dict[int, Path]:
    """Which of these processes have a file of this folder open, and which file."""
    found: dict[int, Path] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if (path := entry.readlink()).parent == folder:
                        found[pid] = path
    return found


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}") and pid in dict(_processes())
