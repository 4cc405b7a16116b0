"""Facts about plugins, parsed from their source without running it, so lists and help are quick."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

Definition = ast.ClassDef | ast.FunctionDef


def source_file(where: str) -> Path | None:
    """The file of `path/file.py` or `mypkg.module`; None if there is none. Nothing is imported.

    (`importlib.util.find_spec` would import the packages above a module.)
    """
    if where.endswith(".py"):
        path = Path(where).expanduser()
        return path if path.is_file() else None
    top, *inside = where.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not inside:
        files = [Path(spec.origin)] if spec and spec.origin else []
    else:
        bases = [Path(place, *inside) for place in places]
        files = [path for base in bases for path in (base / "__init__.py", Path(f"{base}.py"))]
    if spec is None or not files:  # the installed command does not look into the current folder
        base = Path(*where.split("."))
        files = [base / "__init__.py", Path(f"{base}.py")]
    return next((file for file in files if file.suffix == ".py" and file.is_file()), None)


def read_source(file: Path) -> ast.Module:
    """The syntax tree of a file; an empty one if it is no Python."""
    try:
        return ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def find_definition(text: str) -> Definition | None:
    """The class or function `NAME` of `file.py:NAME`; None if the file does not define it."""
    where, _, name = text.rpartition(":")
    file = source_file(where)
    body = read_source(file).body if file else []
    definitions = (node for node in body if isinstance(node, Definition) and node.name == name)
    return next(definitions, None)


def summary(text: str) -> str:
    """The first line of a plugin's docstring, else of its module's docstring, else ""."""
    definition = find_definition(text)
    file = source_file(text.rpartition(":")[0])
    of_object = (ast.get_docstring(definition) or "") if definition else ""
    of_module = (ast.get_docstring(read_source(file)) or "") if file else ""
    return (of_object or of_module).partition("\n")[0]


def defined_names(file: Path) -> list[str]:
    """Public classes and functions of a file, in its order."""
    names = [node.name for node in read_source(file).body if isinstance(node, Definition)]
    return [name for name in names if not name.startswith("_")]


def find_problem(text: str) -> str:
    """Why a plugin cannot be loaded, as far as its source shows it; "" if no problem is found."""
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        return f"{text!r} is not of the form MODULE:NAME"
    file = source_file(where)
    if file is None:
        return f"there is no module {where!r}"
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        return f"{file} is no Python ({error})"
    names = {name for node in tree.body for name in _bound_names(node)}
    if "*" in names or "__getattr__" in names or name in names:
        return ""
    return f"{where!r} has no {name!r}"


def _bound_names(node: ast.stmt) -> set[str]:
    """Names that a statement of a module may define, including names inside its branches."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    for each in ast.walk(node):
        if isinstance(each, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(each.name)
        elif isinstance(each, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in each.names}
    return names
