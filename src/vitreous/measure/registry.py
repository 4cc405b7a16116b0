"""A folder of measurements, one per file. The folder is the registry; listing it imports
nothing."""

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
    """What one measurement is called."""
    listing: str
    """The word after `vitreous list`."""

    def names(self) -> list[str]:
        """Names of all measurements of the folder, sorted."""
        return sorted(path.stem for path in self.folder.glob("*.py") if path.stem != "__init__")

    def check(self, name: str) -> None:
        """Raise an error with the nearest names if there is no such measurement."""
        if name not in self.names():
            raise UnknownName(
                self.what, name, self.names(), f"`vitreous list {self.listing}` shows them all."
            )

    def named(self, name: str) -> type[Any]:
        """The class of a measurement: the first name in `__all__` of its file."""
        self.check(name)
        module = import_module(f"{self.package}.{name}")
        measurement: type[Any] = getattr(module, module.__all__[0])
        return measurement

    def source(self, name: str) -> ast.Module:
        """The syntax tree of a file, which is not run."""
        return ast.parse((self.folder / f"{name}.py").read_text(encoding="utf-8"))

    def summary(self, name: str) -> str:
        """What is measured: the first line of the file, read without importing it."""
        with (self.folder / f"{name}.py").open(encoding="utf-8") as file:
            return file.readline().strip().strip('"')
