"""Views as Altair charts, data inside; and charts as files, through vl-convert, without browser or network."""

from __future__ import annotations

import base64
import math
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from vitreous.errors import VitreousError
from vitreous.palette import KIND_COLOURS, MODEL_COLOURS, OPPOSITES, PAPERS, RAMPS, Theme
from vitreous.results import style
from vitreous.results.montage import montage, montage_png
from vitreous.results.panels import (
    Drawing,
    Panel,
    levels,
    panels,
    spans,
    thinned,
    written,
    x_limits,
)
from vitreous.results.result import Result
from vitreous.results.view import Reference, View
from vitreous.unit_kinds import KINDS

SUFFIXES = (".svg", ".png", ".pdf")


def chart(result: Result, view: View, theme: Theme) -> alt.TopLevelMixin:
    """The whole picture: a panel, or several in rows of up to three."""
    result = result.narrowed(view)
    datasets: Any = alt.Undefined
    if view.mark == "tiles":
        drawn: Any = _tiles(result, view, theme)
    else:
        drawing = _Drawing(result, view, theme)
        parts = panels(result, view)
        wide = len(parts) == 1
        drawn = drawing.panel(parts[0], wide) if wide and not view.facet else None
        if drawn is None:
            each = [
                drawing.panel(part, wide).properties(title=_quiet(part.title)) for part in parts
            ]
            columns = 2 if len(each) == 4 else 3
            drawn = alt.concat(*each, columns=columns).resolve_scale(
                color="shared", fill="shared", strokeDash="shared"
            )
        datasets = drawing.datasets
    titled = {"title": alt.Title(view.title)} if view.title else {}
    drawn = drawn.properties(**titled, config=style.vega(theme))
    drawn.datasets = datasets  # as a property every row would be checked against the schema
    return drawn


