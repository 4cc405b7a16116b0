"""A folder of measurements, one in a file: the folder is the registry, and reading it imports nothing."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from vitreous.errors import UnknownName


@dataclass(frozen=True)
class Registry:
    """The measurements of one folder: probes, or analyses."""

    package: str
    folder: Path
    what: str
    """What one of them is called."""
    listing: str
    """What `vitreous list` calls them."""

    def names(self) -> list[str]:
        """All of them."""
        return sorted(path.stem for path in self.folder.glob("*.py") if path.stem != "__init__")

    def check(self, name: str) -> None:
        """Whether there is such a question; an error with the nearest names if not."""
        if name not in self.names():
            raise UnknownName(
                self.what, name, self.names(), f"`vitreous list {self.listing}` shows them all."
            )

    def named(self, name: str) -> type[Any]:
        """The first class that the file of this name offers."""
        self.check(name)
        module = import_module(f"{self.package}.{name}")
        found: type[Any] = module.__dict__[module.__all__[0]]
        return found

    def source(self, name: str) -> ast.Module:
        """The file, parsed and not run."""
        return ast.parse((self.folder / f"{name}.py").read_text(encoding="utf-8"))

    def summary(self, name: str) -> str:
        """What a question asks: the first line of its file, which would take seconds to import."""
        with (self.folder / f"{name}.py").open(encoding="utf-8") as file:
            return file.readline().strip().strip('"')
