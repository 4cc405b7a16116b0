"""Heat-maps and sheets of images as Vega-Lite."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.palette import OPPOSITES, PAPERS, RAMPS, Theme
from vitreous.results import style
from vitreous.results.chart_encodings import CHARACTER, Encodings, Spec
from vitreous.results.montage import label_texts, montage, montage_png
from vitreous.results.panels import Panel, spaced_labels
from vitreous.results.view import View

if TYPE_CHECKING:
    from vitreous.results.result import Result


def heat_map(drawing: Encodings, panel: Panel) -> Spec:
    """Return square cells, grey where there is no number.

    Rows of layers run from bottom to top, as a model is drawn, and rows of names from top to
    bottom. The cells of a matrix have their numbers in them.
    """
    view = drawing.view
    across, down = drawing.levels(view.x, panel), drawing.rows_downwards(panel)
    room, largest = (400, 40) if view.matrix else (320, 26)
    smallest = 12 if view.sort else 4  # every name of a ranking is legible
    step = max(min(math.floor(room / max(len(across), len(down), 1)), largest), smallest)
    lines, steps = drawing.tooltip()
    place = {
        "x": _cell_axis(drawing, view.x, across, step, turn=True),
        "y": _cell_axis(drawing, view.y, down, step),
    }
    colour = {**drawing.field(view.colour), "title": drawing.value_title}
    colour["scale"] = _colour_scale(drawing)
    cells: Spec = {"data": drawing.rows(panel), **({"transform": steps} if steps else {})}
    cells["mark"] = {"type": "rect"}
    hole = {"fill": drawing.ink, "fillOpacity": style.HOLE, "stroke": None}
    size = {"width": {"step": step}, "height": {"step": step}, "view": hole}
    if not view.matrix or step < 24:
        return {**cells, "encoding": {**place, "color": colour, "tooltip": lines}, **size}
    painted = {**cells, "encoding": {"color": colour, "tooltip": lines}}
    return {"encoding": place, "layer": [painted, _numbers(drawing, panel)], **size}


def _cell_axis(
    drawing: Encodings, name: str, levels: list[Any], step: int, turn: bool = False
) -> Spec:
    """Return the axis of a heat-map: labels that do not overlap, and nothing else."""
    labels = drawing.labels(name)
    axis: Spec = {
        "values": [levels[i] for i in spaced_labels(len(levels), step * len(levels), 11)],
        "labelFontSize": 10, "labelOverlap": False, "ticks": False, "domain": False, "grid": False,
    }  # fmt: skip
    longest = max((len(labels[level]) for level in levels), default=0)
    if turn:
        axis["labelAngle"] = -90 if longest * CHARACTER * 0.92 > step else 0
    if any(isinstance(level, float) for level in levels):
        axis["labelExpr"] = "format(datum.value, '.2~f')"
    else:
        axis |= drawing.label_expression(name)
    title = None if drawing.view.matrix else drawing.result.column(name).title
    return {"field": name, "type": "nominal", "title": title, "sort": levels, "axis": axis}


def _colour_scale(drawing: Encodings) -> Spec:
    diverging = drawing.view.middle is not None
    colours = (OPPOSITES if diverging else RAMPS)[drawing.theme]
    scale: Spec = {"range": list(colours), "clamp": True}
    if drawing.limits:
        scale["domain"] = np.linspace(*drawing.limits, len(colours)).tolist()
    return scale


def _numbers(drawing: Encodings, panel: Panel) -> Spec:
    """Return the numbers of the cells, dark on pale and pale on dark cells."""
    low, high = drawing.limits or (0, 1)
    name = drawing.view.colour
    over = {"test": f"datum['{name}'] > {(low + high) / 2:g}", "value": drawing.paper}
    return {
        "data": drawing.rows(panel),
        "mark": {"type": "text", "fontSize": 10},
        "encoding": {
            "text": {"field": name, "type": "quantitative", "format": ".2f"},
            "color": {"condition": over, "value": drawing.ink},
        },
    }


def tiles(result: Result, view: View, theme: Theme) -> Spec:
    """Return images as one image, their labels as text over it."""
    ink = PAPERS[theme][0]
    sheet = montage(result.arrays[view.array], *label_texts(result, view))
    content = base64.b64encode(montage_png(sheet)).decode()
    size = {"width": sheet.width, "height": sheet.height}
    corner = {"x": {"value": 0}, "y": {"value": 0}}
    layers: list[Spec] = [
        {
            "data": {"values": [{"picture": f"data:image/png;base64,{content}"}]},
            "mark": {"type": "image", **size, "align": "left", "baseline": "top"},
            "encoding": {"url": {"field": "picture", "type": "nominal"}, **corner},
        }
    ]
    labels = [
        {"label": label, "x": x, "y": y}
        for label, (x, y) in zip(sheet.labels, sheet.corners, strict=False)
    ]
    headings = [{"label": label, "x": 0, "y": y} for label, y in sheet.headings]
    place = {
        "x": {"field": "x", "type": "quantitative", "axis": None,
              "scale": {"domain": [0, sheet.width], "nice": False}},
        "y": {"field": "y", "type": "quantitative", "axis": None,
              "scale": {"domain": [sheet.height, 0], "nice": False}},
    }  # fmt: skip
    large = style.SIZES["axis"]
    for entries, font, opacity in ((labels, 10, style.QUIET), (headings, large, 1.0)):
        if entries:
            text = {
                "type": "text", "fontSize": font, "opacity": opacity, "align": "left",
                "baseline": "bottom", "dy": -3, "color": ink,
            }  # fmt: skip
            encoding = {**place, "text": {"field": "label", "type": "nominal"}}
            layers.append({"data": {"values": entries}, "mark": text, "encoding": encoding})
    return {"layer": layers, **size}