def write(drawn: alt.TopLevelMixin, path: Path) -> Path:
    """Save a chart as the suffix says."""
    if path.suffix.lower() not in SUFFIXES:
        raise VitreousError(
            f"A figure was asked for as {path.name!r}; it can be written as {', '.join(SUFFIXES)}."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.save(str(path), scale_factor=2 if path.suffix.lower() == ".png" else 1)
    return path


def svg(drawn: alt.TopLevelMixin) -> str:
    """A chart as SVG text."""
    text = StringIO()
    drawn.save(text, format="svg")
    return text.getvalue()


def png(drawn: alt.TopLevelMixin, scale: float) -> bytes:
    """A chart as a PNG file."""
    content = BytesIO()
    drawn.save(content, format="png", scale_factor=scale)
    return content.getvalue()


class _Drawing(Drawing):
    """What the panels of one chart share."""

    def __init__(self, result: Result, view: View, theme: Theme) -> None:
        super().__init__(result, view, theme)
        present = {band.kind for panel in panels(result, view) for band in panel.bands}
        self.kinds = [
            kind for kind in KINDS if kind in present
        ]  # of all panels, which share one legend
        self.datasets: dict[str, list[dict[str, Any]]] = {}
        """Rows by name: altair copies what stands in a layer at every step, and layers share their rows."""
        self.tooltip = [
            alt.Tooltip(
                f"{c.name}:{_type(c.kind)}",
                title=c.title,
                **({"format": ".4~g"} if c.kind == "quantity" else {}),
            )
            for c in result.columns
        ]

    def data(self, rows: pd.DataFrame) -> alt.NamedData:
        name = f"rows{len(self.datasets)}"
        self.datasets[name] = _records(rows)
        return alt.NamedData(name)

    def panel(self, panel: Panel, wide: bool) -> Any:
        if self.view.mark == "heatmap":
            return self.heatmap(panel)
        width, height = (440, 260) if wide else (230, 180)
        marks = {"line": self.line, "scatter": self.scatter, "bar": self.bar}[self.view.mark](
            panel, width
        )
        layers = [*self.bands(panel, height), *marks]
        for reference in self.view.references:
            layers += self.reference(reference, panel)
        return alt.layer(*layers).properties(width=width, height=height)

    def x(self, panel: Panel, width: float, **more: Any) -> alt.X:
        column = self.result.column(self.view.x)
        if column.kind != "quantity":
            shown = levels(self.result, self.view.x, panel.rows)
            longest = max((len(str(level)) for level in shown), default=0)
            turned = longest * len(shown) * 6.5 > width
            values = [shown[i] for i in thinned(len(shown), width, 13 if turned else 1)]
            axis = alt.Axis(labelAngle=-40 if turned else 0, values=values, labelOverlap=False)
            return alt.X(f"{column.name}:N", title=column.title, sort=shown, axis=axis, **more)
        ends = x_limits(panel, self.view)
        log = "x" in self.view.log
        scale = alt.Scale(
            type="log" if log else "linear", nice=False, **({} if log else {"zero": False}),
            **({"domain": list(ends)} if ends else {} if log else {"padding": 8}),
        )  # fmt: skip
        axis = alt.Axis(tickCount=6, **({"values": [0, 0.2, 0.4, 0.6, 0.8, 1]} if ends else {}))
        return alt.X(f"{column.name}:Q", title=column.title, scale=scale, axis=axis, **more)

    def y(self, name: str = "") -> alt.Y:
        column = self.result.column(self.view.y)
        if column.kind != "quantity":
            return alt.Y(
                f"{name or column.name}:N",
                title=column.title,
                sort=levels(self.result, self.view.y),
            )
        kind: Any = "log" if "y" in self.view.log else "linear"
        domain = {"domain": list(self.limits)} if self.limits else {}
        zero = {} if kind == "log" else {"zero": False}
        scale = alt.Scale(type=kind, nice=False, clamp=bool(self.view.limits), **zero, **domain)
        return alt.Y(
            f"{name or column.name}:Q", title=column.title, scale=scale, axis=alt.Axis(tickCount=5)
        )

    def colour(self) -> dict[str, Any]:
        """Encodings that tell lines apart; every layer carries its own opacity, none inherits one."""
        if self.shades is None:
            return {"color": alt.ColorValue(MODEL_COLOURS[0])}
        column, found = self.result.column(self.view.colour), self.shades
        if found.ends:
            stops = np.linspace(*found.ends, len(found.colours)).tolist()
            scale = alt.Scale(domain=stops, range=list(found.colours))
            return {"color": alt.Color(f"{column.name}:Q", title=column.title, scale=scale)}
        scale = alt.Scale(domain=list(found.levels), range=list(found.colours))
        named = self.view.colour in (self.view.facet, self.view.x)
        legend = None if named else alt.Legend(symbolOpacity=1)  # not that of the ribbons
        return {
            "color": alt.Color(f"{column.name}:N", title=column.title, scale=scale, legend=legend)
        }

    def dashes(self) -> dict[str, Any]:
        """Where there are more lines than colours."""
        found = self.shades
        if (
            found is None
            or found.ends
            or len(found.levels) <= len(MODEL_COLOURS)
            or self.view.colour == "kind"
        ):
            return {}
        if self.result.column(self.view.colour).kind == "order":
            return {}
        pattern = [[1, 0] if i < len(MODEL_COLOURS) else [5, 3] for i in range(len(found.levels))]
        scale = alt.Scale(domain=list(found.levels), range=pattern)
        title = self.result.column(self.view.colour).title
        return {"strokeDash": alt.StrokeDash(f"{self.view.colour}:N", title=title, scale=scale)}

    def line(self, panel: Panel, width: float) -> list[Any]:
        base, colour = self.data(panel.rows), self.colour()
        x, y = self.x(panel, width), self.y()
        apart = [f"{name}:N" for name in (self.view.detail,) if name]
        if self.shades and self.shades.ends:
            apart.append(f"{self.view.colour}:N")
        detail = {"detail": [alt.Detail(name) for name in apart]} if apart else {}
        order = (
            {"order": alt.Order(f"{self.view.x}:Q")}
            if self.result.column(self.view.x).kind == "quantity"
            else {}
        )
        layers = []
        if self.view.low:
            ribbon = alt.Chart(base).mark_area(opacity=style.RIBBON, strokeWidth=0)
            layers.append(
                ribbon.encode(
                    x=x,
                    y=self.y(self.view.low),
                    y2=alt.Y2(f"{self.view.high}:Q"),
                    **colour,
                    **detail,
                )
            )
        thin = bool(self.view.detail)
        lines = alt.Chart(base).mark_line(
            strokeWidth=1.3 if thin else 2, strokeCap="round", strokeJoin="round"
        )
        layers.append(lines.encode(x=x, y=y, **colour, **detail, **order, **self.dashes()))
        few = panel.rows[self.view.x].nunique() <= 40
        points = alt.Chart(base).mark_point(
            filled=True, size=(14 if thin else 30) if few else 30, opacity=1 if few else 0
        )
        layers.append(points.encode(x=x, y=y, tooltip=self.tooltip, **colour))
        return layers

    def scatter(self, panel: Panel, width: float) -> list[Any]:
        base, colour = self.data(panel.rows), self.colour()
        x = self.x(panel, width)
        points = alt.Chart(base).mark_point(filled=True, size=34, opacity=0.8)
        return [
            *self.whiskers(base, x, {}, colour),
            points.encode(x=x, y=self.y(), tooltip=self.tooltip, **colour),
        ]

    def bar(self, panel: Panel, width: float) -> list[Any]:
        colour, x = self.colour(), self.x(panel, width)
        floor = alt.Y2Datum(0) if "y" not in self.view.log else alt.Undefined
        if self.result.column(self.view.x).kind == "quantity":
            rows = spans(self.result, self.view, panel.rows)
            middle = self.data(rows.assign(middle=(rows["start"] + rows["end"]) / 2))
            ends = {"x": self.x(panel, width, bandPosition=0), "x2": alt.X2("end:Q")}
            ends["x"].shorthand = "start:Q"
            bars = alt.Chart(middle).mark_bar(cornerRadiusEnd=1.5, opacity=0.9)
            x.shorthand = "middle:Q"
            drawn = bars.encode(**ends, y=self.y(), y2=floor, tooltip=self.tooltip, **colour)
            return [drawn, *self.whiskers(middle, x, {}, {"color": alt.ColorValue(self.ink)})]
        base, beside = self.data(panel.rows), {}
        if self.shades and self.view.colour not in (self.view.x, self.view.facet):
            beside = {
                "xOffset": alt.XOffset(f"{self.view.colour}:N", sort=list(self.shades.levels))
            }
        bars = alt.Chart(base).mark_bar(cornerRadiusEnd=2, opacity=0.9)
        drawn = bars.encode(x=x, y=self.y(), y2=floor, tooltip=self.tooltip, **colour, **beside)
        return [drawn, *self.whiskers(base, x, beside, {"color": alt.ColorValue(self.ink)})]

    def whiskers(
        self, base: Any, x: alt.X, beside: dict[str, Any], colour: dict[str, Any]
    ) -> list[Any]:
        if not self.view.low:
            return []
        rule = alt.Chart(base).mark_rule(strokeWidth=1.2, opacity=0.7)
        return [
            rule.encode(
                x=x, y=self.y(self.view.low), y2=alt.Y2(f"{self.view.high}:Q"), **beside, **colour
            )
        ]

    def bands(self, panel: Panel, height: float) -> list[Any]:
        """Kinds of units behind everything; strips at the foot where models differ, in the order of the legend."""
        if not panel.bands:
            return []
        scale = alt.Scale(domain=self.kinds, range=[KIND_COLOURS[kind] for kind in self.kinds])
        legend = alt.Legend(
            symbolOpacity=2.2 * style.BAND, symbolType="square", symbolStrokeWidth=0, symbolSize=130
        )
        fill = alt.Fill("kind:N", title="kind of unit", scale=scale, legend=legend)
        layers = []
        for lane in range(panel.bands[0].lanes):
            rows = pd.DataFrame([vars(band) for band in panel.bands if band.lane == lane])
            x = self.x(panel, 0)
            x.shorthand = "start:Q"
            foot = height - (panel.bands[0].lanes - 1 - lane) * (style.LANE + 1)
            whole = panel.bands[0].lanes == 1
            edges = {} if whole else {"y": alt.YValue(foot - style.LANE), "y2": alt.Y2Value(foot)}
            opacity = style.BAND if whole else 0.6
            rect = alt.Chart(self.data(rows)).mark_rect(opacity=opacity, strokeWidth=0)
            tooltip = [alt.Tooltip(f"{name}:N") for name in ("model", "unit", "kind")]
            layers.append(rect.encode(x=x, x2=alt.X2("end:Q"), fill=fill, tooltip=tooltip, **edges))
            if not whole and self.view.colour == "model":
                whose = alt.Chart(alt.Data(values=[{"model": rows["model"][0]}])).mark_point(
                    shape="square",
                    filled=True,
                    size=style.LANE**2 - 12,
                    opacity=1,
                    xOffset=style.LANE,
                )
                layers.append(
                    whose.encode(
                        x=alt.XValue("width"), y=alt.YValue(foot - style.LANE / 2), **self.colour()
                    )
                )
        return layers

    def reference(self, reference: Reference, panel: Panel) -> list[Any]:
        """A dashed line and its words, in a halo of paper that keeps the data off them."""
        look = {"color": self.ink, "opacity": 0.7}
        if reference.axis == "slope":
            ends = panel.rows[self.view.x].astype(float)
            line = [
                {"rx": x, "ry": reference.value * x, "label": reference.label}
                for x in (0.0, float(ends.max()))
            ]
            x, y = self.x(panel, 0), self.y("ry")
            x.shorthand = "rx:Q"
            stroke = alt.Chart(alt.Data(values=line)).mark_line(
                strokeDash=[4, 3], strokeWidth=1.2, **look
            )
            return [
                stroke.encode(x=x, y=y),
                *self.words(line[1:], {"x": x, "y": y}, align="right", dx=-10, dy=-2),
            ]
        values = [{"at": reference.value, "label": reference.label}]
        rule = alt.Chart(alt.Data(values=values)).mark_rule(
            strokeDash=[4, 3], strokeWidth=1.2, **look
        )
        if reference.axis == "x":
            x = self.x(panel, 0)
            x.shorthand = "at:Q"
            place = {"x": x, "y": alt.YValue(0)}
            return [
                rule.encode(x=x),
                *self.words(values, place, align="left", baseline="top", dx=4, dy=2),
            ]
        place = {"y": self.y("at"), "x": alt.XValue("width")}
        return [
            rule.encode(y=self.y("at")),
            *self.words(values, place, align="right", baseline="bottom", dx=-4, dy=-2),
        ]

    def words(self, values: list[dict[str, Any]], place: dict[str, Any], **where: Any) -> list[Any]:
        base, size = alt.Chart(alt.Data(values=values)), style.SIZES["label"]
        halo = base.mark_text(
            fontSize=size, color=self.paper, stroke=self.paper, strokeWidth=4, opacity=0.8, **where
        )
        ink = base.mark_text(fontSize=size, color=self.ink, **where)
        return [layer.encode(text=alt.Text("label:N"), **place) for layer in (halo, ink)]

    def heatmap(self, panel: Panel) -> Any:
        """Square cells, grey where there is no number; rows from the bottom up, so that diagonals rise."""
        view, result = self.view, self.result
        across, up = levels(result, view.x, panel.rows), levels(result, view.y, panel.rows)
        step = max(min(math.floor(320 / max(len(across), len(up), 1)), 26), 4)
        axes = []
        for shown in (across, up):
            values = [shown[i] for i in thinned(len(shown), step * len(shown), 11)]
            said = (
                "format(datum.value, '.2~f')"
                if any(isinstance(level, float) for level in shown)
                else alt.Undefined
            )
            axes.append(
                alt.Axis(
                    values=values,
                    labelOverlap=False,
                    ticks=False,
                    domain=False,
                    grid=False,
                    labelFontSize=10,
                    labelExpr=said,
                )
            )
        turned = max((len(written(level)) for level in across), default=0) * 6 > step
        axes[0].labelAngle = -90 if turned else 0
        colours = OPPOSITES[self.theme] if view.middle is not None else RAMPS[self.theme]
        domain = np.linspace(*self.limits, len(colours)).tolist() if self.limits else alt.Undefined
        colour = alt.Color(
            f"{view.colour}:Q", title=result.column(view.colour).title,
            scale=alt.Scale(domain=domain, range=list(colours), clamp=True),
        )  # fmt: skip
        x = alt.X(f"{view.x}:N", title=result.column(view.x).title, sort=across, axis=axes[0])
        y = alt.Y(f"{view.y}:N", title=result.column(view.y).title, sort=up[::-1], axis=axes[1])
        cells = (
            alt.Chart(self.data(panel.rows))
            .mark_rect()
            .encode(x=x, y=y, color=colour, tooltip=self.tooltip)
        )
        hole = alt.ViewBackground(fill=self.ink, fillOpacity=style.HOLE, stroke=None)
        return cells.properties(width=alt.Step(step), height=alt.Step(step), view=hole)


def _tiles(result: Result, view: View, theme: Theme) -> Any:
    """Pictures as one image, what is written above each as text over it."""
    sheet = montage(
        result.arrays[view.array], *(_written(result, name) for name in (view.x, view.facet))
    )
    picture = (
        "data:image/png;base64," + base64.b64encode(montage_png(sheet, PAPERS[theme][1])).decode()
    )
    width, height = sheet.width, sheet.height
    whole = alt.Chart(alt.Data(values=[{"picture": picture}])).mark_image(
        width=width, height=height, align="left", baseline="top"
    )
    image = whole.encode(url=alt.Url("picture:N"), x=alt.XValue(0), y=alt.YValue(0))
    words = [
        {"label": label, "x": x, "y": y}
        for label, (x, y) in zip(sheet.labels, sheet.corners, strict=False)
    ]
    over = [{"label": label, "x": 0, "y": y} for label, y in sheet.headings]
    look = {"align": "left", "baseline": "bottom", "dy": -3, "color": PAPERS[theme][0]}
    place = {
        "x": alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, width], nice=False)),
        "y": alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[height, 0], nice=False)),
    }
    layers = [image]
    for entries, size, opacity in ((words, 10, style.QUIET), (over, style.SIZES["axis"], 1.0)):
        if entries:
            text = alt.Chart(alt.Data(values=entries)).mark_text(
                fontSize=size, opacity=opacity, **look
            )
            layers.append(text.encode(**place, text=alt.Text("label:N")))
    return alt.layer(*layers).properties(width=width, height=height)


def _written(result: Result, name: str) -> list[str]:
    return [str(value) for value in result.table[name]] if name else []


def _quiet(words: str) -> alt.Title:
    return alt.Title(words, fontSize=style.SIZES["axis"], fontWeight="normal", offset=6)


def _type(kind: str) -> str:
    return "Q" if kind == "quantity" else "N"


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON has them; what is not a number is null."""
    plain = rows.astype(object).where(rows.notna(), None)
    records = [
        {str(k): v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
        for row in plain.to_dict("records")
    ]
    return [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        for row in records
    ]
