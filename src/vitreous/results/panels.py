"""What both drawing libraries share: panels, bands, colours and limits of axes.

So a figure drawn with matplotlib and the same view in a report agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vitreous.palette import PAPERS, Theme
from vitreous.results.colour_scales import colour_scale, column_levels
from vitreous.results.names import short_names
from vitreous.results.view import Reference, View, interval_ends
from vitreous.unit_kinds import Kind

if TYPE_CHECKING:
    from vitreous.results.result import Result


MAX_LANES = 4
"""Maximum number of strips of units along an axis of depth."""
NEAR = 0.07
"""Share of the value axis within which the labels of two lines would overlap."""


@dataclass(frozen=True)
class Band:
    """The range of depth that belongs to one unit.

    Models with the same kinds of units at the same depths share a lane.
    """

    start: float
    end: float
    kind: Kind
    unit: str
    model: str | None
    """None if all models of a panel have this unit."""
    lane: int = 0
    lanes: int = 1


@dataclass(frozen=True)
class Panel:
    """One panel of a view: its title, the rows of the table it shows, and its bands."""

    title: str
    rows: pd.DataFrame
    bands: tuple[Band, ...]


class Drawing:
    """What the panels of one figure share, with either drawing library."""

    title_limit = 44
    """Maximum number of characters of a panel's title."""

    def __init__(self, result: Result, view: View, theme: Theme) -> None:
        self.result, self.view, self.theme = result, view, theme
        self.ink, self.paper = PAPERS[theme]
        self.panels = split_panels(result, view)
        self.scale = colour_scale(result, view, theme)
        self.limits = value_limits(result, view)
        limit = self.title_limit if len(self.panels) <= 4 else 28
        self.titles = short_names((panel.title for panel in self.panels), limit)
        """Titles of panels as they are shown."""

    def limits_of(self, panel: Panel) -> tuple[float, float] | None:
        """Return the limits of the value axis of a panel."""
        if not self.view.free:
            return self.limits
        return value_limits(replace(self.result, table=panel.rows, replicates={}), self.view)

    def references(self, panel: Panel) -> list[Reference]:
        """Return the lines to compare with.

        Of lines so close that their labels would overlap, the highest has the labels of all.
        """
        limits, lines = self.limits_of(panel), list(self.view.references)
        if not limits or len(lines) < 2 or any(each.axis != "y" for each in lines):
            return lines

        def height(value: float) -> float:
            return math.log(max(value, 1e-300)) if "y" in self.view.log else value

        gap = NEAR * (height(limits[1]) - height(limits[0]))
        lines.sort(key=lambda each: -each.value)
        top = 0
        for number, each in enumerate(lines[1:], 1):
            if height(lines[top].value) - height(each.value) >= gap:
                top = number
                continue
            lines[top] = replace(lines[top], label=f"{lines[top].label}; {each.label}")
            lines[number] = replace(each, label="")
        return lines

    def levels(self, name: str, panel: Panel | None = None) -> list[Any]:
        """Return the entries of a column that a panel shows, in order."""
        rows = panel.rows if panel else None
        levels = column_levels(self.result, name, rows)
        by = self.view.sort
        sorted_axis = self.view.y if self.view.mark == "heatmap" else self.view.x
        if not by or name != sorted_axis:
            return levels
        table = self.result.table if rows is None else rows
        means = table.groupby(name, observed=True)[by].mean()
        return sorted(levels, key=lambda level: -means[level])  # stable where means are equal

    def labels(self, name: str) -> dict[Any, str]:
        """Return the text of every entry of a column, for axes and legends."""
        texts = {level: level_text(level) for level in column_levels(self.result, name)}
        short = short_names(texts.values())
        return {level: short[text] for level, text in texts.items()}

    @property
    def is_crowded(self) -> bool:
        """Whether there are too many lines for the edges of their ribbons to be told apart."""
        return self.scale is not None and len(self.scale.levels) > 5

    @property
    def is_turned(self) -> bool:
        """Whether bars lie, because the names of many models do not fit side by side."""
        view = self.view
        if view.mark != "bar" or self.result.column(view.x).kind != "category":
            return False
        if view.facet and view.x == view.colour:
            return False  # the legend names them
        texts = self.labels(view.x).values()
        room = 440 if len(self.panels) == 1 else 230
        return sum(6.5 * len(text) + 12 for text in texts) > room

    def rows_downwards(self, panel: Panel) -> list[Any]:
        """Return the rows of a heat-map from top to bottom: layers from the last to the first."""
        if self.view.matrix:
            across = self.levels(self.view.x, panel)
            known = set(self.levels(self.view.y, panel))
            if known == set(across):
                return across
        levels = self.levels(self.view.y, panel)
        names = self.result.column(self.view.y).kind == "category" or bool(self.view.sort)
        return levels if names else levels[::-1]

    @property
    def value_title(self) -> str:
        """Return the title of the value axis; if it is zoomed in, with its range."""
        name = self.view.colour if self.view.mark == "heatmap" else self.view.y
        title = self.view.label or self.result.column(name).title
        if self.view.facet == "measure" and self.view.free:
            return self.view.label  # each panel has its own quantity
        if not self.view.zoomed or not self.limits or self.limits[0] <= 0:
            return title
        low, high = self.limits
        return f"{title}, axis from {low:.2g} to {min(high, 1):.2g}"

    def is_quantity(self, name: str) -> bool:
        """Whether a column holds numbers for an axis."""
        return self.result.column(name).kind == "quantity"


