"""What a test may leave behind in the process, taken away again: modules, paths, plugins."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from vitreous.claims import book_sources, facts
from vitreous.cli import app
from vitreous.measure import analyses, probes
from vitreous.plugins import BOOK_ANALYSES, BOOK_PROBES, installed_objects


@contextmanager
def as_before(written: Path) -> Iterator[None]:
    """After it, the process knows no module of the folder `written` and no plugin met inside.

    Which test comes before which depends on how fast the machine is.
    """
    registries: list[dict[str, Any]] = [
        facts.MODELS,
        facts.FACTS,
        facts.BOOK_FACTS,
        book_sources.GIVEN,
        BOOK_PROBES,
        BOOK_ANALYSES,
        probes.REGISTRY.given,
        analyses.REGISTRY.given,
    ]
    contents = [dict(registry) for registry in registries]
    newest, path, folder = next(reversed(sys.modules)), list(sys.path), Path.cwd()
    commands = set(app)
    yield
    os.chdir(folder)
    sys.path[:] = path
    for registry, content in zip(registries, contents, strict=True):
        if registry != content:
            registry.clear()
            registry.update(content)
    for name in set(app) - commands:  # analyses of plugins are commands
        del app[name]
    new = set(takewhile(lambda name: name != newest, reversed(list(sys.modules))))
    forget_modules(written, new)
    if any(name.startswith("vitreous_plugin_") for name in new):
        forget_installed()


def forget_modules(folder: Path, names: set[str]) -> None:
    """Forget those of the modules whose file is in the folder."""
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and Path(file).is_relative_to(folder):
            del sys.modules[name]


def forget_installed() -> None:
    """Look for installed plugins again."""
    installed_objects.cache_clear()
    book_sources._installed_book.cache_clear()
