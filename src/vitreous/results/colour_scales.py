"""Colours of lines, points and bars: which level of a column has which colour, dash and shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from vitreous.palette import (
    DASHES,
    KIND_COLOURS,
    LINE_RAMPS,
    MEASURE_COLOURS,
    SHAPES,
    Theme,
    model_styles,
)
from vitreous.results.view import View
from vitreous.unit_kinds import KINDS

if TYPE_CHECKING:
    from vitreous.results.result import Result


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
