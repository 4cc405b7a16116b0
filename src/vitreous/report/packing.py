"""What a page carries: text, tables, charts and arrays as compressed blocks that its script unpacks when needed.

Base64 holds no `<`, so nothing in a block can end it, whatever models and classes are called.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from vitreous.palette import OPPOSITES, PAPERS, RAMPS, Theme
from vitreous.results import Result, View
from vitreous.results.panels import colour_scale

Change = tuple[list[str | int], Any]
"""Where in a chart, and what is there instead."""


def block(name: str, content: bytes | str) -> str:
    """A block of data; browsers do not run what is `text/plain`."""
    raw = content.encode(errors="replace") if isinstance(content, str) else content
    packed = base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode()
    return f'<script type="text/plain" id="{name}">{packed}</script>'


def digest(text: str) -> str:
    """As a content-security policy names a script or a style that may be used."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def plain(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def chart(result: Result, number: int) -> dict[str, Any]:
    """A view as Vega-Lite on light paper, and what changes on dark paper."""
    view = result.views[number]
    light = _spec(result, number, "light")
    if view.mark == "tiles":  # pictures lie on the paper they are drawn on
        dark = list(differences(light, _spec(result, number, "dark")))
    else:
        dark = list(differences(light, recoloured(light, _night(result, view))))
    kind = {"mark": view.mark, "x": view.x, "y": view.y, "value": view.colour, "facet": view.facet}
    return {"name": result.name, "view": kind, "spec": light, "dark": dark}


def _spec(result: Result, number: int, theme: Theme) -> dict[str, Any]:
    """Without its title, which stands on the page."""
    import altair as alt  # a second, which a page of verdicts alone does not need

    with alt.utils.schemapi.debug_mode(
        False
    ):  # our own charts: what they are made of was checked when written
        spec: dict[str, Any] = result.chart(number, theme).to_dict(validate=False)
    kept = {key: value for key, value in spec.items() if key not in ("$schema", "title")}
    return {
        **kept,
        "description": result.views[number].title or result.name,
        "datasets": spec.get("datasets", {}),
    }


def _night(result: Result, view: View) -> dict[str, str]:
    """Every colour of a chart that another takes the place of on dark paper. Drawing a chart anew for it would take as
    long as the first time."""
    every = [
        (PAPERS["light"], PAPERS["dark"]),
        (RAMPS["light"], RAMPS["dark"]),
        (OPPOSITES["light"], OPPOSITES["dark"]),
    ]
    known = {
        day: night
        for by_day, by_night in every
        for day, night in zip(by_day, by_night, strict=True)
    }
    light, dark = (colour_scale(result.rows_of(view), view, theme) for theme in ("light", "dark"))
    if light and dark:
        known |= dict(zip(light.colours, dark.colours, strict=True))
    return known


def recoloured(part: Any, colours: dict[str, str]) -> Any:
    """The same with other colours; rows have none."""
    if isinstance(part, dict):
        return {
            key: inside if key == "datasets" else recoloured(inside, colours)
            for key, inside in part.items()
        }
    if isinstance(part, list):
        return [recoloured(inside, colours) for inside in part]
    return colours.get(part, part) if isinstance(part, str) else part


def differences(one: Any, other: Any, at: tuple[str | int, ...] = ()) -> Iterator[Change]:
    """What has to be set, and where, to make `other` of `one`."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in other:
            yield from differences(one[key], other[key], (*at, key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, (*at, i))
    elif one != other:
        yield list(at), other
