"""Books of other packages for tests: written, given, or as if installed; and forgotten again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from left_behind import as_before, forget_installed

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "fifth_paper" / "src"
BOOK = "fifth_paper:BOOK"
PAPER = '[paper]\nkey = "{key}"\ntitle = "T"\nauthors = "A"\nyear = 2026\narxiv = "1"\n'
FINDING = '[{id}]\nsentence = "S."\nplace = "P"\nreported = "R"\nstudy = "zoo"\n'
CHECK = '@BOOK.check("{id}")\ndef check(models): return []\n'


@contextmanager
def forgotten_books() -> Iterator[None]:
    """Within it the example can be imported; after it nothing of any other book is left."""
    with as_before(EXAMPLE), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        yield
    forget_installed()


def install(monkeypatch: pytest.MonkeyPatch, **groups: dict[str, str]) -> None:
    """Let packages with these entry points, by group, seem to be installed."""
    real = metadata.entry_points

    def entry_points(**how: Any) -> Any:
        group = str(how.get("group", ""))
        if not group.startswith("vitreous."):
            return real(**how)  # torch looks for its own while it is imported
        given = groups.get(group.removeprefix("vitreous."), {})
        return metadata.EntryPoints(
            metadata.EntryPoint(name, text, group) for name, text in given.items()
        )

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    forget_installed()


def write_book(
    folder: Path, text: str, checks: str = "", name: str = "mine", key: str = "MINE"
) -> str:
    """Write a book with a file of texts and a file of checks; returns its name."""
    folder.mkdir(parents=True, exist_ok=True)
    paper = "" if "[paper]" in text else PAPER.format(key=key)
    (folder / f"{name}.toml").write_text(paper + text)
    (folder / f"{name}.py").write_text(
        "from pathlib import Path\n"
        "from vitreous.claims.book import Book\n"
        f'BOOK = Book.read(Path(__file__).with_name("{name}.toml"))\n{checks}'
    )
    return f"{folder / name}.py:BOOK"
