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

from vitreous.palette import (
    DASHES,
    KIND_COLOURS,
    LINE_RAMPS,
    MEASURE_COLOURS,
    PAPERS,
    SHAPES,
    Theme,
    model_styles,
)
from vitreous.results.view import View
from vitreous.unit_kinds import KINDS, Kind

if TYPE_CHECKING:
    from vitreous.results.result import Result


@dataclass(frozen=True)
class Band:
    """The range of depth that belongs to one unit.

    If the models of a panel differ, each has a lane of its own; otherwise there is one lane.
    """

    start: float
    end: float
    kind: Kind
    unit: str
    model: str
    lane: int = 0
    lanes: int = 1


@dataclass(frozen=True)
class Panel:
    """One panel of a view: its title, the rows of the table it shows, and its bands."""

    title: str
    rows: pd.DataFrame
    bands: tuple[Band, ...]


@dataclass(frozen=True)
class ColourScale:
    """The colours of a column: one for each level, or a ramp between two numbers (`ends`).

    Where there are more models than colours, dashes and shapes tell them apart.
    """

    levels: tuple[Any, ...]
    colours: tuple[str, ...]
    ends: tuple[float, float] | None = None
    dashes: tuple[tuple[float, ...], ...] = ()
    shapes: tuple[str, ...] = ()

    def colour_of(self, level: Any) -> str:
        """Return the colour of a level, or of a number on a ramp."""
        if self.ends is None:
            return self.colours[self.levels.index(level)]
        low, high = self.ends
        return ramp_colour(self.colours, (level - low) / ((high - low) or 1))

    def dash_of(self, level: Any) -> tuple[float, ...]:
        """Return the dashes and gaps of a level's lines; empty for solid lines."""
        return self.dashes[self.levels.index(level)] if level in self.levels and self.dashes else ()

    def shape_of(self, level: Any) -> str:
        """Return the shape of a level's points, as Vega calls it."""
        known = level in self.levels and self.shapes
        return self.shapes[self.levels.index(level)] if known else SHAPES[0]


class Drawing:
    """What the panels of one figure share, with either drawing library."""

    def __init__(self, result: Result, view: View, theme: Theme) -> None:
        self.result, self.view, self.theme = result, view, theme
        self.ink, self.paper = PAPERS[theme]
        self.panels = split_panels(result, view)
        self.scale = colour_scale(result, view, theme)
        self.limits = value_limits(result, view)

    def is_quantity(self, name: str) -> bool:
        """Whether a column holds numbers for an axis."""
        return self.result.column(name).kind == "quantity"


def split_panels(result: Result, view: View) -> list[Panel]:
    """Return the panels of a view in order; without a facet it is one, without a title."""
    parts: list[tuple[str, pd.DataFrame]] = [("", result.table)]
    if view.facet:
        column = result.table[view.facet]
        levels = column_levels(result, view.facet)
        parts = [(str(level), result.table[column == level]) for level in levels]
    return [
        Panel(title, rows, unit_bands(result, rows) if view.bands else ()) for title, rows in parts
    ]


def column_levels(result: Result, name: str, rows: pd.DataFrame | None = None) -> list[Any]:
    """Return the distinct entries of a column in the order in which to show them.

    Kinds and pandas' categories have an order, numbers are sorted, other entries come in the order
    in which they first occur.
    """
    column = (result.table if rows is None else rows)[name].dropna()
    if name == "kind" and set(column) <= set(KINDS):
        return [kind for kind in KINDS if kind in set(column)]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return [entry for entry in column.cat.categories if entry in set(column)]
    entries = column.unique().tolist()
    return sorted(entries) if pd.api.types.is_numeric_dtype(column.dtype) else entries


def unit_bands(result: Result, rows: pd.DataFrame) -> tuple[Band, ...]:
    """Return the bands of the models in `rows`.

    They come from all units of a model where the metadata has them, otherwise from the rows. Models
    with the same kinds at the same depths share one lane.
    """
    known = result.about.get("units", {})
    lanes: list[list[Band]] = []
    for model in rows["model"].unique().tolist():
        own = rows[rows["model"] == model][["unit", "kind", "depth"]]
        units = known.get(model) or own.drop_duplicates("depth").values.tolist()
        lanes.append(model_bands(model, units))
    outlines = [[(band.start, band.kind) for band in lane] for lane in lanes]
    if all(outline == outlines[0] for outline in outlines[1:]):
        return tuple(lanes[0]) if lanes else ()
    return tuple(
        replace(band, lane=number, lanes=len(lanes))
        for number, lane in enumerate(lanes)
        for band in lane
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


def colour_scale(result: Result, view: View, theme: Theme) -> ColourScale | None:
    """Return the colours of lines, points and bars; None for views without such colours.

    Kinds have fixed colours, models have theirs by name, other categories those of measures, and
    numbers a ramp.
    """
    if not view.colour or view.mark == "heatmap":
        return None
    column, levels = result.column(view.colour), column_levels(result, view.colour)
    ramp = LINE_RAMPS[theme]
    if column.kind == "quantity":
        return ColourScale((), ramp, (min(levels, default=0.0), max(levels, default=1.0)))
    if view.colour == "kind":
        colours = [KIND_COLOURS.get(level, "#888888") for level in levels]
    elif column.kind == "order":
        last = max(len(levels) - 1, 1)
        colours = [ramp_colour(ramp, number / last) for number in range(len(levels))]
    elif view.colour == "model":
        return _model_scale(result, levels, theme)
    else:
        palette = MEASURE_COLOURS[theme]
        colours = [palette[number % len(palette)] for number in range(len(levels))]
        repeats = [number // len(palette) % len(DASHES) for number in range(len(levels))]
        if any(repeats):
            dashes = tuple(DASHES[i] for i in repeats)
            shapes = tuple(SHAPES[i] for i in repeats)
            return ColourScale(tuple(levels), tuple(colours), None, dashes, shapes)
    return ColourScale(tuple(levels), tuple(colours))


def _model_scale(result: Result, levels: list[Any], theme: Theme) -> ColourScale:
    """Return the colours of models: the same in all results of models measured together."""
    together = [*map(str, result.about.get("beside", [])), *map(str, levels)]
    styles = model_styles(together, theme)
    chosen = [styles[str(level)] for level in levels]
    dashes, shapes = tuple(each.dash for each in chosen), tuple(each.shape for each in chosen)
    if not any(dashes):
        dashes, shapes = (), ()
    return ColourScale(tuple(levels), tuple(each.colour for each in chosen), None, dashes, shapes)


def ramp_colour(ramp: Sequence[str], position: float) -> str:
    """Return the colour at a position (0 to 1) of a ramp, linear between its stops."""
    place = min(max(position, 0.0), 1.0) * (len(ramp) - 1)
    left = min(int(place), len(ramp) - 2)
    mixed = ""
    for i in (1, 3, 5):
        low, high = int(ramp[left][i : i + 2], 16), int(ramp[left + 1][i : i + 2], 16)
        mixed += f"{round(low + (high - low) * (place - left)):02X}"
    return f"#{mixed}"


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
            return low, high
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
    below = 1.0 + (lanes if lanes > 1 else 0)  # room for strips of bands
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
