"""Views as Vega-Lite charts that contain their data, and charts as files, by vl-convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from vitreous.errors import VitreousError
from vitreous.palette import KIND_COLOURS, Theme
from vitreous.results import style
from vitreous.results.chart_cells import heat_map, tiles
from vitreous.results.chart_encodings import Encodings, Spec
from vitreous.results.panels import Panel, bar_spans, rows_to_draw
from vitreous.results.view import Reference, View

if TYPE_CHECKING:
    import altair as alt

    from vitreous.results.result import Result

SUFFIXES = (".svg", ".png", ".pdf")
TURNED = {"x": "y", "y": "x", "x2": "y2", "y2": "x2", "xOffset": "yOffset"}
"""Where the channels of standing bars are in lying ones."""


def chart_spec(result: Result, view: View, theme: Theme) -> Spec:
    """Return a view as a Vega-Lite specification: one panel, or several in rows of up to three."""
    result = rows_to_draw(result, view)
    if view.mark == "tiles":
        spec = tiles(result, view, theme)
    else:
        drawing = _ChartDrawing(result, view, theme)
        spec = {**drawing.all_panels(), "datasets": drawing.datasets}
    config = style.vega(theme)
    if view.bands:
        config["legend"]["offset"] = 5 * style.LANE  # beside the squares of lanes
    title = {"title": view.title} if view.title else {}
    return {**title, **spec, "config": config}


def chart(result: Result, view: View, theme: Theme) -> alt.TopLevelMixin:
    """Return a view as an Altair chart."""
    import altair as alt  # takes a second, which specifications do not need
    from altair.utils.schemapi import debug_mode

    spec = chart_spec(result, view, theme)
    datasets = spec.pop("datasets", alt.Undefined)
    kind: Any = alt.LayerChart if "layer" in spec else alt.Chart
    kind = alt.ConcatChart if "concat" in spec else kind
    with debug_mode(False):  # or each of its hundred parts would be checked by the schema
        drawn: alt.TopLevelMixin = kind.from_dict(spec, validate=False)
    drawn.datasets = datasets  # as a property, every row would be checked by the schema
    return drawn


def save_chart(drawn: alt.TopLevelMixin, path: Path) -> Path:
    """Save a chart in the format of the suffix; return the path."""
    if path.suffix.lower() not in SUFFIXES:
        raise VitreousError(
            f"A figure cannot be saved as {path.name!r}; its name ends in {', '.join(SUFFIXES)}."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.save(str(path), scale_factor=2 if path.suffix.lower() == ".png" else 1)
    return path


def chart_svg(drawn: alt.TopLevelMixin) -> str:
    """Return a chart as SVG text."""
    import vl_convert  # starts JavaScript, which only drawing needs

    return str(vl_convert.vegalite_to_svg(_specification(drawn)))


def chart_png(drawn: alt.TopLevelMixin, scale: float) -> bytes:
    """Return a chart as the content of a PNG file."""
    import vl_convert  # starts JavaScript, which only drawing needs

    return bytes(vl_convert.vegalite_to_png(_specification(drawn), scale=scale))


def _specification(drawn: alt.TopLevelMixin) -> Spec:
    """Return a chart as Vega-Lite; our own need no validation, which takes as long as drawing."""
    import altair as alt  # takes a second, which specifications do not need

    with alt.utils.schemapi.debug_mode(False):
        specification: Spec = drawn.to_dict(validate=False)
    return specification


class _ChartDrawing(Encodings):
    """One method for each mark."""

    def all_panels(self) -> Spec:
        wide = len(self.panels) == 1
        if wide and not self.view.facet:
            return self.panel(self.panels[0], wide)
        panels = []
        for panel in self.panels:
            title = {
                "text": self.titles[panel.title], "fontSize": style.SIZES["axis"],
                "fontWeight": "normal", "offset": 6,
            }  # fmt: skip
            panels.append({"title": title, **self.panel(panel, wide)})
        shared = dict.fromkeys(("color", "fill", "strokeDash", "shape", "size"), "shared")
        columns = 2 if len(panels) == 4 else 3
        return {"concat": panels, "columns": columns, "resolve": {"scale": shared}}

    def panel(self, panel: Panel, wide: bool) -> Spec:
        if self.view.mark == "heatmap":
            return heat_map(self, panel)
        width, height = (440, 260) if wide else (230, 180)
        if self.view.square:
            width = height
        draw_marks = {"line": self.line, "scatter": self.scatter, "bar": self.bar}[self.view.mark]
        layers = [*self.bands(panel), *draw_marks(panel, width)]
        for reference in self.references(panel):
            layers += self.reference(reference, panel)
        if self.is_turned:
            count = len(self.levels(self.view.x, panel))
            height = max(80, 22 * count)
            layers = [_turn(layer) for layer in layers]
        return {"layer": layers, "width": width, "height": height}

    def line(self, panel: Panel, width: float) -> list[Spec]:
        view = self.view
        many = self.has_many_points
        data, colour = self.rows(panel), self.colour()
        x, y, thin = self.x(panel, width), self.y(panel), bool(view.detail)
        details = [view.detail] if thin else []
        if self.scale and self.scale.ends:  # a ramp does not split lines by itself
            details.append(view.colour)
        place: Spec = {"x": x, **colour}  # of areas, to which an order means something else
        if details:
            place["detail"] = [{"field": name, "type": "nominal"} for name in details]
        order = {"order": {"field": view.x, "type": "quantitative"}}
        along = {**place, **(order if self.is_quantity(view.x) else {})}
        layers = []
        if view.filled:
            floor = {"datum": (self.limits_of(panel) or (0.0,))[0] if "y" in view.log else 0.0}
            area = {"type": "area", "opacity": style.FILL, "strokeWidth": 0}
            layers.append({"data": data, "mark": area, "encoding": {**place, "y": y, "y2": floor}})
        if view.low and view.square:
            layers += self.whiskers(data, panel, {"x": x, **colour})
        elif view.low:
            layers += self.ribbon(data, panel, place, along)
        stroke = {"type": "line", "strokeCap": "round", "strokeJoin": "round"}
        stroke["strokeWidth"] = 1.3 if thin else 2  # type: ignore[assignment]
        encoding = {**along, "y": y, **self.dashes()}
        layers.append({"data": data, "mark": stroke, "encoding": encoding})
        dots = {"size": 14 if thin else 30, "opacity": 0 if many else 1}  # 0: for tooltips alone
        layers.append(self.points(data, {"x": x, "y": y, **colour}, shaped=not many, **dots))
        return layers

    def ribbon(self, data: Spec, panel: Panel, place: Spec, along: Spec) -> list[Spec]:
        """Return an interval along a line: a pale area with thin edges."""
        area = {"type": "area", "opacity": style.RIBBON, "strokeWidth": 0}
        layers = [{"data": data, "mark": area, "encoding": {**place, **self.interval(panel)}}]
        for name in () if self.is_crowded else (self.view.low, self.view.high):
            edge = {"type": "line", "strokeWidth": style.EDGE}
            layers.append(
                {"data": data, "mark": edge, "encoding": {**along, "y": self.y(panel, name)}}
            )
        return layers

    def points(self, data: Spec, place: Spec, *, shaped: bool = True, **mark: Any) -> Spec:
        """Return the marks that have tooltips."""
        lines, steps = self.tooltip()
        encoding = {**place, **(self.shapes() if shaped else {}), "tooltip": lines}
        if self.view.size:
            sizes = {"range": [16, 260], "zero": True}
            encoding["size"] = {**self.field(self.view.size), "scale": sizes, "legend": None}
            mark.pop("size")
        calculated = {"transform": steps} if steps else {}
        dots = {"type": "point", "filled": True, **mark}
        return {"data": data, **calculated, "mark": dots, "encoding": encoding}

    def scatter(self, panel: Panel, width: float) -> list[Spec]:
        data, place = self.rows(panel), {"x": self.x(panel, width), **self.colour()}
        points = self.points(data, {**place, "y": self.y(panel)}, size=34, opacity=1)
        return [*self.whiskers(data, panel, place), points]

    def bar(self, panel: Panel, width: float) -> list[Spec]:
        view = self.view
        place: Spec = {"x": self.x(panel, width)}
        middle, rows, radius = place, panel.rows[self.columns], 2.0
        if self.is_quantity(view.x):
            rows = bar_spans(self.result, view, rows)
            rows = rows.assign(middle=(rows["start"] + rows["end"]) / 2)
            start = {**self.x(panel, width, "start"), "bandPosition": 0}
            place = {"x": start, "x2": {"field": "end"}}
            middle, radius = {"x": self.x(panel, width, "middle")}, 1.5
        elif self.scale and view.colour not in (view.x, view.facet):
            levels = list(self.scale.levels)
            place["xOffset"] = {"field": view.colour, "type": "nominal", "sort": levels}
        data = self.data(rows)
        lines, steps = self.tooltip()
        encoding = {**place, "y": self.y(panel), **self.colour(), "tooltip": lines}
        if "y" not in view.log:
            encoding["y2"] = {"datum": 0}
        bars = {"data": data, "mark": {"type": "bar", "cornerRadiusEnd": radius}}
        drawn = {**bars, **({"transform": steps} if steps else {}), "encoding": encoding}
        inks = ((self.paper, 2.6), (self.ink, 1.2))  # ink alone is lost on a dark bar
        whiskers = []
        for ink, stroke in inks:
            whiskers += self.whiskers(data, panel, {**middle, "color": {"value": ink}}, stroke)
        return [drawn, *whiskers]

    def whiskers(self, data: Spec, panel: Panel, place: Spec, stroke: float = 1.2) -> list[Spec]:
        if not self.view.low:
            return []
        rule = {"type": "rule", "strokeWidth": stroke}
        return [{"data": data, "mark": rule, "encoding": {**self.interval(panel), **place}}]

    def bands(self, panel: Panel) -> list[Spec]:
        """Return the kinds of units along the axis of depth, a strip for each lane."""
        if not panel.bands:
            return []
        colours = [KIND_COLOURS[kind] for kind in self.kinds]
        legend = {"symbolOpacity": 1, "symbolType": "square", "symbolStrokeWidth": 0}
        fill = {
            "field": "kind", "type": "nominal", "title": "kind of unit",
            "scale": {"domain": self.kinds, "range": colours}, "legend": legend,
        }  # fmt: skip
        names = ("model", "unit", "kind") if panel.bands[0].model else ("unit", "kind")
        tooltip = [{"field": name, "type": "nominal"} for name in names]
        layers, lanes = [], panel.bands[0].lanes
        for lane in range(lanes):
            bands = [band for band in panel.bands if band.lane == lane]
            rows = pd.DataFrame([vars(band) for band in bands])
            data = self.data(rows[["start", "end", "kind", "unit", "model"]])
            foot = -(lanes - 1 - lane) * (style.LANE + 1)
            strip = {
                "type": "rect", "strokeWidth": 0, "yOffset": foot - style.LANE, "y2Offset": foot,
            }  # fmt: skip
            place = {
                "x": self.x(panel, field="start"), "x2": {"field": "end"},
                "y": {"value": "height"}, "y2": {"value": "height"},
            }  # fmt: skip
            encoding = {**place, "fill": fill, "tooltip": tooltip}
            layers.append({"data": data, "mark": strip, "encoding": encoding})
            if lanes > 1 and self.view.colour == "model":
                layers += self.lane_labels([str(name) for name in rows["model"].unique()], foot)
        return layers

    def lane_labels(self, models: list[str], foot: float) -> list[Spec]:
        """Return squares beside a strip, in the colours of the models whose units it shows."""
        layers = []
        for number, model in enumerate(models[:4]):
            square = {
                "type": "point", "shape": "square", "filled": True, "size": style.LANE**2 - 12,
                "opacity": 1, "xOffset": style.LANE * (number + 1),
                "yOffset": foot - style.LANE / 2,
            }  # fmt: skip
            beside = {"x": {"value": "width"}, "y": {"value": "height"}, **self.colour()}
            data = {"values": [{"model": model}]}
            layers.append({"data": data, "mark": square, "encoding": beside})
        return layers

    def reference(self, reference: Reference, panel: Panel) -> list[Spec]:
        """Return a dashed line and its label."""
        stroke = {"color": self.ink, "opacity": 0.7, "strokeDash": [4, 3], "strokeWidth": 1.2}
        if reference.axis == "slope":
            end = float(panel.rows[self.view.x].astype(float).max())
            end = self.view.limits[1] if self.view.square and self.view.limits else end
            points = [
                {"rx": x, "ry": reference.value * x, "label": reference.label} for x in (0.0, end)
            ]
            place = {"x": self.x(panel, field="rx"), "y": self.y(panel, "ry")}
            line = {"data": {"values": points}, "mark": {"type": "line", **stroke}}
            middle = [
                {"rx": 0.4 * end, "ry": 0.4 * end * reference.value, "label": reference.label}
            ]
            label = self.label(middle, place, align="left", dx=8, dy=8)
            return [{**line, "encoding": place}, *label]
        values = [{"at": reference.value, "label": reference.label}]
        rule = {"data": {"values": values}, "mark": {"type": "rule", **stroke}}
        if reference.axis == "x":
            place = {"x": self.x(panel, field="at")}
            where = {"align": "left", "baseline": "top", "dx": 4, "dy": 2}
            label = self.label(values, {**place, "y": {"value": 0}}, **where)
        else:
            place = {"y": self.y(panel, "at")}
            where = {"align": "right", "baseline": "bottom", "dx": -4, "dy": -2}
            if self.is_turned:  # then it is at the top of a line that stands
                where = {"align": "left", "baseline": "top", "dx": 4, "dy": 2}
            beside = 0 if self.is_turned else "width"
            label = self.label(values, {**place, "x": {"value": beside}}, **where)
        return [{**rule, "encoding": place}, *label]

    def label(self, values: list[Spec], place: Spec, **where: Any) -> list[Spec]:
        """Return text with a halo in the colour of the paper, so that data do not cover it."""
        text = {"type": "text", "fontSize": style.SIZES["label"], **where}
        halo = {"color": self.paper, "stroke": self.paper, "strokeWidth": 4, "opacity": 0.8}
        encoding = {**place, "text": {"field": "label", "type": "nominal"}}
        return [
            {"data": {"values": values}, "mark": {**text, **paint}, "encoding": encoding}
            for paint in (halo, {"color": self.ink})
        ]


def _turn(layer: Spec) -> Spec:
    """Return a layer with its axes exchanged."""
    encoding = {TURNED.get(key, key): value for key, value in layer["encoding"].items()}
    return {**layer, "encoding": encoding}