def has_marks(result: Result, view: View) -> bool:
    """Whether a view has anything to draw: an image, a name, or a number that is one."""
    rows = result.rows_of(view).table
    value = view.colour if view.mark == "heatmap" else view.y
    return not rows.empty and (view.mark == "tiles" or bool(rows[value].notna().any()))


def rows_to_draw(result: Result, view: View) -> Result:
    """Return the result with the rows that a view shows; for a matrix, with their means."""
    result = result.rows_of(view)
    return _average(result, view) if view.matrix and len(result.table) else result


def _average(result: Result, view: View) -> Result:
    """Return a result with one row for each cell of a matrix.

    If its rows and columns are the same models, cells are mirrored at the diagonal.

    The interval of a mean over units is the mean of their intervals, which is never too narrow.
    """
    declared = {column.name: column for column in result.columns}
    values = [view.colour, *(interval_ends(view.colour, declared) or ())]
    place = [view.y, view.x]
    groups = result.table.groupby(place, sort=False, observed=True)
    table = groups[values].mean().reset_index()
    if view.opens:
        table[view.opens] = groups[view.opens].first().to_numpy()
    if set(table[view.x]) == set(table[view.y]):
        mirrored = table.rename(columns={view.x: view.y, view.y: view.x})
        table = pd.concat([table, mirrored[table.columns]]).drop_duplicates(place)
    columns = tuple(column for column in result.columns if column.name in table.columns)
    table = table[[column.name for column in columns]].reset_index(drop=True)
    return replace(result, table=table, columns=columns, views=(), replicates={}, arrays={})


def split_panels(result: Result, view: View) -> list[Panel]:
    """Return the panels of a view in order; without a facet it is one, without a title."""
    parts: list[tuple[str, pd.DataFrame]] = [("", result.table)]
    if view.facet:
        column = result.table[view.facet]
        levels = column_levels(result, view.facet)
        titles = [_panel_title(result, view.facet, level) for level in levels]
        rows = [result.table[column == level] for level in levels]
        parts = list(zip(titles, rows, strict=True))
    return [
        Panel(title, rows, unit_bands(result, rows) if view.bands else ()) for title, rows in parts
    ]


def _panel_title(result: Result, facet: str, level: Any) -> str:
    """Return the title of a panel; a number needs the name of its column."""
    if isinstance(level, str):
        return level
    column = result.column(facet)
    words = column.label or column.name.replace("_", " ")
    measure = column.measure.removesuffix("s") if level == 1 else column.measure
    return f"{words} {level_text(level)} {measure}".strip()


def unit_bands(result: Result, rows: pd.DataFrame) -> tuple[Band, ...]:
    """Return the bands of the models in `rows`.

    They come from all units of a model where the metadata has them, otherwise from the rows. Models
    with the same kinds at the same depths share one lane. More than MAX_LANES would hide what is
    drawn over them, so then there are none.
    """
    known = result.about.get("units", {})
    models = rows["model"].unique().tolist()
    lanes: dict[tuple[Any, ...], list[list[Band]]] = {}
    for model in models:
        own = rows[rows["model"] == model][["unit", "kind", "depth"]]
        units = known.get(model) or own.drop_duplicates("depth").values.tolist()
        bands = model_bands(model, units)
        lanes.setdefault(tuple((band.start, band.kind) for band in bands), []).append(bands)
    if len(lanes) > MAX_LANES:
        return ()
    if len(lanes) == 1 and len(models) > 1:
        [[first, *_]] = lanes.values()
        return tuple(replace(band, model=None) for band in first)
    return tuple(
        replace(band, lane=number, lanes=len(lanes))
        for number, together in enumerate(lanes.values())
        for bands in together
        for band in bands
    )


