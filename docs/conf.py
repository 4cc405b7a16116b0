"""How the manual is built: `make docs`."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "_extensions"))

import vitreous

HERE = Path(__file__).resolve().parent

project = "Vitreous"
copyright = "The Vitreous developers, Apache-2.0"
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
html_favicon = "_static/icon.svg"
html_math_renderer = "svg"
html_copy_source = False
html_show_sourcelink = False

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3


def _digest() -> str:
    """A name for the state of the package: outputs made with another one are not shown."""
    digest = hashlib.sha256()
    for path in sorted((HERE.parent / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


_caches = HERE / "_build" / "notebooks"
_cache = _caches / _digest()
for _old in _caches.glob("*"):
    if _old != _cache:
        shutil.rmtree(_old, ignore_errors=True)
os.environ["PYTHONPATH"] = str(HERE.parent / "src")  # for the kernels
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
logging.getLogger("traitlets").setLevel(logging.WARNING)
_kernel = HERE / "_build" / "jupyter" / "kernels" / "python3" / "kernel.json"
_kernel.parent.mkdir(parents=True, exist_ok=True)
_start = [sys.executable, "-m", "ipykernel_launcher", "--log-level=ERROR", "-f"]
_kernel.write_text(
    json.dumps({"argv": [*_start, "{connection_file}"], "display_name": "Python 3"}),
    encoding="utf-8",
)  # this Python, whichever one a kernel of the user's calls python3
os.environ["JUPYTER_PATH"] = str(HERE / "_build" / "jupyter")  # comes before the user's

nb_execution_mode = "cache"
nb_execution_cache_path = str(_cache)
nb_execution_timeout = 300
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_output_stderr = "remove"
nb_merge_streams = True

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


_LABELS = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="On this page">',
}
"""What the theme leaves out and screen readers need."""


def _label(app: Any, error: Exception | None) -> None:
    """Complete the labels of the finished pages."""
    for path in Path(app.outdir).rglob("*.html"):
        text = labelled = path.read_text(encoding="utf-8")
        for plain, complete in _LABELS.items():
            labelled = labelled.replace(plain, complete)
        if labelled != text:
            path.write_text(labelled, encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _plain)
    app.connect("build-finished", _label)
