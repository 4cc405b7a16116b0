"""Columns as Vega-Lite encodings: axes, colours, dashes, shapes and tooltips of a chart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
import pandas as pd

from vitreous.palette import MEASURE_COLOURS, Theme
from vitreous.results.panels import Drawing, Panel, column_levels, depth_limits, spaced_labels
from vitreous.results.view import View
from vitreous.unit_kinds import KINDS

if TYPE_CHECKING:
    from vitreous.results.result import Result

Encoding = dict[str, Any]
"""Arguments of `encode`."""


class Encodings(Drawing):
    """The encodings that the panels and layers of one chart share."""

    def __init__(self, result: Result, view: View, theme: Theme) -> None:
        super().__init__(result, view, theme)
        present = {band.kind for panel in self.panels for band in panel.bands}
        self.kinds = [kind for kind in KINDS if kind in present]  # one legend for all panels
        self.datasets: dict[str, list[dict[str, Any]]] = {}
        """Rows by name: layers share them, and altair would copy them at every step."""
        self.tooltip = []
        for column in result.columns:
            quantity = column.kind == "quantity"
            number = {"format": ".4~g"} if quantity else {}
            shorthand = f"{column.name}:{'Q' if quantity else 'N'}"
            self.tooltip.append(alt.Tooltip(shorthand, title=column.title, **number))

    def data(self, rows: pd.DataFrame) -> alt.NamedData:
        name = f"rows{len(self.datasets)}"
        self.datasets[name] = _records(rows)
        return alt.NamedData(name)

    def x(self, panel: Panel, width: float = 0, field: str = "", **more: Any) -> alt.X:
        """Return the encoding of the x axis, for the column of the view or another `field`."""
        column = self.result.column(self.view.x)
        if column.kind != "quantity":
            levels = column_levels(self.result, self.view.x, panel.rows)
            longest = max((len(str(level)) for level in levels), default=0)
            turned = longest * len(levels) * 6.5 > width
            values = [levels[i] for i in spaced_labels(len(levels), width, 13 if turned else 1)]
            axis = alt.Axis(labelAngle=-40 if turned else 0, values=values, labelOverlap=False)
            shorthand = field or f"{column.name}:N"
            return alt.X(shorthand, title=column.title, sort=levels, axis=axis, **more)
        limits = depth_limits(panel)
        scale: Encoding = {"type": "linear", "nice": False, "zero": False}
        if "x" in self.view.log:
            scale = {"type": "log", "nice": False}
        if limits:
            scale["domain"] = list(limits)
        elif "x" not in self.view.log:
            scale["padding"] = 8
        ticks = {"values": [0, 0.2, 0.4, 0.6, 0.8, 1]} if limits else {}
        axis = alt.Axis(tickCount=6, **ticks)
        shorthand = field or f"{column.name}:Q"
        return alt.X(shorthand, title=column.title, scale=alt.Scale(**scale), axis=axis, **more)

    def y(self, name: str = "") -> alt.Y:
        """Return the encoding of the y axis, for the column of the view or another."""
        column = self.result.column(self.view.y)
        name = name or column.name
        if column.kind != "quantity":
            levels = column_levels(self.result, self.view.y)
            return alt.Y(f"{name}:N", title=column.title, sort=levels)
        scale: Encoding = {"type": "linear", "nice": False, "zero": False}
        if "y" in self.view.log:
            scale = {"type": "log", "nice": False}
        if self.limits:
            scale["domain"] = list(self.limits)
        scale["clamp"] = bool(self.view.limits)
        axis = alt.Axis(tickCount=5)
        return alt.Y(f"{name}:Q", title=column.title, scale=alt.Scale(**scale), axis=axis)

    def interval(self) -> Encoding:
        """Return the encoding of the two ends of an interval."""
        return {"y": self.y(self.view.low), "y2": alt.Y2(f"{self.view.high}:Q")}

    def colour(self) -> Encoding:
        """Return the encoding of colours; each layer sets its own opacity."""
        if self.scale is None:
            return {"color": alt.ColorValue(MEASURE_COLOURS[self.theme][0])}
        column, colours = self.result.column(self.view.colour), list(self.scale.colours)
        if self.scale.ends:
            stops = np.linspace(*self.scale.ends, len(colours)).tolist()
            scale = alt.Scale(domain=stops, range=colours)
            return {"color": alt.Color(f"{column.name}:Q", title=column.title, scale=scale)}
        scale = alt.Scale(domain=list(self.scale.levels), range=colours)
        named = self.view.colour in (self.view.facet, self.view.x)
        legend = None if named else alt.Legend(symbolOpacity=1)  # not that of the ribbons
        shorthand = f"{column.name}:N"
        return {"color": alt.Color(shorthand, title=column.title, scale=scale, legend=legend)}

    def dashes(self) -> Encoding:
        """Return the encoding of dashes if there are more lines than colours."""
        if self.scale is None or not self.scale.dashes:
            return {}
        levels, column = list(self.scale.levels), self.result.column(self.view.colour)
        scale = alt.Scale(domain=levels, range=[list(each) or [1, 0] for each in self.scale.dashes])
        return {"strokeDash": alt.StrokeDash(f"{column.name}:N", title=column.title, scale=scale)}

    def shapes(self) -> Encoding:
        """Return the encoding of the shapes of points if there are more levels than colours."""
        if self.scale is None or not self.scale.shapes:
            return {}
        levels, column = list(self.scale.levels), self.result.column(self.view.colour)
        scale = alt.Scale(domain=levels, range=list(self.scale.shapes))
        return {"shape": alt.Shape(f"{column.name}:N", title=column.title, scale=scale)}


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as JSON can hold them: what is no finite number is null."""
    records = []
    for row in rows.astype(object).where(rows.notna(), None).to_dict("records"):
        record = {}
        for name, entry in row.items():
            value = entry.item() if isinstance(entry, np.generic) else entry
            infinite = isinstance(value, float) and not math.isfinite(value)
            record[str(name)] = None if infinite else value
        records.append(record)
    return records
