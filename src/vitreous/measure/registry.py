"""Measurements by name: a folder with one per file, and those of other packages.

The folder is the registry; listing it imports nothing. Other packages have an entry point, or a
book of findings brings its own."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from vitreous.errors import UnknownName, VitreousError
from vitreous.plugins import installed_objects, load_object, source_file


@dataclass(frozen=True)
class Registry:
    """The measurements of one kind: probes, or analyses."""

    package: str
    folder: Path
    what: str
    """What one measurement is called."""
    listing: str
    """The word after `vitreous list`."""
    group: str = ""
    """Entry points of other packages."""
    of_books: Mapping[str, str] = field(default_factory=dict)
    """Measurements of books that were read, by name, as `module:Class`."""

    def own_names(self) -> list[str]:
        """Names of the measurements of the folder, sorted; they run where none is named."""
        return sorted(path.stem for path in self.folder.glob("*.py") if path.stem != "__init__")

    def names(self) -> list[str]:
        """Names of all measurements, sorted, those of other packages included."""
        return sorted({*self.own_names(), *self.others()})

    def others(self) -> dict[str, str]:
        """Measurements of other packages, by name, as `module:Class`."""
        installed = installed_objects(self.group) if self.group else ()
        found: dict[str, str] = {}
        for name, text in [*((key, text) for key, text, _ in installed), *self.of_books.items()]:
            if name in self.own_names():
                raise VitreousError(
                    f"The {self.what} {name!r} of {text} has the name of one of Vitreous; choose "
                    "another."
                )
            if found.setdefault(name, text) != text:
                raise VitreousError(
                    f"{found[name]} and {text} both bring a {self.what} {name!r}; choose another "
                    "name for one of them."
                )
        return found

    def check(self, name: str) -> None:
        """Raise an error with the nearest names if there is no such measurement."""
        if name not in self.names():
            raise UnknownName(
                self.what, name, self.names(), f"`vitreous list {self.listing}` shows them all."
            )

    def named(self, name: str) -> type[Any]:
        """The class of a measurement: the first name in `__all__` of its file."""
        self.check(name)
        if name not in self.own_names():
            return self._load(name, self.others()[name])
        module = import_module(f"{self.package}.{name}")
        measurement: type[Any] = getattr(module, module.__all__[0])
        return measurement

    def _load(self, name: str, text: str) -> type[Any]:
        """The class that another package brings; its `name` has to be the one it is known by."""
        measurement: type[Any] = load_object(text, self.what, type)
        called = getattr(measurement, "name", None)
        if called != name:
            raise VitreousError(
                f"{text} is known as the {self.what} {name!r}, and calls itself {called!r}; let "
                "both be the same."
            )
        return measurement

    def source(self, name: str) -> ast.Module:
        """The syntax tree of a file, which is not run."""
        return ast.parse((self.folder / f"{name}.py").read_text(encoding="utf-8"))

    def summary(self, name: str) -> str:
        """What is measured: the first line of the file, read without importing it."""
        path: Path | None = self.folder / f"{name}.py"
        if name not in self.own_names():
            path = source_file(self.others()[name])
        if path is None:
            return f"Of {self.others()[name]}, which is not there."
        with path.open(encoding="utf-8") as file:
            return file.readline().strip().strip('"')
