"""Objects of other packages, by name (`mypkg.module:NAME`, `path/file.py:NAME`) or entry point.

Loading one runs its file. Whatever goes wrong there is one sentence that names the object, its file
and line.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple

from vitreous.errors import UnknownName, VitreousError, reason

BOOK_PROBES: dict[str, str] = {}
"""Probes of all books that were read, by name, as `module:Class`."""


class Installed(NamedTuple):
    """An entry point: the key it has, `module:NAME`, and the package that brings it."""

    key: str
    text: str
    package: str


@cache
def installed_objects(group: str) -> tuple[Installed, ...]:
    """The entry points of a group, sorted by their keys; nothing is imported."""
    found = sorted(metadata.entry_points(group=group), key=lambda each: (each.name, each.value))
    packages = [each.dist.name if each.dist else each.module.partition(".")[0] for each in found]
    return tuple(
        Installed(each.name, each.value, package)
        for each, package in zip(found, packages, strict=True)
    )


def load_object(text: str, what: str, kind: type[Any]) -> Any:
    """Load an object by its name.

    Parameters
    ----------
    text
        `mypkg.module:NAME`, or `path/file.py:NAME`.
    what
        What it is, for errors: "book".
    kind
        What it has to be an instance of.

    Examples
    --------
    >>> book = load_object("fifth_paper:BOOK", "book", Book)
    """
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        raise VitreousError(
            f"A {what} is given as MODULE:NAME or FILE.py:NAME, for example mypkg.findings:NAME, "
            f"not {text!r}."
        )
    module = _run(text, what)
    if not hasattr(module, name):
        known = [f"{where}:{key}" for key, value in vars(module).items() if isinstance(value, kind)]
        raise UnknownName(what, text, known, "" if known else f"{where} has none.")
    found = getattr(module, name)
    if not isinstance(found, kind):
        raise VitreousError(
            f"{text!r} is no {what}: it is a {type(found).__name__}, not a {kind.__name__}."
        )
    return found


def absolute_name(text: str) -> str:
    """The name with the whole path of its file, if it has one, as any process can use it."""
    where, _, name = text.rpartition(":")
    return f"{Path(where).expanduser().resolve()}:{name}" if where.endswith(".py") else text


def source_file(text: str) -> Path | None:
    """The file that `module:NAME` is in, found without running it; None if there is none."""
    try:
        spec = find_spec(text.rpartition(":")[0])
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def _run(text: str, what: str) -> ModuleType:
    """The module of an object, imported."""
    where = text.rpartition(":")[0]
    try:
        return _import_file(where) if where.endswith(".py") else _import_module(where)
    except VitreousError:
        raise
    except (Exception, SystemExit) as error:
        why = reason(error).rstrip(".")
        raise VitreousError(f"The {what} {text!r} cannot be imported: {why}.") from error


def _import_module(name: str) -> ModuleType:
    _search(Path.cwd())  # `python` looks there by itself, the installed command does not
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # another module, which this one imports
        raise UnknownName("module", error.name, _modules_beside(error.name)) from None


def _modules_beside(name: str) -> list[str]:
    package = name.rpartition(".")[0]
    if not package:
        return [each.name for each in iter_modules()]
    folders = getattr(sys.modules.get(package), "__path__", ())
    return [f"{package}.{each.name}" for each in iter_modules(folders)]


def _import_file(where: str) -> ModuleType:
    """The module in a file; within a package it is the same one as by the package's name."""
    path = Path(where).expanduser().resolve()
    if not path.is_file():
        beside = [each.name for each in path.parent.glob("*.py")]
        raise UnknownName("file", path.name, beside, f"It was looked for in {path.parent}.")
    if (path.parent / "__init__.py").is_file():
        return _import_from_package(path)
    _search(path.parent)  # what it imports may lie beside it
    return _import_alone(path)


def _import_from_package(path: Path) -> ModuleType:
    names = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    _search(folder)
    module = import_module(".".join(names))
    if Path(module.__file__ or "").resolve() != path:
        raise VitreousError(
            f"{str(path)!r} cannot be imported: Python finds {module.__file__!r} under that name."
        )
    return module


def _import_alone(path: Path) -> ModuleType:
    """The module in a file outside of any package, under a name that no other module has."""
    name = f"vitreous_plugin_{path}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _search(folder: Path) -> None:
    """Let Python look for modules in a folder, after all other places."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
