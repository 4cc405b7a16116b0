"""Find measurements by name, in a folder with one measurement per file and among plugins.

Listing the folder imports nothing. A plugin is installed (its package has an entry point), belongs
to a book of findings, or is given as `file.py:Class` or `module:Class`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from typing import Any

from vitreous import plugin_source
from vitreous.errors import UnknownName, VitreousError
from vitreous.plugins import (
    Kind,
    absolute_name,
    find_clashes,
    is_reference,
    load_object,
    source_digest,
    usable_plugins,
)


@cache
def _names_in(folder: Path) -> tuple[str, ...]:
    """Sorted names of the files of a folder of the package, which is asked for them very often."""
    return tuple(sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__"))


@dataclass(frozen=True)
class Registry:
    """The measurements of one kind: probes, or analyses."""

    package: str
    folder: Path
    kind: Kind
    listing: str
    """Argument of `vitreous list` that lists them."""
    of_books: Mapping[str, str]
    """Measurements of books of findings, by name, as `module:Class`."""
    given: dict[str, str] = field(default_factory=dict)
    """Measurements given as `file.py:Class` in this process, by name, with absolute paths."""

    @property
    def what(self) -> str:
        """What one measurement is called in messages: "probe" or "analysis"."""
        return self.kind.what

    def own_names(self) -> list[str]:
        """Sorted names of the measurements in the folder, which run by default."""
        return list(_names_in(self.folder))

    def names(self) -> list[str]:
        """Sorted names of all measurements, including plugins."""
        return sorted({*self.own_names(), *self.plugins()})

    def plugins(self) -> dict[str, str]:
        """Plugins by name, as `module:Class`."""
        installed = usable_plugins(self.kind, self.own_names())
        plugins = {name: plugin.text for name, plugin in installed.items()}
        for name, text in self.of_books.items():
            if name in self.own_names():
                raise VitreousError(
                    f"The {self.what} {name!r} of {text} has the name of one of Vitreous; choose "
                    "another."
                )
            if plugins.setdefault(name, text) != text:
                raise VitreousError(
                    f"{plugins[name]} and {text} both bring a {self.what} {name!r}; choose another "
                    "name for one of them."
                )
        return {**plugins, **self.given}

    def check(self, name: str) -> None:
        """Raise an error with the nearest names if there is no such measurement."""
        if name in self.names():
            return
        if clash := find_clashes(self.kind).get(name):
            raise VitreousError(clash)
        hint = f"`vitreous list {self.listing}` shows them all; your own is FILE.py:NAME."
        raise UnknownName(self.what, name, self.names(), hint)

    def resolve(self, text: str) -> str:
        """Return the name of a measurement that is given by name or as `file.py:Class`.

        A class is loaded, and can be given by its name from then on.

        Examples
        --------
        >>> probes.REGISTRY.resolve("my_probe.py:TokenNorm")
        'token_norm'
        """
        if not is_reference(text):
            self.check(text)
            return text
        measurement = self._load(text)
        name: str = measurement.name
        place = absolute_name(text)
        if name in self.own_names():
            raise VitreousError(
                f"{text} calls itself {name!r}, the name of {self.kind.article} {self.what} of "
                "Vitreous; choose another `name`."
            )
        other = self.plugins().get(name, place)
        if other != place and self._load(other) is not measurement:
            raise VitreousError(
                f"{other} and {text} are two {self.listing} with one name, {name!r}; choose "
                "another `name` for one of them."
            )
        self.given[name] = place
        return name

    def named(self, name: str) -> type[Any]:
        """The class of a measurement: for ours, the first name in `__all__` of its file."""
        name = self.resolve(name)
        if name not in self.own_names():
            return self._load_named(name, self.plugins()[name])
        module = import_module(f"{self.package}.{name}")
        measurement: type[Any] = getattr(module, module.__all__[0])
        return measurement

    def _load_named(self, name: str, text: str) -> type[Any]:
        """Load the class of a plugin; raise unless its `name` is the registered one."""
        measurement = self._load(text)
        if measurement.name != name:
            raise VitreousError(
                f"{text} is known as the {self.what} {name!r}, and calls itself "
                f"{measurement.name!r}; let both be the same."
            )
        return measurement

    def _load(self, text: str) -> type[Any]:
        """Load the class of a plugin; raise if it is incomplete."""
        measurement: type[Any] = load_object(text, self.kind, self._fits)
        if isabstract(measurement):
            missing = ", ".join(sorted(measurement.__abstractmethods__))
            raise VitreousError(f"The {self.what} {text!r} is incomplete: it lacks {missing}.")
        name = getattr(measurement, "name", None)
        if not isinstance(name, str) or not name.isidentifier():
            raise VitreousError(
                f"The {self.what} {text!r} has the name {name!r}; write one in its class, made of "
                'letters, digits and underscores: name = "token_norm".'
            )
        return measurement

    def _fits(self, found: Any) -> bool:
        return isinstance(found, type) and getattr(found, "category", None) == self.what

    def origin(self, name: str) -> str:
        """The origin of a plugin: package and version, or `module:Class`; empty for our own."""
        if name in self.own_names():
            return ""
        text = self.plugins()[name]
        installed = usable_plugins(self.kind, self.own_names()).get(name)
        return f"{installed.origin}, {text}" if installed else text

    def provenance(self, name: str) -> dict[str, str]:
        """Origin and source digest of a plugin, on which its numbers depend; empty for our own."""
        text = {} if name in self.own_names() else self.plugins()
        if name not in text:
            return {}  # an instance of a class that is not registered
        return {"from": self.origin(name), "source": source_digest(text[name])}

    def source(self, name: str) -> ast.Module:
        """The syntax tree of the file, or of the class of a plugin, without importing it."""
        if name in self.own_names():
            return ast.parse((self.folder / f"{name}.py").read_text(encoding="utf-8"))
        text = name if is_reference(name) else self.plugins()[name]
        definition = plugin_source.find_definition(text)
        file = plugin_source.source_file(text.rpartition(":")[0])
        nodes = plugin_source.read_source(file).body if file else []
        constants = [node for node in nodes if not isinstance(node, plugin_source.Definition)]
        return ast.Module([*constants, definition] if definition else [], [])

    def summary(self, name: str) -> str:
        """The first line of the docstring of a measurement, without importing its file."""
        if name not in self.own_names():
            text = name if is_reference(name) else self.plugins()[name]
            problem = plugin_source.find_problem(text)
            return f"(cannot be used: {problem})" if problem else plugin_source.summary(text)
        with (self.folder / f"{name}.py").open(encoding="utf-8") as file:
            return file.readline().strip().strip('"')
