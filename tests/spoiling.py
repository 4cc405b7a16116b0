"""Ways to damage a folder: every file of it, found by looking, in every way that disks, copies and
people do."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from vitreous.errors import VitreousError

Change = Callable[[bytes], bytes | None]
"""From the content of a file to what is there afterwards; None if nothing is."""


class Damage(NamedTuple):
    """What happens to which file of a folder."""

    file: str
    what: str
    change: Change

    def __str__(self) -> str:
        return f"{self.what}: {self.file}"


def _instead(theirs: bytes, content: bytes) -> bytes:
    return theirs


def _flip(share: float, bit: int) -> Change:
    def change(content: bytes) -> bytes:
        spoiled = bytearray(content)
        if spoiled:
            spoiled[min(int(share * len(spoiled)), len(spoiled) - 1)] ^= 1 << bit
        return bytes(spoiled)

    return change


def _zeros(content: bytes) -> bytes:
    """As a power cut leaves a file whose content never reached the disk."""
    return bytes(len(content))


def _hole(content: bytes) -> bytes:
    """A block of zeros in the middle."""
    middle = len(content) // 2
    return content[: middle - 8] + bytes(16) + content[middle + 8 :]


CHANGES: dict[str, Change] = {
    **{
        f"flip at {share:.0%}": _flip(share, bit)
        for share, bit in ((0, 2), (0.3, 5), (0.5, 0), (0.8, 6), (1, 1))
    },
    "cut to nothing": lambda content: b"",
    "cut to half": lambda content: content[: len(content) // 2],
    "cut by one": lambda content: content[:-1],
    "deleted": lambda content: None,
    "doubled": lambda content: content * 2,
    "zeros": _zeros,
    "hole": _hole,
    "garbage": lambda content: random.Random(len(content)).randbytes(len(content)),
    "another file": lambda content: b'{"results": 3, "seed": [[]]}\n',
}


def damages(
    folder: Path, others: dict[str, Path] | None = None, files: str = "*"
) -> Iterator[Damage]:
    """Every change to every file, or to those of a name; `others` are folders of the same kind,
    whose files take their places."""
    for path in sorted(path for path in folder.rglob(files) if path.is_file()):
        name = str(path.relative_to(folder))
        content = path.read_bytes()
        for what, change in CHANGES.items():
            if change(content) != content:
                yield Damage(name, what, change)
        for whose, other in (others or {}).items():
            if (other / name).is_file() and (theirs := (other / name).read_bytes()) != content:
                yield Damage(name, f"swapped with that of {whose}", partial(_instead, theirs))
        near = (each for each in sorted(path.parent.iterdir()) if each.is_file() and each != path)
        beside = [each for each in near if each.suffix == path.suffix]
        if beside:
            theirs = beside[0].read_bytes()
            yield Damage(name, f"swapped with {beside[0].name}", partial(_instead, theirs))


def _renew(folder: Path, into: Path) -> None:
    """Make `into` a copy again: most files of the last one are as they were."""
    wanted = {path.relative_to(folder) for path in folder.rglob("*")}
    for path in sorted(into.rglob("*"), reverse=True):
        if path.relative_to(into) not in wanted:
            path.rmdir() if path.is_dir() else path.unlink()
    for name in sorted(wanted):
        source, target = folder / name, into / name
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif _stamp(source) != _stamp(target):
            shutil.copy2(source, target)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Size and time, which a copy has too until somebody writes to it."""
    if not path.is_file():
        return None
    return path.stat().st_size, path.stat().st_mtime_ns


def spoiled(folder: Path, damage: Damage, into: Path) -> Path:
    """A damaged copy."""
    into.mkdir(parents=True, exist_ok=True)
    _renew(folder, into)
    path = into / damage.file
    after = damage.change(path.read_bytes())
    if after is None:
        path.unlink()
    else:
        path.write_bytes(after)
    return into


class Outcomes:
    """What came of many damages: healed, one sentence, or a fault of ours."""

    def __init__(self) -> None:
        self.healed: list[str] = []
        self.named: dict[str, str] = {}
        self.faults: list[str] = []

    def try_(self, damage: Damage, work: Callable[[], bool]) -> None:
        """`work` reads or resumes, and says whether the numbers are those of the undamaged
        folder."""
        try:
            same = work()
        except VitreousError as error:
            self.named[str(damage)] = str(error)
            if "\n" in str(error) or not str(error).endswith("."):
                self.faults.append(f"{damage}: not one sentence: {error}")
        except Exception as error:
            self.faults.append(f"{damage}: {type(error).__name__}: {error}")
        else:
            self.healed.append(str(damage))
            if not same:
                self.faults.append(f"{damage}: other numbers")

    def check(self, least: int) -> None:
        """At least so many were tried, and none is a fault."""
        assert not self.faults, f"{len(self.faults)} faults:\n" + "\n".join(self.faults[:40])
        assert len(self.healed) + len(self.named) >= least
