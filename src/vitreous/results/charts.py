"""Views as Altair charts that contain their data, and charts as files, by vl-convert."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
import pandas as pd

from vitreous.errors import VitreousError
from vitreous.palette import KIND_COLOURS, OPPOSITES, PAPERS, RAMPS, Theme
from vitreous.results import style
from vitreous.results.chart_encodings import Encoding, Encodings
from vitreous.results.montage import label_texts, montage, montage_png
from vitreous.results.panels import (
    Panel,
    bar_spans,
    column_levels,
    level_text,
    spaced_labels,
)
from vitreous.results.view import Reference, View

if TYPE_CHECKING:
    from vitreous.results.result import Result

SUFFIXES = (".svg", ".png", ".pdf")


def chart(result: Result, view: View, theme: Theme) -> alt.TopLevelMixin:
    """Return a view as a chart: one panel, or several in rows of up to three."""
    result = result.rows_of(view)
    datasets: Any = alt.Undefined
    if view.mark == "tiles":
        drawn: Any = _tiles(result, view, theme)
    else:
        drawing = _ChartDrawing(result, view, theme)
        drawn = drawing.all_panels()
        datasets = drawing.datasets
    title = {"title": alt.Title(view.title)} if view.title else {}
    drawn = drawn.properties(**title, config=style.vega(theme))
    drawn.datasets = datasets  # passed as a property, every row would be checked by the schema
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


def _specification(drawn: alt.TopLevelMixin) -> dict[str, Any]:
    """Return a chart as Vega-Lite; our own need no validation, which takes as long as drawing."""
    with alt.utils.schemapi.debug_mode(False):
        specification: dict[str, Any] = drawn.to_dict(validate=False)
    return specification


class _Layer(alt.Chart):  # type: ignore[misc]  # altair's types are not followed
    """A layer under construction.

    Altair copies every layer deeply each time it is put into something; nothing else refers to
    these, so that a shallow copy is enough, in half the time.
    """

    def copy(self, deep: Any = True, ignore: list[str] | None = None) -> Any:
        return super().copy(deep=False if deep is True else deep, ignore=ignore)


class _Panel(alt.LayerChart):  # type: ignore[misc]
    """A panel under construction: copied like a layer."""

    def copy(self, deep: Any = True, ignore: list[str] | None = None) -> Any:
        return super().copy(deep=False if deep is True else deep, ignore=ignore)


class _ChartDrawing(Encodings):
    """One method for each mark."""

    def all_panels(self) -> Any:
        wide = len(self.panels) == 1
        if wide and not self.view.facet:
            return self.panel(self.panels[0], wide)
        each = []
        for panel in self.panels:
            size = style.SIZES["axis"]
            title = alt.Title(panel.title, fontSize=size, fontWeight="normal", offset=6)
            each.append(self.panel(panel, wide).properties(title=title))
        drawn = alt.concat(*each, columns=2 if len(each) == 4 else 3)
        return drawn.resolve_scale(
            color="shared", fill="shared", strokeDash="shared", shape="shared"
        )

    def panel(self, panel: Panel, wide: bool) -> Any:
        if self.view.mark == "heatmap":
            return self.heatmap(panel)
        width, height = (440, 260) if wide else (230, 180)
        draw_marks = {"line": self.line, "scatter": self.scatter, "bar": self.bar}[self.view.mark]
        marks = draw_marks(panel, width)
        layers = [*self.bands(panel, height), *marks]
        for reference in self.view.references:
            layers += self.reference(reference, panel)
        alone = wide and not self.view.facet  # the chart itself, which a user may copy
        layered = (alt.LayerChart if alone else _Panel)(layer=layers)
        return layered.properties(width=width, height=height)

    def line(self, panel: Panel, width: float) -> list[Any]:
        base, colour = _Layer(self.data(panel.rows)), self.colour()
        x, y, thin = self.x(panel, width), self.y(), bool(self.view.detail)
        details = [self.view.detail] if thin else []
        if self.scale and self.scale.ends:  # a ramp does not split lines by itself
            details.append(self.view.colour)
        detail = {"detail": [alt.Detail(f"{name}:N") for name in details]} if details else {}
        order = {"order": alt.Order(f"{self.view.x}:Q")} if self.is_quantity(self.view.x) else {}
        layers = []
        if self.view.low:
            ribbon = base.mark_area(opacity=style.RIBBON, strokeWidth=0)
            layers.append(ribbon.encode(x=x, **self.interval(), **colour, **detail))
        stroke = 1.3 if thin else 2
        lines = base.mark_line(strokeWidth=stroke, strokeCap="round", strokeJoin="round")
        layers.append(lines.encode(x=x, y=y, **colour, **detail, **order, **self.dashes()))
        if panel.rows[self.view.x].nunique() <= 40:
            points = base.mark_point(filled=True, size=14 if thin else 30, opacity=1)
        else:  # invisible, for the tooltips
            points = base.mark_point(filled=True, size=30, opacity=0)
        layers.append(points.encode(x=x, y=y, tooltip=self.tooltip, **colour, **self.shapes()))
        return layers

    def scatter(self, panel: Panel, width: float) -> list[Any]:
        base, colour = _Layer(self.data(panel.rows)), self.colour()
        x = self.x(panel, width)
        points = base.mark_point(filled=True, size=34, opacity=0.8)
        return [
            *self.whiskers(base, {"x": x, **colour}),
            points.encode(x=x, y=self.y(), tooltip=self.tooltip, **colour, **self.shapes()),
        ]

    def bar(self, panel: Panel, width: float) -> list[Any]:
        floor = alt.Y2Datum(0) if "y" not in self.view.log else alt.Undefined
        place: Encoding
        radius: float
        if self.is_quantity(self.view.x):
            rows = bar_spans(self.result, self.view, panel.rows)
            rows = rows.assign(middle=(rows["start"] + rows["end"]) / 2)
            start = self.x(panel, width, "start:Q", bandPosition=0)
            place, middle = (
                {"x": start, "x2": alt.X2("end:Q")},
                {"x": self.x(panel, width, "middle:Q")},
            )
            radius = 1.5
        else:
            rows, place, radius = panel.rows, {"x": self.x(panel, width)}, 2
            if self.scale and self.view.colour not in (self.view.x, self.view.facet):
                levels = list(self.scale.levels)
                place["xOffset"] = alt.XOffset(f"{self.view.colour}:N", sort=levels)
            middle = place
        base = _Layer(self.data(rows))
        bars = base.mark_bar(cornerRadiusEnd=radius, opacity=0.9)
        drawn = bars.encode(**place, y=self.y(), y2=floor, tooltip=self.tooltip, **self.colour())
        return [drawn, *self.whiskers(base, {**middle, "color": alt.ColorValue(self.ink)})]

    def whiskers(self, base: alt.Chart, place: Encoding) -> list[Any]:
        if not self.view.low:
            return []
        rule = base.mark_rule(strokeWidth=1.2, opacity=0.7)
        return [rule.encode(**self.interval(), **place)]

    def bands(self, panel: Panel, height: float) -> list[Any]:
        """Return the kinds of units behind everything; strips at the bottom if models differ."""
        if not panel.bands:
            return []
        scale = alt.Scale(domain=self.kinds, range=[KIND_COLOURS[kind] for kind in self.kinds])
        legend = alt.Legend(
            symbolOpacity=2.2 * style.BAND, symbolType="square", symbolStrokeWidth=0, symbolSize=130
        )
        fill = alt.Fill("kind:N", title="kind of unit", scale=scale, legend=legend)
        tooltip = [alt.Tooltip(f"{name}:N") for name in ("model", "unit", "kind")]
        x, lanes = self.x(panel, field="start:Q"), panel.bands[0].lanes
        layers = []
        for lane in range(lanes):
            rows = pd.DataFrame([vars(band) for band in panel.bands if band.lane == lane])
            base = _Layer(self.data(rows))
            place = {"x": x, "x2": alt.X2("end:Q"), "fill": fill, "tooltip": tooltip}
            if lanes == 1:
                layers.append(base.mark_rect(opacity=style.BAND, strokeWidth=0).encode(**place))
                continue
            foot = height - (lanes - 1 - lane) * (style.LANE + 1)
            edges = {"y": alt.YValue(foot - style.LANE), "y2": alt.Y2Value(foot)}
            layers.append(base.mark_rect(opacity=0.6, strokeWidth=0).encode(**place, **edges))
            if self.view.colour == "model":
                square = _Layer(alt.Data(values=[{"model": rows["model"][0]}])).mark_point(
                    shape="square", filled=True, size=style.LANE**2 - 12, opacity=1,
                    xOffset=style.LANE,
                )  # fmt: skip
                beside = {"x": alt.XValue("width"), "y": alt.YValue(foot - style.LANE / 2)}
                layers.append(square.encode(**beside, **self.colour()))
        return layers

    def reference(self, reference: Reference, panel: Panel) -> list[Any]:
        """Return a dashed line and its label."""
        stroke: Encoding = {
            "color": self.ink, "opacity": 0.7, "strokeDash": [4, 3], "strokeWidth": 1.2,
        }  # fmt: skip
        if reference.axis == "slope":
            end = float(panel.rows[self.view.x].astype(float).max())
            points = [
                {"rx": x, "ry": reference.value * x, "label": reference.label} for x in (0.0, end)
            ]
            place = {"x": self.x(panel, field="rx:Q"), "y": self.y("ry")}
            line = _Layer(alt.Data(values=points)).mark_line(**stroke).encode(**place)
            return [line, *self.label(points[1:], place, align="right", dx=-10, dy=-2)]
        values = [{"at": reference.value, "label": reference.label}]
        rule = _Layer(alt.Data(values=values)).mark_rule(**stroke)
        if reference.axis == "x":
            x = self.x(panel, field="at:Q")
            place = {"x": x, "y": alt.YValue(0)}
            label = self.label(values, place, align="left", baseline="top", dx=4, dy=2)
            return [rule.encode(x=x), *label]
        y = self.y("at")
        place = {"y": y, "x": alt.XValue("width")}
        label = self.label(values, place, align="right", baseline="bottom", dx=-4, dy=-2)
        return [rule.encode(y=y), *label]

    def label(self, values: list[dict[str, Any]], place: Encoding, **where: Any) -> list[Any]:
        """Return text with a halo in the colour of the paper, so that data do not cover it."""
        base, size = _Layer(alt.Data(values=values)), style.SIZES["label"]
        halo = base.mark_text(
            fontSize=size, color=self.paper, stroke=self.paper, strokeWidth=4, opacity=0.8, **where
        )
        ink = base.mark_text(fontSize=size, color=self.ink, **where)
        return [layer.encode(text=alt.Text("label:N"), **place) for layer in (halo, ink)]

    def heatmap(self, panel: Panel) -> Any:
        """Return square cells, grey where there is no number; rows run from bottom to top."""
        view, result = self.view, self.result
        across, up = (column_levels(result, name, panel.rows) for name in (view.x, view.y))
        step = max(min(math.floor(320 / max(len(across), len(up), 1)), 26), 4)
        turned = max((len(level_text(level)) for level in across), default=0) * 6 > step
        x_axis, y_axis = _cell_axis(across, step), _cell_axis(up, step)
        x_axis.labelAngle = -90 if turned else 0
        colours = OPPOSITES[self.theme] if view.middle is not None else RAMPS[self.theme]
        domain = np.linspace(*self.limits, len(colours)).tolist() if self.limits else alt.Undefined
        scale = alt.Scale(domain=domain, range=list(colours), clamp=True)
        cells = _Layer(self.data(panel.rows)).mark_rect()
        cells = cells.encode(
            x=alt.X(f"{view.x}:N", title=result.column(view.x).title, sort=across, axis=x_axis),
            y=alt.Y(f"{view.y}:N", title=result.column(view.y).title, sort=up[::-1], axis=y_axis),
            color=alt.Color(
                f"{view.colour}:Q", title=result.column(view.colour).title, scale=scale
            ),
            tooltip=self.tooltip,
        )
        hole = alt.ViewBackground(fill=self.ink, fillOpacity=style.HOLE, stroke=None)
        return cells.properties(width=alt.Step(step), height=alt.Step(step), view=hole)


def _cell_axis(levels: list[Any], step: int) -> alt.Axis:
    """Return the axis of a heat-map: labels that do not overlap, and nothing else."""
    numbers = any(isinstance(level, float) for level in levels)
    return alt.Axis(
        values=[levels[i] for i in spaced_labels(len(levels), step * len(levels), 11)],
        labelExpr="format(datum.value, '.2~f')" if numbers else alt.Undefined,
        labelFontSize=10, labelOverlap=False, ticks=False, domain=False, grid=False,
    )  # fmt: skip


def _tiles(result: Result, view: View, theme: Theme) -> Any:
    """Return images as one image, their labels as text over it."""
    ink, paper = PAPERS[theme]
    sheet = montage(result.arrays[view.array], *label_texts(result, view))
    content = base64.b64encode(montage_png(sheet, paper)).decode()
    data = alt.Data(values=[{"picture": f"data:image/png;base64,{content}"}])
    image = alt.Chart(data).mark_image(
        width=sheet.width, height=sheet.height, align="left", baseline="top"
    )
    layers: list[Any] = [image.encode(url=alt.Url("picture:N"), x=alt.XValue(0), y=alt.YValue(0))]
    labels = [
        {"label": label, "x": x, "y": y}
        for label, (x, y) in zip(sheet.labels, sheet.corners, strict=False)
    ]
    headings = [{"label": label, "x": 0, "y": y} for label, y in sheet.headings]
    place = {
        "x": alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, sheet.width], nice=False)),
        "y": alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[sheet.height, 0], nice=False)),
    }
    for entries, size, opacity in (
        (labels, 10, style.QUIET),
        (headings, style.SIZES["axis"], 1.0),
    ):
        if entries:
            text = _Layer(alt.Data(values=entries)).mark_text(
                fontSize=size, opacity=opacity, align="left", baseline="bottom", dy=-3, color=ink
            )
            layers.append(text.encode(**place, text=alt.Text("label:N")))
    return alt.layer(*layers).properties(width=sheet.width, height=sheet.height)
