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
