"""Columns as Vega-Lite encodings: axes, colours, dashes, shapes and tooltips of a chart."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vitreous.palette import MEASURE_COLOURS, Theme
from vitreous.results.panels import Drawing, Panel, depth_limits, spaced_labels
from vitreous.results.view import View, interval_ends, tooltip_columns
from vitreous.unit_kinds import KINDS

if TYPE_CHECKING:
    from vitreous.results.result import Result

Spec = dict[str, Any]
"""A part of a Vega-Lite specification."""
STROKES = {"symbolType": "stroke", "symbolStrokeWidth": 2, "symbolSize": 300}
"""Lines in a legend."""
LINKED = ("model", "other_model", "unit")
"""Columns by which charts of a page are filtered and linked, where a table has them."""
WIDE = 1e4
"""Ratio of the ends of a logarithmic axis above which its numbers are powers of ten."""
CHARACTER = 6.5
"""Mean width of a character of a label in pixels."""


class Encodings(Drawing):
    """The encodings that the panels and layers of one chart share."""

    def __init__(self, result: Result, view: View, theme: Theme) -> None:
        super().__init__(result, view, theme)
        present = {band.kind for panel in self.panels for band in panel.bands}
        self.kinds = [kind for kind in KINDS if kind in present]  # one legend for all panels
        self.datasets: dict[str, list[Spec]] = {}
        """Rows by name, as layers share them."""
        self.declared = {column.name: column for column in result.columns}
        self.tooltip_names = tooltip_columns(view, self.declared)
        self.columns = self._needed_columns()

    def _needed_columns(self) -> list[str]:
        """Return the columns that the chart needs; others stay out of its data."""
        view = self.view
        names = [view.x, view.y, view.colour, view.facet, view.detail, view.size]
        names += [view.low, view.high, view.opens, *self.tooltip_names, *LINKED]
        for name in self.tooltip_names:
            names += interval_ends(name, self.declared) or ()
        return [name for name in self.declared if name in names]

    def data(self, rows: pd.DataFrame) -> Spec:
        """Return a reference to rows, which are stored once however often they are drawn."""
        records = to_records(rows)
        for name, known in self.datasets.items():
            if known == records:
                return {"name": name}
        name = f"rows{len(self.datasets)}"
        self.datasets[name] = records
        return {"name": name}

    def rows(self, panel: Panel) -> Spec:
        """Return a reference to the rows of a panel, with the columns that the chart needs."""
        return self.data(self.with_places(panel.rows[self.columns]))

    def with_places(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows with extra columns in which values without a logarithm (≤ 0) are missing.

        Such a value is not drawn, and an interval that contains it begins at the edge of the chart.
        """
        view = self.view
        floor = (self.limits or (np.nan,))[0]
        for name, instead in ((view.y, np.nan), (view.low, floor), (view.high, floor)):
            if name and self.drawn(name) != name:
                shown = rows[name].where(~(rows[name] <= 0), instead)
                rows = rows.assign(**{self.drawn(name): shown})
        return rows

    def drawn(self, name: str) -> str:
        """Return the column that is drawn for a column: another one on a logarithmic axis."""
        if "y" not in self.view.log or not (self.result.table[name] <= 0).any():
            return name
        return f"{name}_drawn"

    def field(self, name: str) -> Spec:
        return {"field": name, "type": "quantitative" if self.is_quantity(name) else "nominal"}

    def label_expression(self, name: str) -> Spec:
        """Return the setting of an axis or legend that shows long names without their middle."""
        labels = self.labels(name)
        short = {str(level): text for level, text in labels.items() if str(level) != text}
        if not short:
            return {}
        table = json.dumps(short, ensure_ascii=False)
        return {"labelExpr": f"({table})[datum.value] || datum.label"}

    def x(self, panel: Panel, width: float = 0, field: str = "") -> Spec:
        """Return the encoding of the x axis, for the column of the view or another `field`."""
        column = self.result.column(self.view.x)
        if column.kind != "quantity":
            return self._categories(panel, width)
        scale: Spec = {"type": "linear", "nice": False, "zero": False}
        if "x" in self.view.log:
            scale = {"type": "log", "nice": False}
        limits = self.view.limits if self.view.square else depth_limits(panel)
        if limits:
            scale["domain"] = list(limits)
        elif "x" not in self.view.log:
            scale["padding"] = 8
            if self.view.mark in ("line", "scatter"):
                scale["domain"] = self._extent(panel)
        axis: Spec = {"tickCount": 6}
        if limits:
            axis["values"] = [0, 0.2, 0.4, 0.6, 0.8, 1]
        x = {"field": field or column.name, "type": "quantitative", "title": column.title}
        return {**x, "scale": scale, "axis": axis}

    def _extent(self, panel: Panel) -> list[float]:
        """Return the ends of a linear x axis; a single place is in the middle.

        Vega would label an axis of no length with whole numbers, 0.3 as 0; so it would when only
        one model is shown.
        """
        places = panel.rows[self.view.x].to_numpy(dtype=float)
        known = places[np.isfinite(places)].tolist()
        known += [each.value for each in self.view.references if each.axis == "x"]
        if any(each.axis == "slope" for each in self.view.references):
            known.append(0.0)
        low, high = min(known, default=0.0), max(known, default=1.0)
        around = 0.5 * abs(low) or 1.0
        return [low, high] if low < high else [low - around, low + around]

    def _categories(self, panel: Panel, width: float) -> Spec:
        """Return the encoding of an axis of names, all of which fit if it is that of lying bars."""
        name, column = self.view.x, self.result.column(self.view.x)
        levels, labels = self.levels(name, panel), self.labels(name)
        place = {"field": name, "type": "nominal", "title": column.title, "sort": levels}
        if self.view.facet and name == self.view.colour:  # the legend names them
            return {**place, "axis": {"labels": False, "ticks": False}, "title": None}
        longest = max((len(labels[level]) for level in levels), default=0)
        turned = longest * len(levels) * CHARACTER > width and not self.is_turned
        spaced = spaced_labels(len(levels), width, 13 if turned else 1)
        axis: Spec = {"labelAngle": -40 if turned else 0, "labelOverlap": False}
        axis["values"] = levels if self.is_turned else [levels[i] for i in spaced]
        return {**place, "axis": {**axis, **self.label_expression(name)}}

    def y(self, panel: Panel, name: str = "") -> Spec:
        """Return the encoding of the y axis, for the column of the view or another."""
        column = self.result.column(self.view.y)
        name = name or column.name
        if column.kind != "quantity":
            levels = self.levels(self.view.y)
            return {"field": name, "type": "nominal", "title": column.title, "sort": levels}
        scale: Spec = {"type": "linear", "nice": False, "zero": False}
        if "y" in self.view.log:
            scale = {"type": "log", "nice": False}
        if limits := self.limits_of(panel):
            scale["domain"] = list(limits)
        scale["clamp"] = bool(self.view.limits)
        axis: Spec = {"tickCount": 3 if self.view.free else 5}
        if limits and "y" in self.view.log and limits[1] > WIDE * limits[0]:
            axis["format"] = ".0e"
        field = self.drawn(name) if name in self.declared else name
        y = {"field": field, "type": "quantitative", "title": self.value_title, "scale": scale}
        return {**y, "axis": axis}

    def interval(self, panel: Panel) -> Spec:
        """Return the encoding of the two ends of an interval."""
        return {"y": self.y(panel, self.view.low), "y2": {"field": self.drawn(self.view.high)}}

    @property
    def has_many_points(self) -> bool:
        """Whether a line of any panel has so many points that they would cover it.

        Panels share a legend, which then has lines instead of points.
        """
        if self.view.mark != "line":
            return False
        return max((panel.rows[self.view.x].nunique() for panel in self.panels), default=0) > 40

    def colour(self) -> Spec:
        """Return the encoding of colours; each layer sets its own opacity."""
        if self.scale is None:
            return {"color": {"value": MEASURE_COLOURS[self.theme][0]}}
        column, colours = self.result.column(self.view.colour), list(self.scale.colours)
        if self.scale.ends:
            stops = np.linspace(*self.scale.ends, len(colours)).tolist()
            scale: Spec = {"domain": stops, "range": colours}
            return {"color": {**self.field(column.name), "title": column.title, "scale": scale}}
        scale = {"domain": list(self.scale.levels), "range": colours}
        named = self.view.colour in (self.view.facet, self.view.x)
        if self.view.facet and self.view.colour == self.view.x != self.view.facet:
            named = False  # the axis leaves it to the legend
        plain: Spec = {"symbolOpacity": 1, **self.label_expression(column.name)}
        if self.scale.shapes:  # without an outline, which would be dashed, too
            plain |= STROKES if self.has_many_points else {"symbolStrokeWidth": 0}
        legend = None if named else plain
        colour = {"field": column.name, "type": "nominal", "title": column.title, "scale": scale}
        return {"color": {**colour, "legend": legend}}

    def dashes(self) -> Spec:
        """Return the encoding of dashes if there are more lines than colours."""
        if self.scale is None or not self.scale.dashes:
            return {}
        dashes = [list(dash) or [1, 0] for dash in self.scale.dashes]
        return self._second_channel("strokeDash", dashes)

    def shapes(self) -> Spec:
        """Return the encoding of the shapes of points if there are more levels than colours."""
        if self.scale is None or not self.scale.shapes:
            return {}
        return self._second_channel("shape", list(self.scale.shapes))

    def _second_channel(self, channel: str, values: list[Any]) -> Spec:
        """Return a channel beside colour; in the same legend, so it has the same title."""
        assert self.scale is not None
        name = self.view.colour
        title = {
            "title": self.result.column(name).title,
            "legend": self.colour()["color"]["legend"],
        }
        scale = {"domain": list(self.scale.levels), "range": values}
        return {channel: {"field": name, "type": "nominal", "scale": scale, **title}}

    def tooltip(self) -> tuple[list[Spec], list[Spec]]:
        """Return the lines of the tooltips, and what has to be calculated for them."""
        lines, steps = [], []
        for name in self.tooltip_names:
            title = self.result.column(name).title
            ends = interval_ends(name, self.declared)
            if not self.is_quantity(name):
                lines.append({"field": name, "type": "nominal", "title": title})
            elif ends is None:
                shown = {"format": self._number_format(name)}
                lines.append({"field": name, "type": "quantitative", "title": title, **shown})
            else:
                steps.append({"calculate": self._estimate(name, *ends), "as": f"{name}_shown"})
                lines.append({"field": f"{name}_shown", "type": "nominal", "title": title})
        return lines, steps

    def _number_format(self, name: str) -> str:
        """Return how numbers of a column are written: whole ones with all their digits."""
        column = self.result.table[name]
        if pd.api.types.is_integer_dtype(column.dtype):
            return ",d"
        values = column.to_numpy(dtype=float)
        sizes = np.abs(values[np.isfinite(values) & (values != 0)])
        plain = not len(sizes) or (sizes.max() < 1e7 and np.median(sizes) > 1e-4)
        return ".3~r" if plain else ".3~g"

    def _estimate(self, value: str, low: str, high: str) -> str:
        """Return an expression for a value with its interval: `0.53 (0.48 to 0.58)`."""
        number = self._number_format(value)
        shown, least, most = (f"format(datum['{each}'], '{number}')" for each in (value, low, high))
        return (
            f"!isValid(datum['{value}']) ? '–' : isValid(datum['{low}']) ? "
            f"{shown} + ' (' + {least} + ' to ' + {most} + ')' : {shown}"
        )


def to_records(rows: pd.DataFrame) -> list[Spec]:
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
