"""Questions that need many passes or gradients, one in a file. `vitreous.analyse` asks them."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.errors import UnknownName

if TYPE_CHECKING:
    from vitreous.analyses.analysis import Analysis

MACHINERY = (
    "__init__",
    "analysis",
    "engine",
    "pieces",
    "steadiness",
    "curvature",
    "second_derivatives",
    "lanczos",
    "directions",
    "copies",
    "relief",
    "answers",
    "edits",
    "ridge",
    "logistic",
    "shifts",
)
"""Files that are no questions."""


def names() -> list[str]:
    """All questions; the folder is the registry."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in MACHINERY)


def named(name: str) -> type[Analysis]:
    """The question of this name: the class in the file of the name."""
    if name not in names():
        raise UnknownName("analysis", name, names(), "`vitreous list analyses` shows them all.")
    module = import_module(f"vitreous.analyses.{name}")
    found: type[Analysis] = module.__dict__[module.__all__[0]]
    return found


def summary(name: str) -> str:
    """What a question asks, in one line; read from its file, which would take seconds to import."""
    source = ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(source) or "").partition("\n")[0]


def options(name: str) -> dict[str, tuple[str, str]]:
    """What can be chosen about a question, read from its file: name, and default and meaning."""
    source = ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
    constants = {
        ast.unparse(target): node.value
        for node in source.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }
    found: dict[str, tuple[str, str]] = {}
    for kind in (node for node in source.body if isinstance(node, ast.ClassDef)):
        if not any(ast.unparse(each).startswith("dataclass") for each in kind.decorator_list):
            continue
        for node, after in zip(kind.body, [*kind.body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign) or node.value is None or "ClassVar" in ast.unparse(node.annotation):
                continue
            if ast.unparse(node.target).startswith("_"):
                continue
            default = constants.get(ast.unparse(node.value), node.value)
            says = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            found[ast.unparse(node.target)] = ast.unparse(default), " ".join(str(says).split())
    return found
