"""A result as the output of a notebook cell: the main figure and the first rows, no scripts."""

from __future__ import annotations

import base64
import re
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

import pandas as pd

from vitreous.palette import PAPERS
from vitreous.results.charts import chart_png, chart_svg
from vitreous.results.compact_svg import compact_svg
from vitreous.results.style import FONT

if TYPE_CHECKING:
    from vitreous.results.result import Result

ROWS = 6
SHARP = 2.0
"""Pixels to a point, where they fit."""
MAX_BYTES = 36_000
"""Maximum size of a figure, so that a notebook with fifty results is small enough to mail."""


def result_html(result: Result) -> str:
    """Return a result as HTML in the colours of the notebook around it."""
    how_to_read = escape(result.views[0].how_to_read) if result.views else ""
    summary = f"{escape(result.name)}: {len(result.table)} rows"
    return (
        f'<div style="overflow-x: auto">{figure_html(result)}'
        f'<p style="max-width: 46em; opacity: 0.8; margin: 4px 0">{how_to_read}</p>'
        f'<details><summary style="cursor: pointer">{summary}</summary>\n'
        f"{_table(result)}</details></div>\n"
    )


def figure_html(result: Result, most: int = MAX_BYTES) -> str:
    """Return the main figure as SVG in the colours around it, or as a PNG on light paper.

    Heat-maps, tiles, and charts of more than `most` bytes are PNGs, in as many pixels as fit.
    """
    if not result.views or result.table.empty:
        return ""
    chart = result.chart()
    if result.views[0].mark not in ("heatmap", "tiles"):
        drawn = _inherit_colours(chart_svg(chart), result)
        if len(drawn) <= most:
            return drawn
    content, width = _small_png(chart_png(chart, SHARP), most * 3 // 4)
    encoded = base64.b64encode(content).decode()
    title = escape(result.views[0].title or result.name, quote=True)
    return (
        f'<img alt="{title}" width="{width}" style="max-width: 100%" '
        f'src="data:image/png;base64,{encoded}">'
    )


def _inherit_colours(drawn: str, result: Result) -> str:
    """Return an SVG without paper, in the colour and font around it."""
    ink, paper = PAPERS["light"]
    halo = rf'<text[^>]*fill="{paper}"[^>]*>[^<]*</text>'
    drawn = re.sub(rf'<rect[^>]*fill="{paper}"[^>]*/>', "", drawn, flags=re.IGNORECASE)
    drawn = re.sub(halo, "", drawn, flags=re.IGNORECASE)
    drawn = re.sub(ink, "currentColor", drawn, flags=re.IGNORECASE)
    prefix = re.sub(r"\W+", "-", f"{result.name}-", flags=re.ASCII)
    compact = compact_svg(drawn, result.views[0].title or result.name, prefix)
    shown = f'font-family="{FONT}" style="max-width: 100%; height: auto"'
    return compact.replace("<svg ", f"<svg {shown} ", 1)


def _small_png(content: bytes, most: int) -> tuple[bytes, int]:
    """Return a PNG of about `most` bytes at the most, and the width at which to show it.

    It has at most 255 colours: a third of the size, and it looks the same. Where that is not
    enough, it has fewer pixels.
    """
    from PIL import Image

    image = Image.open(BytesIO(content)).convert("RGB")
    width = round(image.width / SHARP)
    for share in (1.0, 0.75, 0.5, 0.35, 0.25):
        size = (max(round(image.width * share), 1), max(round(image.height * share), 1))
        smaller = image if share == 1 else image.resize(size, Image.Resampling.BOX)
        drawn = BytesIO()
        smaller.quantize(255, dither=Image.Dither.NONE).save(drawn, "PNG", optimize=True)
        if drawn.tell() <= most:
            break
    return drawn.getvalue(), width


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
