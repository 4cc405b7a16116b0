"""Plugins: probes, analyses, models, recipes and books that are not part of this package.

A plugin is written `path/file.py:NAME` or `mypkg.module:NAME`, wherever a name goes. An installed
package can also declare it as an entry point, and then it is known by a name. Looking plugins up
imports nothing (`source_file`, `summary`, `find_problem` read the source text); `load_object` runs
the file. Whatever goes wrong there is one sentence that names the plugin, its file and line.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module, metadata
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import isroutine
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from vitreous.errors import InYourCode, UnknownName, VitreousError, reason
from vitreous.plugin_source import defined_names, source_file


@dataclass(frozen=True)
class Kind:
    """A kind of plugin: its name, its group of entry points, and the type its objects must have."""

    what: str
    group: str
    must_be: str

    @property
    def article(self) -> str:
        return "an" if self.what[0] in "aeiou" else "a"


PROBE = Kind("probe", "vitreous.probes", "a class derived from vitreous.measure.probe.Probe")
ANALYSIS = Kind(
    "analysis", "vitreous.analyses", "a class derived from vitreous.measure.analysis.Analysis"
)
MODEL = Kind("model", "vitreous.models", "an nn.Module, or a function or class that makes one")
RECIPE = Kind("recipe", "vitreous.recipes", "a vitreous.config.Recipe, or a function that makes it")
BOOK = Kind("book", "vitreous.books", "a vitreous.claims.book.Book, as Book.read returns it")
KINDS = (PROBE, ANALYSIS, MODEL, RECIPE, BOOK)

BOOK_PROBES: dict[str, str] = {}
"""Probes of all books that were read, by name, as `module:Class`."""
BOOK_ANALYSES: dict[str, str] = {}
"""Analyses of all books that were read, by name, as `module:Class`."""
_RUN: dict[str, str] = {}
"""Files of plugins that were run in this process, and the plugin each was run for."""


@dataclass(frozen=True)
class Installed:
    """An entry point: its name, its reference `module:NAME`, and the package that declares it."""

    key: str
    text: str
    package: str
    version: str = ""

    @property
    def origin(self) -> str:
        return f"{self.package} {self.version}".strip()


@cache
def installed_objects(group: str) -> tuple[Installed, ...]:
    """The entry points of a group, sorted by their names; nothing is imported."""
    plugins = []
    for each in metadata.entry_points(group=group):
        text = each.value.partition("[")[0].strip()  # without extras
        package = each.dist.name if each.dist else text.partition(":")[0].partition(".")[0]
        plugins.append(Installed(each.name, text, package, each.dist.version if each.dist else ""))
    return tuple(sorted(plugins, key=lambda each: (each.key, each.text)))


def usable_plugins(kind: Kind, taken: Container[str] = ()) -> dict[str, Installed]:
    """Installed plugins by name, without those whose name is taken or that two packages have."""
    clashes = find_clashes(kind, taken)
    installed = installed_objects(kind.group)
    return {each.key: each for each in installed if each.key not in clashes}


def find_clashes(kind: Kind, taken: Container[str] = ()) -> dict[str, str]:
    """Names of entry points that cannot be used, and why, as one sentence each."""
    clashes: dict[str, str] = {}
    first: dict[str, Installed] = {}
    for each in installed_objects(kind.group):
        other = first.setdefault(each.key, each)
        if each.key in taken:
            by_name = kind in (PROBE, ANALYSIS)  # results are known by the name alone
            remedy = "choose another name" if by_name else f"say {each.text} to use this one"
            clashes[each.key] = (
                f"The {kind.what} {each.key!r} of the package {each.origin} has the name of one of "
                f"Vitreous, which is used; {remedy}."
            )
        elif other.text != each.text:
            clashes[each.key] = (
                f"The packages {other.package} and {each.package} both bring a {kind.what} "
                f"{each.key!r}; say {other.text} or {each.text} instead of its name."
            )
    return clashes


def is_reference(text: str) -> bool:
    """Whether a text is a reference to a plugin's source (`file.py:NAME`) and not a name."""
    return ":" in text or text.endswith(".py")


def load_object(text: str, kind: Kind, fits: Callable[[Any], bool]) -> Any:
    """Load a plugin by its place, which runs its file.

    Parameters
    ----------
    text
        `mypkg.module:NAME`, or `path/file.py:NAME`.
    kind
        What it is, for errors.
    fits
        Whether an object is of that kind.

    Examples
    --------
    >>> book = load_object("fifth_paper:BOOK", BOOK, lambda found: isinstance(found, Book))
    """
    where, name = split_reference(text, kind)
    module = _run(text, kind)
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if fits(value) and key[0] != "_"]
        known = [key for key in known if not _is_imported(getattr(module, key), module)]
        hint = f"{where} has {', '.join(known) or 'none'}."
        raise UnknownName(kind.what, text, [f"{where}:{key}" for key in known], hint)
    plugin = getattr(module, name)
    if not fits(plugin):
        raise VitreousError(
            f"{text!r} is no {kind.what}: it is {describe_object(plugin)}, and has to be "
            f"{kind.must_be}."
        )
    return plugin


