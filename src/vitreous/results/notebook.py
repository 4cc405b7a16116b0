"""A result as the output of a notebook's cell: the main picture and the first rows, without script or network."""

from __future__ import annotations

import base64
import re
from html import escape
from io import BytesIO

import pandas as pd

from vitreous.palette import PAPERS
from vitreous.results.charts import png, svg
from vitreous.results.result import Result
from vitreous.results.style import FONT

ROWS = 6
MOST = 36_000
"""Bytes of a picture; a notebook with fifty results stays small enough to mail."""


def html(result: Result) -> str:
    """In the ink of the notebook around it; a picture of too many marks for SVG becomes a PNG on light paper."""
    facts = f"{len(result.table)} rows"
    read = escape(result.views[0].how_to_read) if result.views else ""
    return (
        f'<div style="overflow-x: auto">{_picture(result)}'
        f'<p style="max-width: 46em; opacity: 0.8; margin: 4px 0">{read}</p>'
        f'<details><summary style="cursor: pointer">{escape(result.name)}: {facts}</summary>\n'
        f"{_table(result)}</details></div>\n"
    )


def _picture(result: Result) -> str:
    if not result.views or result.table.empty:
        return ""
    chart = result.chart()
    drawn = "" if result.views[0].mark in ("heatmap", "tiles") else _inked(svg(chart))
    if 0 < len(drawn) <= MOST:
        return drawn
    for scale in (2.0, 1.5, 1.0, 0.7, 0.5):
        content = _fewer_colours(png(chart, scale))
        if len(content) <= MOST * 3 // 4:
            break
    width = round(
        int.from_bytes(content[16:20], "big") / scale
    )  # a PNG says its width in its first header
    encoded = base64.b64encode(content).decode()
    words = escape(result.views[0].title or result.name, quote=True)
    return f'<img alt="{words}" width="{width}" style="max-width: 100%" src="data:image/png;base64,{encoded}">'


def _inked(drawn: str) -> str:
    """An SVG without its paper, in the ink and the font of what is around it, numbers to a hundredth of a pixel."""
    ink, paper = PAPERS["light"]
    drawn = re.sub(rf'<rect[^>]*fill="{paper}"[^>]*/>', "", drawn, flags=re.IGNORECASE)
    drawn = re.sub(
        rf'<text[^>]*fill="{paper}"[^>]*>[^<]*</text>', "", drawn, flags=re.IGNORECASE
    )  # halos
    drawn = re.sub(ink, "currentColor", drawn, flags=re.IGNORECASE)
    drawn = re.sub(r' (font-family|aria-[a-z]+)="[^"]*"', "", drawn)
    drawn = re.sub(r"(\d\.\d\d)\d+", r"\1", drawn)
    return drawn.replace("<svg ", f'<svg font-family="{FONT}" ', 1)


def _fewer_colours(content: bytes) -> bytes:
    """A PNG of at most 255 colours, a third of the size and hard to tell from the first."""
    from PIL import Image

    smaller = BytesIO()
    Image.open(BytesIO(content)).convert("RGB").quantize(255, dither=Image.Dither.NONE).save(
        smaller, "PNG", optimize=True
    )
    return smaller.getvalue()


def _table(result: Result) -> str:
    heads = "".join(
        f'<th title="{escape(c.says, quote=True)}">{escape(c.title)}</th>' for c in result.columns
    )
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>\n"
        for row in result.table.head(ROWS).astype(object).itertuples(index=False)
    )
    more = len(result.table) - ROWS
    rest = f'<tr><td colspan="{len(result.columns)}">… {more} more</td></tr>' if more > 0 else ""
    return f"<table><thead><tr>{heads}</tr></thead><tbody>\n{rows}{rest}</tbody></table>"


def _cell(value: object) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
