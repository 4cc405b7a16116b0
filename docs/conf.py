"""How the manual is built: `make docs`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import vitreous

project = "Vitreous"
copyright = "the Vitreous authors"
version = release = vitreous.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "Vitreous"
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 2
napoleon_google_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"


def _plain(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Docstrings are written as prose with `code` in it; Sphinx reads reStructuredText, where stars
    mean something."""
    for i, line in enumerate(lines):
        parts = re.split(r"(`[^`]+`)", line)
        lines[i] = "".join(
            f"`{part}`" if part.startswith("`") else re.sub(r"([*|])", r"\\\1", part)
            for part in parts
        )


def setup(app: object) -> None:
    app.connect("autodoc-process-docstring", _plain)  # type: ignore[attr-defined]
