"""What a view comes to before anything is drawn: panels, bands, colours, the ends of axes. The two drawing libraries
share it, so that a picture in a paper and the one in a report are the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from vitreous.palette import KIND_COLOURS, MODEL_COLOURS, PAPERS, RAMPS, Theme
from vitreous.results.result import Result
from vitreous.results.view import View
from vitreous.unit_kinds import KINDS, Kind


@dataclass(frozen=True)
class Band:
    """The stretch of depth that belongs to one unit, in one of `lanes` lanes: one a model, where models differ."""

    start: float
    end: float
    kind: Kind
    unit: str
    model: str
    lane: int = 0
    lanes: int = 1


@dataclass(frozen=True)
class Panel:
    title: str
    rows: pd.DataFrame
    bands: tuple[Band, ...]


@dataclass(frozen=True)
class Shades:
    """What a column is coloured by: one colour for each level, or a ramp between two numbers where there are none."""

    levels: tuple[Any, ...]
    colours: tuple[str, ...]
    ends: tuple[float, float] | None = None

    def of(self, level: Any) -> str:
        return self.colours[self.levels.index(level)]


def panels(result: Result, view: View) -> list[Panel]:
    """The view's panels in order; one, without a title, where it has no facet."""
    parts: list[tuple[str, pd.DataFrame]] = [("", result.table)]
    if view.facet:
        column = result.table[view.facet]
        parts = [
            (str(level), result.table[column == level]) for level in levels(result, view.facet)
        ]
    return [Panel(title, rows, bands(result, rows) if view.bands else ()) for title, rows in parts]


def levels(result: Result, name: str, rows: pd.DataFrame | None = None) -> list[Any]:
    """The entries of a column in the order in which to show them: kinds in theirs, categories of pandas in theirs,
    numbers by size, the rest as they first occur."""
    column = (result.table if rows is None else rows)[name].dropna()
    if name == "kind" and set(column) <= set(KINDS):
        return [kind for kind in KINDS if kind in set(column)]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return [entry for entry in column.cat.categories if entry in set(column)]
    found = column.unique().tolist()
    return sorted(found) if pd.api.types.is_numeric_dtype(column.dtype) else found


def bands(result: Result, rows: pd.DataFrame) -> tuple[Band, ...]:
    """Bands of the models in `rows`, from all units of a model where the result knows them, from its rows otherwise.

    Models made of the same kinds at the same depths share one set.
    """
    models = rows["model"].unique().tolist()
    known = result.about.get("units", {})
    each = [
        units_to_bands(model, known.get(model) or _units(rows[rows["model"] == model]))
        for model in models
    ]
    if all(_outline(one) == _outline(each[0]) for one in each[1:]):
        return tuple(each[0]) if each else ()
    return tuple(
        Band(b.start, b.end, b.kind, b.unit, b.model, lane, len(each))
        for lane, one in enumerate(each)
        for b in one
    )


def units_to_bands(model: str, units: Sequence[Sequence[Any]]) -> list[Band]:
    """From name, kind and depth: each unit reaches half-way to its neighbours, the outermost as far out as in."""
    placed = sorted(units, key=lambda unit: unit[2])
    depths = [float(unit[2]) for unit in placed]
    if len(depths) == 1:
        return [Band(depths[0] - 0.5, depths[0] + 0.5, placed[0][1], placed[0][0], model)]
    middles = [(one + other) / 2 for one, other in pairwise(depths)]
    edges = [2 * depths[0] - middles[0], *middles, 2 * depths[-1] - middles[-1]] if depths else []
    return [
        Band(start, end, kind, name, model)
        for (name, kind, _), (start, end) in zip(placed, pairwise(edges), strict=True)
    ]


def _units(rows: pd.DataFrame) -> list[list[Any]]:
    return rows[["unit", "kind", "depth"]].drop_duplicates("depth").values.tolist()


def _outline(bands: Sequence[Band]) -> list[tuple[float, str]]:
    return [(band.start, band.kind) for band in bands]


def shades(result: Result, view: View, theme: Theme) -> Shades | None:
    """Colours of lines, points and bars: kinds have theirs, other names take the models', numbers a ramp whose palest
    part, which would be lost on the paper, is left out."""
    if not view.colour or view.mark == "heatmap":
        return None
    column, found = result.column(view.colour), levels(result, view.colour)
    ramp = RAMPS[theme][2:]
    if column.kind == "quantity":
        return Shades((), ramp, (min(found, default=0.0), max(found, default=1.0)))
    if view.colour == "kind":
        return Shades(tuple(found), tuple(KIND_COLOURS.get(level, "#888888") for level in found))
    if column.kind == "order":
        steps = [blend(ramp, i / max(len(found) - 1, 1)) for i in range(len(found))]
        return Shades(tuple(found), tuple(steps))
    beside = result.about.get("beside", ()) if view.colour == "model" else ()
    place = {level: beside.index(level) if level in beside else i for i, level in enumerate(found)}
    return Shades(
        tuple(found), tuple(MODEL_COLOURS[place[level] % len(MODEL_COLOURS)] for level in found)
    )


