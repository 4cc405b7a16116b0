"""How the manual is built: `make docs`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "_extensions"))

import vitreous

HERE = Path(__file__).resolve().parent

project = "Vitreous"
copyright = "the Vitreous authors"
version = release = vitreous.__version__

extensions = [
    "myst_nb",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "typeset",
]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "Vitreous"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "svg"
html_copy_source = False
html_show_sourcelink = False

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "notebooks")
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_execution_show_tb = True

copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = "$ "

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
