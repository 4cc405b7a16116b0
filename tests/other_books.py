"""Books of other packages for tests: written, given, or as if installed; and forgotten again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from vitreous.claims import book_sources, facts
from vitreous.cli import app
from vitreous.measure import analyses, probes
from vitreous.plugins import BOOK_ANALYSES, BOOK_PROBES, installed_objects

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "fifth_paper" / "src"
BOOK = "fifth_paper:BOOK"
PAPER = '[paper]\nkey = "{key}"\ntitle = "T"\nauthors = "A"\nyear = 2026\narxiv = "1"\n'
FINDING = '[{id}]\nsentence = "S."\nplace = "P"\nreported = "R"\nstudy = "zoo"\n'
CHECK = '@BOOK.check("{id}")\ndef check(models): return []\n'


@contextmanager
def forgotten_books() -> Iterator[None]:
    """Within it the example can be imported; after it nothing of any other book is left."""
    places: list[dict[str, Any]] = [
        facts.MODELS,
        facts.FACTS,
        facts.BOOK_FACTS,
        book_sources.GIVEN,
        BOOK_PROBES,
        BOOK_ANALYSES,
        probes.REGISTRY.given,
        analyses.REGISTRY.given,
    ]
    before = [dict(place) for place in places]
    commands = set(app)
    _forget_modules()  # a test elsewhere may have imported one of the same name
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))  # which also undoes what is added to the path
        yield
    for place, content in zip(places, before, strict=True):
        place.clear()
        place.update(content)
    for name in set(app) - commands:  # analyses of plugins are commands
        del app[name]
    _forget_modules()
    forget_installed()


def _forget_modules() -> None:
    for name in list(sys.modules):
        if name.startswith(("fifth_paper", "mine", "glass", "other_tools", "vitreous_plugin")):
            del sys.modules[name]


def forget_installed() -> None:
    installed_objects.cache_clear()
    book_sources._installed_book.cache_clear()


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
