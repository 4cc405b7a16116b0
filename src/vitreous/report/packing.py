"""Data in a page: text, tables, charts and arrays in compressed blocks that its script unpacks.

Base64 contains no `<`, so the names of models and classes in a block cannot end it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from vitreous.palette import MEASURE_COLOURS, OPPOSITES, PAPERS, RAMPS, Theme
from vitreous.results import Result, View
from vitreous.results.charts import chart_spec
from vitreous.results.colour_scales import colour_scale

Change = tuple[list[str | int], Any]
"""A path in a chart's specification, and the value there."""


def block(name: str, content: bytes | str) -> str:
    """Return a block of data as HTML; browsers do not run a script of type `text/plain`."""
    raw = content.encode(errors="replace") if isinstance(content, str) else content
    packed = base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode()
    return f'<script type="text/plain" id="{name}">{packed}</script>'


def policy_hash(text: str) -> str:
    """Return the source expression that allows a script or style in a content-security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def compact_json(value: Any) -> str:
    """Return JSON without spaces; NaN raises."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def chart_data(result: Result, number: int) -> dict[str, Any]:
    """Return a view as Vega-Lite in the light theme, and the changes for the dark theme."""
    view = result.views[number]
    light = light_spec(result, number)
    dark = _recolour(light, _dark_colours(result, view))
    kind = {"mark": view.mark, "x": view.x, "y": view.y, "value": view.colour, "facet": view.facet}
    changes = list(_differences(light, dark))
    opens = _opened_views(result, number)
    return {"name": result.name, "view": kind, "opens": opens, "spec": light, "dark": changes}


def _opened_views(result: Result, number: int) -> dict[str, Any] | None:
    """Return which panels a click on a mark of a view opens; None if it opens none.

    `views` are the numbers of the later views that are faceted by `column`. A click opens their
    panel for the entry that the mark's row has in `column`.
    """
    column = result.views[number].opens
    later = enumerate(result.views[number + 1 :], number + 1)
    views = [i for i, view in later if column and view.facet == column]
    return {"column": column, "views": views} if views else None


def light_spec(result: Result, number: int) -> dict[str, Any]:
    """Return a view as Vega-Lite in the light theme; not to be changed."""
    return _spec(result, number, "light")


def _spec(result: Result, number: int, theme: Theme) -> dict[str, Any]:
    """Return the specification of a chart without its title, which the page shows itself.

    Numbers are rounded to six digits; the page's table has all. Numbers that identify a cell, a
    colour or a line are not rounded, because the domains of scales list them.
    """
    view = result.views[number]
    spec = chart_spec(result, view, theme)
    exact = {view.x, view.y} if view.mark == "heatmap" else {view.colour, view.detail}
    kept = {key: value for key, value in spec.items() if key != "title"}
    return {
        **kept,
        "description": view.title or result.name,
        "datasets": {
            name: [
                {key: v if key in exact else _short_number(v) for key, v in row.items()}
                for row in rows
            ]
            for name, rows in spec.get("datasets", {}).items()
        },
    }


def _short_number(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _dark_colours(result: Result, view: View) -> dict[str, str]:
    """Return the dark theme's colour for each of the light theme.

    Replacing colours is much quicker than drawing the chart again.
    """
    colours: dict[str, str] = {}
    for themes in (PAPERS, RAMPS, OPPOSITES, MEASURE_COLOURS):
        colours |= dict(zip(themes["light"], themes["dark"], strict=True))
    light, dark = (colour_scale(result.rows_of(view), view, theme) for theme in ("light", "dark"))
    if light and dark:
        colours |= dict(zip(light.colours, dark.colours, strict=True))
    return colours


def _recolour(part: Any, colours: dict[str, str]) -> Any:
    """Return a part of a specification with its colours replaced; rows of data have none."""
    if isinstance(part, dict):
        return {
            key: inside if key == "datasets" else _recolour(inside, colours)
            for key, inside in part.items()
        }
    if isinstance(part, list):
        return [_recolour(inside, colours) for inside in part]
    return colours.get(part, part) if isinstance(part, str) else part


def _differences(one: Any, other: Any, at: tuple[str | int, ...] = ()) -> Iterator[Change]:
    """Yield the changes that turn `one` into `other`."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in other:
            yield from _differences(one[key], other[key], (*at, key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differences(left, right, (*at, i))
    elif one != other:
        yield list(at), other