def blend(ramp: Sequence[str], where: float) -> str:
    """The colour at `where` (0 to 1) of a ramp, linear between its stops."""
    place = min(max(where, 0.0), 1.0) * (len(ramp) - 1)
    left = min(int(place), len(ramp) - 2)
    pairs = (
        (int(ramp[left][i : i + 2], 16), int(ramp[left + 1][i : i + 2], 16)) for i in (1, 3, 5)
    )
    return "#" + "".join(f"{round(a + (b - a) * (place - left)):02X}" for a, b in pairs)


def dashed(shades: Shades | None, level: Any) -> bool:
    """Whether a line needs dashes, because its colour was already given to another model."""
    return shades is not None and not shades.ends and level in shades.levels[len(MODEL_COLOURS) :]


def value_limits(result: Result, view: View) -> tuple[float, float] | None:
    """Ends of the value axis, one for all panels: what is drawn on it, intervals and references too, and a little air.

    Bars begin at zero. None where the values are names, or there are none.
    """
    if view.limits or view.mark == "tiles":
        return view.limits
    names = [view.colour] if view.mark == "heatmap" else [view.y, view.low, view.high]
    if result.column(names[0]).kind != "quantity":
        return None
    found = np.concatenate([result.table[name].to_numpy(dtype=float) for name in names if name])
    extra = [reference.value for reference in view.references if reference.axis == "y"]
    found = np.concatenate([found, extra, [0.0] if view.mark == "bar" else []])
    found = found[np.isfinite(found) & ((found > 0) | ("y" not in view.log))]
    if not len(found):
        return None
    low, high = float(found.min()), float(found.max())
    if view.mark == "heatmap":
        reach = (
            max(abs(low - view.middle), abs(high - view.middle)) if view.middle is not None else 0
        )
        return (low, high) if view.middle is None else (view.middle - reach, view.middle + reach)
    strips = max((band.lanes for panel in panels(result, view) for band in panel.bands), default=0)
    above = 2.5 if high in extra else 1.0  # room for a reference's words above its line
    below = (
        0.0 if view.mark == "bar" and low == 0 else 1.0 + strips * (strips > 1)
    )  # and for strips of bands
    if "y" in view.log:
        air = (high / low) ** 0.05 if high > low else 1.1
        return low / air**below, high * air**above
    air = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - below * air, high + above * air


def x_limits(panel: Panel, view: View) -> tuple[float, float] | None:
    """Ends of the axis of depth where it has bands: those of the outermost units."""
    if not panel.bands:
        return None
    return min(band.start for band in panel.bands), max(band.end for band in panel.bands)


def spans(result: Result, view: View, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a bar view over a quantity with the two ends of each bar, `start` and `end`: as wide as the closest bars
    are apart, shared out among the colours."""
    places = np.unique(result.table[view.x].to_numpy(dtype=float))
    width = float(np.diff(places).min()) if len(places) > 1 else 1.0
    groups = levels(result, view.colour) if view.colour and view.colour != view.facet else [None]
    each = 0.92 * width / len(groups)
    lane = rows[view.colour].map(groups.index).astype(float) if len(groups) > 1 else 0.0
    start = rows[view.x].astype(float) - 0.46 * width + each * lane
    return rows.assign(start=start, end=start + each)


def groups(
    rows: pd.DataFrame, names: Sequence[str]
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Rows that make one line, by the named columns, in the order in which they first occur."""
    if not names:
        yield {}, rows
        return
    for key, part in rows.groupby(list(names), sort=False, observed=True, dropna=False):
        yield dict(zip(names, key, strict=True)), part


def written(level: Any) -> str:
    """A level beside an axis; two places suffice for a number there."""
    return f"{level:.2f}".rstrip("0").rstrip(".") if isinstance(level, float) else str(level)


def thinned(count: int, room: float, size: float) -> range:
    """Which of `count` labels of `size` to write so that they keep apart in `room`."""
    return range(0, count, max(math.ceil(count * size / room), 1) if room else 1)


class Drawing:
    """What the panels of one figure share, whichever library draws them."""

    def __init__(self, result: Result, view: View, theme: Theme) -> None:
        self.result, self.view, self.theme = result, view, theme
        self.ink, self.paper = PAPERS[theme]
        self.shades = shades(result, view, theme)
        self.limits = value_limits(result, view)
