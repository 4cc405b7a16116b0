"""Data in a page: text, tables, charts and arrays in compressed blocks that its script unpacks.

Base64 has no `<`, so nothing in a block can end it, whatever models and classes are called.
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
from vitreous.results.panels import colour_scale

Change = tuple[list[str | int], Any]
"""A path in a chart's specification, and the value there."""


def block(name: str, content: bytes | str) -> str:
    """Return a block of data as HTML; browsers do not run a script of type `text/plain`."""
    raw = content.encode(errors="replace") if isinstance(content, str) else content
    packed = base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode()
    return f'<script type="text/plain" id="{name}">{packed}</script>'


def policy_hash(text: str) -> str:
    """Return the name of a script or style in a content-security policy that allows it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def compact_json(value: Any) -> str:
    """Return JSON without spaces; NaN raises."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def chart_data(result: Result, number: int) -> dict[str, Any]:
    """Return a view as Vega-Lite in the light theme, and the changes for the dark theme."""
    view = result.views[number]
    light = light_spec(result, number)
    dark = _recolour(light, _dark_colours(result, view))
    if view.mark == "tiles":  # the paper is part of the image
        dark = _spec(result, number, "dark")
    kind = {"mark": view.mark, "x": view.x, "y": view.y, "value": view.colour, "facet": view.facet}
    changes = list(_differences(light, dark))
    return {"name": result.name, "view": kind, "spec": light, "dark": changes}


def light_spec(result: Result, number: int) -> dict[str, Any]:
    """Return a view as Vega-Lite in the light theme; not to be changed."""
    return _spec(result, number, "light")


def _spec(result: Result, number: int, theme: Theme) -> dict[str, Any]:
    """Return the specification of a chart without its title, which the page shows itself."""
    import altair as alt  # takes a second, which a page of verdicts alone does not need

    # our own charts need no validation, which takes longer than drawing them, and altair would
    # look at every number of the rows
    with alt.utils.schemapi.debug_mode(False):
        drawn: Any = result.chart(number, theme)
        rows = drawn.datasets
        drawn.datasets = alt.Undefined
        spec: dict[str, Any] = drawn.to_dict(validate=False)
    kept = {key: value for key, value in spec.items() if key not in ("$schema", "title")}
    return {
        **kept,
        "description": result.views[number].title or result.name,
        "datasets": {**spec.get("datasets", {}), **({} if rows is alt.Undefined else rows)},
    }


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