def split_reference(text: str, kind: Kind) -> tuple[str, str]:
    """The module or file of a plugin, and its name in there."""
    if text.endswith(".py"):
        names = [] if (file := source_file(text)) is None else defined_names(file)
        example = names[0] if names else "NAME"
        raise VitreousError(
            f"{text!r} is a file; name the {kind.what} in it, as in {text}:{example}."
        )
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        raise VitreousError(
            f"{kind.article.capitalize()} {kind.what} is given as MODULE:NAME or FILE.py:NAME, for "
            f"example mypkg.findings:NAME, not {text!r}."
        )
    return where, name


def _is_imported(found: Any, module: ModuleType) -> bool:
    defines = isinstance(found, type) or isroutine(found)
    return defines and found.__module__ != module.__name__


def describe_object(found: Any) -> str:
    """An object's type with its article, for errors: "an int", "a class Net", "an analysis"."""
    category = getattr(found, "category", "")
    if isinstance(found, type):
        name = category if isinstance(category, str) and category else f"class {found.__name__}"
    else:
        name = type(found).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def absolute_name(text: str, folder: Path | None = None) -> str:
    """The reference with the absolute path of its file, if it has one, so any process can use it.

    A relative path starts in `folder` (default: the current one).
    """
    where, _, name = text.rpartition(":")
    if not where.endswith(".py"):
        return text
    return f"{((folder or Path()) / Path(where).expanduser()).resolve()}:{name}"


def source_digest(text: str) -> str:
    """A checksum of the file of a plugin; "" if there is none."""
    file = source_file(text.rpartition(":")[0])
    return "" if file is None else sha256(file.read_bytes()).hexdigest()[:16]


def in_your_code(error: BaseException) -> InYourCode | None:
    """The error with a traceback that begins in the plugin that raised it; None if none did."""
    files = [each.filename for each in traceback.extract_tb(error.__traceback__)]
    file = next((each for each in reversed(files) if each in _RUN), None)
    return InYourCode(_RUN[file], error, file) if file else None


def _run(text: str, kind: Kind) -> ModuleType:
    """The module of a plugin, imported."""
    where = text.rpartition(":")[0]
    try:
        return import_source(text)
    except VitreousError:
        raise
    except (Exception, SystemExit) as error:
        file = source_file(where)
        why = reason(error, str(file.resolve()) if file else "").rstrip(".")
        raise VitreousError(f"The {kind.what} {text!r} cannot be imported: {why}.") from error


def import_source(text: str) -> ModuleType:
    """The module that `file.py:NAME` or `mypkg.module:NAME` is in; what it raises is passed on."""
    where = text.rpartition(":")[0]
    module = _import_file(where) if where.endswith(".py") else _import_module(where)
    if module.__file__:
        _RUN[module.__file__] = text
    return module


def _import_module(name: str) -> ModuleType:
    search_folder(Path.cwd())  # `python` looks there by itself, the installed command does not
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # another module, which this one imports
        raise _no_module(error.name) from None


def _no_module(name: str) -> VitreousError:
    if Path(name).is_file():
        return VitreousError(f"{name!r} is no Python file: plugins are in files that end in .py.")
    package = name.rpartition(".")[0]
    if not package:
        return UnknownName("module", name, [each.name for each in iter_modules()])
    folders = getattr(sys.modules.get(package), "__path__", ())
    return UnknownName("module", name, [f"{package}.{each.name}" for each in iter_modules(folders)])


def _import_file(where: str) -> ModuleType:
    """The module in a file; within a package it is the same one as by the package's name."""
    path = Path(where).expanduser().resolve()
    if not path.is_file():
        beside = [each.name for each in path.parent.glob("*.py")]
        raise UnknownName("file", path.name, beside, f"It was looked for in {path.parent}.")
    if (path.parent / "__init__.py").is_file():
        return _import_from_package(path)
    search_folder(path.parent)  # what it imports may lie beside it
    return _import_alone(path)


def _import_from_package(path: Path) -> ModuleType:
    names = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    search_folder(folder)
    package = import_module(names[0])
    expected = folder / names[0] / "__init__.py"
    if Path(package.__file__ or "").resolve() != expected:
        raise VitreousError(
            f"{str(path)!r} cannot be imported: its package is called {names[0]}, and under that "
            f"name Python has {package.__file__ or 'a package without files'}. Rename the folder."
        )
    return import_module(".".join(names))


def _import_alone(path: Path) -> ModuleType:
    """The module in a file outside of any package, under a name that no other module has.

    A file that has changed since it was imported is run again, so that a notebook uses its current
    text.
    """
    source = path.read_bytes()
    digest = sha256(source).hexdigest()
    name = f"vitreous_plugin_{path}"
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__vitreous_digest__", "") == digest:
        return known
    spec = spec_from_file_location(name, path)
    assert spec is not None
    module = module_from_spec(spec)
    vars(module)["__vitreous_digest__"] = digest
    sys.modules[name] = module
    try:
        # Not with the spec's loader: its cached bytecode would survive an edit in the same second.
        exec(compile(source, path, "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


def is_module(name: str) -> bool:
    """Whether Python finds a module, installed or in the current folder."""
    if source_file(name) is not None:
        return True
    try:
        return find_spec(name) is not None  # compiled ones
    except (ImportError, ValueError):  # of a package that is not there
        return False


def search_folder(folder: Path) -> None:
    """Let Python look for modules in a folder, after all other places."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
