"""Analyses: measurements that need many passes or gradients, one in a file."""

from __future__ import annotations

import ast
from pathlib import Path

from vitreous.measure.registry import Registry
from vitreous.plugins import ANALYSIS, BOOK_ANALYSES

REGISTRY = Registry(__name__, Path(__file__).parent, ANALYSIS, "analyses", BOOK_ANALYSES)
names, summary, named = REGISTRY.names, REGISTRY.summary, REGISTRY.named
own_names = REGISTRY.own_names


def analysis_options(name: str) -> dict[str, tuple[str, str]]:
    """Return the options of an analysis, name to (default, meaning), read from its source."""
    source = REGISTRY.source(name)
    constants = {
        ast.unparse(target): node.value
        for node in source.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }
    options: dict[str, tuple[str, str]] = {}
    for kind in (node for node in source.body if isinstance(node, ast.ClassDef)):
        if not any(ast.unparse(each).startswith("dataclass") for each in kind.decorator_list):
            continue
        for node, docstring in zip(kind.body, [*kind.body[1:], None], strict=True):
            if (
                not isinstance(node, ast.AnnAssign)
                or node.value is None
                or "ClassVar" in ast.unparse(node.annotation)
            ):
                continue
            if ast.unparse(node.target).startswith("_"):
                continue
            default = constants.get(ast.unparse(node.value), node.value)
            meaning: object = ""
            if isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant):
                meaning = docstring.value.value
            options[ast.unparse(node.target)] = ast.unparse(default), " ".join(str(meaning).split())
    return options