def model_bands(model: str, units: Sequence[Sequence[Any]]) -> list[Band]:
    """Return the bands of one model from name, kind and depth of its units.

    Each unit reaches half-way to its neighbours; the first and the last reach as far outwards.
    """
    placed = sorted(units, key=lambda unit: unit[2])
    depths = [float(unit[2]) for unit in placed]
    if not depths:
        return []
    if len(depths) == 1:
        return [Band(depths[0] - 0.5, depths[0] + 0.5, placed[0][1], placed[0][0], model)]
    middles = [(one + other) / 2 for one, other in pairwise(depths)]
    edges = [2 * depths[0] - middles[0], *middles, 2 * depths[-1] - middles[-1]]
    return [
        Band(start, end, kind, name, model)
        for (name, kind, _), (start, end) in zip(placed, pairwise(edges), strict=True)
    ]


def value_limits(result: Result, view: View) -> tuple[float, float] | None:
    """Return the limits of the value axis, or of the colours of a heat-map, for all panels.

    They include intervals, references and a margin; bars begin at zero. None if the values are
    names, or there are none.
    """
    if view.limits or view.mark == "tiles":
        return view.limits
    names = [view.colour] if view.mark == "heatmap" else [view.y, view.low, view.high]
    if result.column(names[0]).kind != "quantity":
        return None
    columns = [result.table[name].to_numpy(dtype=float) for name in names if name]
    references = [reference.value for reference in view.references if reference.axis == "y"]
    values = np.concatenate([*columns, references, [0.0] if view.mark == "bar" else []])
    values = values[np.isfinite(values) & ((values > 0) | ("y" not in view.log))]
    if not len(values):
        return None
    low, high = float(values.min()), float(values.max())
    if view.mark == "heatmap":
        if view.middle is None:
            return (low, high) if high > low else (low - 0.05, high)
        reach = max(abs(low - view.middle), abs(high - view.middle))
        return view.middle - reach, view.middle + reach
    return _with_margins(result, view, low, high, labelled=high in references)


def _with_margins(
    result: Result, view: View, low: float, high: float, labelled: bool
) -> tuple[float, float]:
    """Return the limits of the value axis: the extreme values with margins below and above."""
    above = 2.5 if labelled else 1.0  # room for the label of a reference above its line
    bands = [band for panel in split_panels(result, view) for band in panel.bands]
    lanes = max((band.lanes for band in bands), default=0)
    below = 1.0 + lanes  # room for strips of bands
    if view.mark == "bar" and low == 0:
        below = 0.0
    if "y" in view.log:
        margin = (high / low) ** 0.05 if high > low else 1.1
        return low / margin**below, high * margin**above
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - below * margin, high + above * margin


def depth_limits(panel: Panel) -> tuple[float, float] | None:
    """Return the limits of an axis of depth with bands; None for a panel without bands."""
    if not panel.bands:
        return None
    return min(band.start for band in panel.bands), max(band.end for band in panel.bands)


def bar_spans(result: Result, view: View, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a bar view over a quantity with columns `start` and `end` of each bar.

    All bars at one place are together as wide as the distance of the closest two places.
    """
    places = np.unique(result.table[view.x].to_numpy(dtype=float))
    width = float(np.diff(places).min()) if len(places) > 1 else 1.0
    split = bool(view.colour) and view.colour != view.facet
    levels = column_levels(result, view.colour) if split else [None]
    each = 0.92 * width / len(levels)
    number = rows[view.colour].map(levels.index).astype(float) if len(levels) > 1 else 0.0
    start = rows[view.x].astype(float) - 0.46 * width + each * number
    return rows.assign(start=start, end=start + each)


def group_rows(
    rows: pd.DataFrame, names: Sequence[str]
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the rows that share their entries in some columns, with these entries by column."""
    if not names:
        yield {}, rows
        return
    for key, part in rows.groupby(list(names), sort=False, observed=True, dropna=False):
        yield dict(zip(names, key, strict=True)), part


def level_text(level: Any) -> str:
    """Return the label of a level; two decimals suffice for a number."""
    return f"{level:.2f}".rstrip("0").rstrip(".") if isinstance(level, float) else str(level)


def spaced_labels(count: int, room: float, size: float) -> range:
    """Return which of `count` labels of a `size` to show, so that they do not overlap in `room`."""
    return range(0, count, max(math.ceil(count * size / room), 1) if room else 1)
