"""Charts drawn in advance: for readers without JavaScript, and for printing."""

from __future__ import annotations

import base64
from html import escape
from io import BytesIO
from typing import Any

import numpy as np

from vitreous.palette import PAPERS
from vitreous.report.packing import light_spec
from vitreous.results import Result
from vitreous.results.colour_scales import ramp_colour
from vitreous.results.compact_svg import compact_svg
from vitreous.results.view import View

Spec = dict[str, Any]
HEIGHT = 210
"""Height of a panel in pixels."""
MAX_BYTES = 60_000
"""Size of the SVG above which a chart becomes a pixel image."""


def static_chart(result: Result, number: int, width: int) -> str:
    """Return a view as HTML in the light theme, which needs no script.

    Lines, bars and points are SVG; the cells of heat-maps, and tiles, are images inside it. A chart
    with so many marks that its SVG exceeds `MAX_BYTES` becomes a single image.

    Parameters
    ----------
    result, number
        The result, and which of its views.
    width
        In pixels; heat-maps and tiles may be narrower.

    Examples
    --------
    >>> static_chart(inspection["variance"], 0, 520)
    """
    import vl_convert  # starts JavaScript, which a page without charts does not need

    view = result.views[number]
    spec = _arrange(light_spec(result, number), view, width)
    title = view.title or result.name
    drawn = vl_convert.vegalite_to_svg(spec)
    compact = compact_svg(drawn, title, f"{result.name}-{number}-still-")
    if len(compact.encode()) <= MAX_BYTES:
        return compact
    return _picture(drawn, title)


def _arrange(spec: Spec, view: View, width: int) -> Spec:
    """Return a specification of this width, its legends on top."""
    legend = {**spec["config"]["legend"], "orient": "top", "direction": "horizontal", "offset": 8}
    legend["layout"] = {"top": {"anchor": "start", "direction": "vertical", "margin": 4}}
    spec = {**spec, "config": {**spec["config"], "legend": legend, "padding": 4}}
    if view.mark == "tiles":
        return _smaller_tiles(spec)
    panels = spec.get("concat")
    if not panels:
        if view.mark != "heatmap":
            return _sized(spec, width)
        around = {key: spec[key] for key in ("config", "datasets", "description")}
        return {**around, **_cells(spec, spec, width - 130)}
    beside = min(len(panels), 2 if len(panels) in (2, 4) else 3)
    room = (width - 24 * (beside - 1)) // beside - 58
    if view.mark == "heatmap":
        arranged = [_cells(spec, panel, room) for panel in panels]
    else:
        arranged = [_panel(panel, room, round(0.75 * room)) for panel in panels]
    return {**spec, "concat": arranged, "columns": beside}


def _sized(spec: Spec, width: int) -> Spec:
    """Return one panel with this total width, axes included."""
    if spec.get("width") == spec.get("height"):
        return _panel(spec, 300, 300)
    fit = {"autosize": {"type": "fit-x", "contains": "padding"}}
    return {**_panel(spec, width, HEIGHT), **fit}


def _panel(spec: Spec, width: int, height: int) -> Spec:
    if spec.get("width") == spec.get("height"):
        height = width
    return {**spec, "width": width, "height": height}


def _cells(spec: Spec, panel: Spec, room: int) -> Spec:
    """Return a heat-map whose cells are drawn as one image with a pixel per cell."""
    cells, *numbers = panel.get("layer", [panel])
    encoding = {**panel["encoding"], **cells["encoding"]}
    across, up = encoding["x"]["sort"], encoding["y"]["sort"]
    step = max(min(room / max(len(across), len(up), 1), 26), 1)
    wide, high = round(step * len(across)), round(step * len(up))
    rows = spec["datasets"][cells["data"]["name"]]
    picture = _cell_png(rows, encoding, across, up)
    encoding.pop("tooltip", None)
    for channel, levels in (("x", across), ("y", up)):
        axis = {**encoding[channel]["axis"], "labelOverlap": "greedy"}
        encoding[channel] = {**encoding[channel], "scale": {"domain": levels}, "axis": axis}
    axes = {"data": {"values": []}, "mark": cells["mark"], "encoding": encoding}
    place = {channel: encoding[channel] for channel in ("x", "y")}
    words = [{**each, "encoding": {**place, **each["encoding"]}} for each in numbers]
    image = {
        "data": {"values": [{"picture": picture}]},
        "mark": {
            "type": "image", "width": wide, "height": high, "align": "left", "baseline": "top",
        },
        "encoding": {
            "url": {"field": "picture", "type": "nominal"}, "x": {"value": 0}, "y": {"value": 0},
        },
    }  # fmt: skip
    kept: Spec = {key: panel[key] for key in ("title", "view") if key in panel}
    return {**kept, "layer": [axes, image, *words], "width": wide, "height": high}


def _cell_png(rows: list[Spec], encoding: Spec, across: list[Any], up: list[Any]) -> str:
    """Return the cells of a heat-map as the data URL of a PNG; missing cells are transparent."""
    scale = encoding["color"]["scale"]
    pixels = np.zeros((max(len(up), 1), max(len(across), 1), 4), dtype=np.uint8)
    columns = {level: i for i, level in enumerate(across)}
    lines = {level: i for i, level in enumerate(up)}
    x, y, value = (encoding[channel]["field"] for channel in ("x", "y", "color"))
    stops = scale.get("domain") or [0, 1]
    low, high = stops[0], stops[-1]
    for row in rows:
        if row[value] is None:
            continue
        colour = ramp_colour(scale["range"], (row[value] - low) / ((high - low) or 1))
        place = lines[row[y]], columns[row[x]]
        pixels[place] = [*(int(colour[i : i + 2], 16) for i in (1, 3, 5)), 255]
    return _png_address(pixels)


def _png_address(pixels: Any) -> str:
    from PIL import Image

    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    content = BytesIO()
    image.save(content, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def _smaller_tiles(spec: Spec) -> Spec:
    """Return tiles with one pixel to a point and at most 128 colours."""
    from PIL import Image

    layers = [*spec["layer"]]
    [row] = layers[0]["data"]["values"]
    tiles = Image.open(BytesIO(base64.b64decode(row["picture"].partition(",")[2])))
    image = Image.new("RGBA", tiles.size, PAPERS["light"][1])
    image.alpha_composite(tiles)
    for shrink in (2, 3, 4, 6, 8):
        smaller = image.convert("RGB").resize(
            (max(image.width // shrink, 1), max(image.height // shrink, 1)), Image.Resampling.BOX
        )
        address = _png_address(smaller.quantize(128, dither=Image.Dither.NONE))
        if len(address) <= MAX_BYTES * 2 // 3:
            break
    layers[0] = {**layers[0], "data": {"values": [{"picture": address}]}}
    return {**spec, "layer": layers}


def _picture(drawn: str, title: str) -> str:
    """Return an SVG as an image of pixels."""
    import vl_convert  # starts JavaScript, which a page without charts does not need
    from PIL import Image

    for scale in (1.6, 1.2, 1.0, 0.7):
        content = vl_convert.svg_to_png(drawn, scale=scale)
        image = Image.open(BytesIO(content)).convert("RGB")
        address = _png_address(image.quantize(64, dither=Image.Dither.NONE))
        if len(address) <= MAX_BYTES:
            break
    width = round(image.width / scale)
    return f'<img alt="{escape(title)}" width="{width}" src="{address}">'
