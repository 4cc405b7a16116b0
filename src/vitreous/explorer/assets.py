"""The files of the live page: those in `page/`, and two that are generated from the report's."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from vitreous.palette import KIND_COLOURS, RAMPS, ink_on
from vitreous.report.packing import compact_json
from vitreous.report.style import asset, colour_rules

DRAWING = ("dom.js", "attention_draw.js", "attention_words.js")
"""Scripts of the report that the page draws with."""
EXPORTS = (
    "$", "$$", "make", "capital", "colour", "describe", "drawMap", "drawScale", "paste", "percent",
    "sharpen", "summarise", "tokenNames", "veil",
)  # fmt: skip
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}


class PageFile(NamedTuple):
    """A file that the server sends."""

    media_type: str
    content: bytes


def page_files(models: Sequence[str]) -> dict[str, PageFile]:
    """Return the files of the page by their paths; "" is the page itself.

    Parameters
    ----------
    models
        The names of the models, which decide on their colours.

    Examples
    --------
    >>> page_files(["nano:vit"])["static/main.js"].media_type
    'text/javascript; charset=utf-8'
    """
    pages = {"": _file("index.html", _read("index.html"))}
    for path in files("vitreous.explorer").joinpath("page").iterdir():
        if path.name.endswith((".js", ".css")):
            pages[f"static/{path.name}"] = _file(path.name, path.read_text(encoding="utf-8"))
    for name, text in (("colours.css", _colours(models)), ("drawing.js", _drawing())):
        pages[f"static/{name}"] = _file(name, text)
    return pages


def _read(name: str) -> str:
    return files("vitreous.explorer").joinpath("page", name).read_text(encoding="utf-8")


def _file(name: str, text: str) -> PageFile:
    return PageFile(MEDIA_TYPES[name[name.rindex(".") :]], text.encode())


def _colours(models: Sequence[str]) -> str:
    """Return the palette as CSS variables, with the text colour on each kind of unit."""
    kinds = "".join(
        f".kind-{kind}{{--kind:{colour};--on-kind:{ink_on(kind)}}}"
        for kind, colour in KIND_COLOURS.items()
    )
    lines = "".join(f".line-{i}{{stroke:var(--model-{i})}}" for i in range(len(models)))
    return f"{colour_rules(models)}{kinds}{lines}\n"


def _drawing() -> str:
    """Return the report's drawing scripts, which share one scope there, as one module."""
    settings = f"const settings = {compact_json({'ramps': RAMPS})};"
    exports = f"export {{ {', '.join(EXPORTS)} }};"
    return "\n".join([settings, *map(asset, DRAWING), exports, ""])
