"""Views drawn with matplotlib, for papers and for further work on an `ax`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, NullFormatter

from vitreous.errors import VitreousError
from vitreous.palette import KIND_COLOURS, MEASURE_COLOURS, OPPOSITES, RAMPS, Theme
from vitreous.results import style
from vitreous.results.montage import label_texts, montage
from vitreous.results.panels import (
    Drawing,
    Panel,
    bar_spans,
    column_levels,
    depth_limits,
    group_rows,
    level_text,
    spaced_labels,
)
from vitreous.results.view import Reference, View
from vitreous.unit_kinds import KINDS, Kind

if TYPE_CHECKING:
    from vitreous.results.result import Result

Artist = dict[str, Any]
"""Arguments of matplotlib's functions."""
MARKERS = {"circle": "o", "square": "s", "triangle-up": "^", "diamond": "D"}
"""Vega's shapes as matplotlib calls them."""


def plot(result: Result, view: View, ax: Axes | None, theme: Theme) -> tuple[Figure, Any]:
    """Draw a view into `ax`, or into a new figure; return the figure and its axes."""
    result = result.rows_of(view)
    with mpl.rc_context(style.matplotlib(theme)):
        if view.mark == "tiles":
            return _tiles(result, view, ax)
        drawing = _PlotDrawing(result, view, theme)
        if ax is None:
            return drawing.figure()
        if len(drawing.panels) > 1:
            raise VitreousError(
                f"A view of {result.name!r} has {len(drawing.panels)} panels and was given one ax; "
                f"leave ax out, or select the rows of one {view.facet} first."
            )
        drawing.panel(ax, drawing.panels[0])
        ax.set_title(drawing.panels[0].title or view.title)
        drawing.legend(ax.figure, [ax], outside=False)
        return ax.get_figure(root=True) or plt.figure(), ax


class _PlotDrawing(Drawing):
    """What the panels of one figure share, and one method for each mark."""

    def __init__(self, result: Result, view: View, theme: Theme) -> None:
        super().__init__(result, view, theme)
        self.kinds: set[Kind] = set()
        """Kinds of units drawn as bands, for the legend."""

    def figure(self) -> tuple[Figure, Any]:
        count, square = len(self.panels), self.view.mark == "heatmap"
        across = {1: 1, 2: 2, 4: 2}.get(count, 3)
        down = math.ceil(count / across)
        if count == 1:
            width, height = (5.2, 4.6) if square else (5.8, 3.4)
        else:
            width, height = (3.5, 3.6) if square else (2.7, 2.3)
        extra = 0.9 if square and count > 1 else 0.6
        figure, axes = plt.subplots(
            down, across, figsize=(width * across + extra, height * down + 0.3), squeeze=False,
            layout="constrained", sharey=not square,
        )  # fmt: skip
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)  # type: ignore[union-attr, call-arg]
        for number, (ax, panel) in enumerate(zip(axes.flat, self.panels, strict=False)):
            self.panel(ax, panel)
            ax.set_title(panel.title, fontsize=9)
            if number % across and not square:
                ax.set_ylabel("")
        for ax in axes.flat[count:]:
            ax.set_axis_off()
        if self.view.title:
            figure.suptitle(self.view.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        self.legend(figure, list(axes.flat), outside=True)
        if count == 1 and not self.view.facet:
            return figure, axes[0, 0]
        return figure, axes.ravel()[:count]

    def panel(self, ax: Axes, panel: Panel) -> None:
        if self.view.mark == "heatmap":
            self.heatmap(ax, panel)
            return
        self.axes(ax, panel)
        self.bands(ax, panel)
        {"line": self.line, "scatter": self.scatter, "bar": self.bar}[self.view.mark](ax, panel)
        for reference in self.view.references:
            self.reference(ax, reference, panel)

    def axes(self, ax: Axes, panel: Panel) -> None:
        """Set labels, scales, limits and ticks."""
        view = self.view
        ax.set_xlabel(self.result.column(view.x).title)
        ax.set_ylabel(self.result.column(view.y).title)
        ax.set_facecolor(self.paper)
        ax.grid(axis="y")
        for name in view.log:
            ax.set(**{f"{name}scale": "log"})
            axis = ax.xaxis if name == "x" else ax.yaxis
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            if name == "y" and self.limits and self.limits[1] < 10 * self.limits[0]:
                axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            else:
                axis.set_minor_formatter(NullFormatter())
        if self.limits:
            ax.set_ylim(*self.limits)
        if limits := depth_limits(panel):
            ax.set_xlim(*limits)
        if not self.is_quantity(view.x):
            levels = column_levels(self.result, view.x, panel.rows)
            shown = spaced_labels(len(levels), 36, 1)
            longest = max((len(str(level)) for level in levels), default=0)
            turned: Artist = {}
            if longest * len(levels) > 60:
                turned = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
            ax.set_xticks(list(shown), [str(levels[i]) for i in shown], **turned)

    def places(self, panel: Panel, rows: pd.DataFrame) -> np.ndarray:
        """Return where rows lie on the x axis: at their number, or at the index of their name."""
        if self.is_quantity(self.view.x):
            return rows[self.view.x].to_numpy(dtype=float)
        levels = column_levels(self.result, self.view.x, panel.rows)
        return np.array([levels.index(level) for level in rows[self.view.x]], dtype=float)

    def colour(self, level: Any) -> str:
        if self.scale is None or level is None or level != level:
            return MEASURE_COLOURS[self.theme][0]
        return self.scale.colour_of(level)

    def marker(self, level: Any) -> str:
        return MARKERS[self.scale.shape_of(level) if self.scale else "circle"]

    def by_colour(self, rows: pd.DataFrame, detail: str = "") -> Iterator[tuple[Any, pd.DataFrame]]:
        """Yield a level of the colour's column and its rows, also split by the column `detail`."""
        names = dict.fromkeys(name for name in (self.view.colour, detail) if name)
        for key, part in group_rows(rows, list(names)):
            yield key.get(self.view.colour), part

    def line(self, ax: Axes, panel: Panel) -> None:
        thin = bool(self.view.detail)
        for level, part in self.by_colour(panel.rows, self.view.detail):
            colour = self.colour(level)
            order = np.argsort(self.places(panel, part), kind="stable")
            rows, x = part.iloc[order], self.places(panel, part)[order]
            if self.view.low:
                low, high = (
                    rows[name].to_numpy(dtype=float) for name in (self.view.low, self.view.high)
                )
                ax.fill_between(x, low, high, color=colour, alpha=style.RIBBON, linewidth=0)
            dots: Artist = {}
            if len(np.unique(x)) <= 40:
                dots = {"marker": self.marker(level), "markersize": 2.2 if thin else 3.2}
            dash = self.scale.dash_of(level) if self.scale else ()
            ax.plot(
                x, rows[self.view.y], color=colour, linestyle=(0, dash) if dash else "-",
                linewidth=1.0 if thin else 1.6, **dots,
            )  # fmt: skip

    def scatter(self, ax: Axes, panel: Panel) -> None:
        for level, rows in self.by_colour(panel.rows):
            x, colour = self.places(panel, rows), self.colour(level)
            self.whiskers(ax, x, rows, colour)
            ax.scatter(
                x, rows[self.view.y], s=16, color=colour, marker=self.marker(level), alpha=0.8,
                linewidths=0, zorder=3,
            )  # fmt: skip

    def bar(self, ax: Axes, panel: Panel) -> None:
        rows = panel.rows
        if self.is_quantity(self.view.x):
            rows = bar_spans(self.result, self.view, rows)
        else:
            width: float = 0.8
            number: Any = 0.0
            if self.scale and self.view.colour not in (self.view.x, self.view.facet):
                width = 0.8 / len(self.scale.levels)
                number = rows[self.view.colour].map(self.scale.levels.index).astype(float)
            start = self.places(panel, rows) - 0.4 + width * number
            rows = rows.assign(start=start, end=start + width)
        for level, part in self.by_colour(rows):
            middle = ((part["start"] + part["end"]) / 2).to_numpy(dtype=float)
            widths = (part["end"] - part["start"]) * 0.95
            ax.bar(middle, part[self.view.y], width=widths, color=self.colour(level), alpha=0.9)
            self.whiskers(ax, middle, part, self.ink)

    def whiskers(self, ax: Axes, x: np.ndarray, rows: pd.DataFrame, colour: str) -> None:
        if self.view.low:
            low, high = rows[self.view.low], rows[self.view.high]
            ax.vlines(x, low, high, color=colour, alpha=0.7, linewidth=1)

    def bands(self, ax: Axes, panel: Panel) -> None:
        """Draw the kinds of units behind everything, in strips at the bottom if models differ."""
        height = 0.035
        for band in panel.bands:
            self.kinds.add(band.kind)
            foot = (band.lanes - 1 - band.lane) * (height + 0.004)
            low, high, alpha = 0.0, 1.0, style.BAND
            if band.lanes > 1:
                low, high, alpha = foot, foot + height, 0.6
            colour = KIND_COLOURS[band.kind]
            ax.axvspan(band.start, band.end, low, high, color=colour, alpha=alpha, lw=0, zorder=0.5)
            if band.lanes > 1 and self.view.colour == "model":
                ax.plot(
                    1.015, foot + height / 2, transform=ax.transAxes, color=self.colour(band.model),
                    marker="s", markersize=4, clip_on=False,
                )  # fmt: skip

    def reference(self, ax: Axes, reference: Reference, panel: Panel) -> None:
        """Draw a dashed line and its label, with a halo so that data do not cover it."""
        stroke: Artist = {
            "color": self.ink,
            "alpha": 0.7,
            "linewidth": 0.9,
            "linestyle": (0, (4, 3)),
        }
        value = reference.value
        label: Artist
        if reference.axis == "slope":
            end = float(panel.rows[self.view.x].max())
            ax.plot([0, end], [0, value * end], **stroke)
            label = {"xy": (end, value * end), "xytext": (-8, 0), "ha": "right", "va": "center"}
        elif reference.axis == "x":
            ax.axvline(value, **stroke)
            across = ax.get_xaxis_transform()
            label = {"xy": (value, 1), "xytext": (3, -2), "xycoords": across, "va": "top"}
        else:
            ax.axhline(value, **stroke)
            across = ax.get_yaxis_transform()
            label = {"xy": (1, value), "xytext": (-3, 2), "xycoords": across, "ha": "right"}
        halo = [withStroke(linewidth=2.5, foreground=self.paper, alpha=0.8)]
        ax.annotate(
            reference.label, textcoords="offset points", fontsize=8, path_effects=halo, **label
        )

    def heatmap(self, ax: Axes, panel: Panel) -> None:
        view, result = self.view, self.result
        across, up = (column_levels(result, name, panel.rows) for name in (view.x, view.y))
        cells = np.full((len(up), len(across)), np.nan)
        columns = [across.index(level) for level in panel.rows[view.x]]
        rows = [up.index(level) for level in panel.rows[view.y]]
        cells[rows, columns] = panel.rows[view.colour].to_numpy(dtype=float)
        ax.imshow(
            cells, cmap=self.colour_map(), norm=self.norm(), origin="lower",
            interpolation="nearest", aspect="equal",
        )  # fmt: skip
        for levels, set_ticks, angle in ((across, ax.set_xticks, 90), (up, ax.set_yticks, 0)):
            shown = spaced_labels(len(levels), 24, 1)
            longest = max((len(level_text(level)) for level in levels), default=0)
            angle = 0 if longest * len(levels) < 40 else angle
            labels = [level_text(levels[i]) for i in shown]
            set_ticks(list(shown), labels, fontsize=6.5, rotation=angle)
        ax.set(xlabel=result.column(view.x).title, ylabel=result.column(view.y).title)
        ax.set_facecolor((self.ink, style.HOLE))
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)

    def colour_map(self) -> LinearSegmentedColormap:
        stops = OPPOSITES[self.theme] if self.view.middle is not None else RAMPS[self.theme]
        if self.view.mark != "heatmap" and self.scale:
            stops = self.scale.colours
        return LinearSegmentedColormap.from_list("vitreous", list(stops))

    def norm(self) -> Normalize:
        ends = self.scale.ends if self.scale else self.limits
        return Normalize(*(ends or (0, 1)))

    def legend(self, figure: Any, axes: list[Axes], *, outside: bool) -> None:
        """Draw a colour bar for numbers, and a legend of names and kinds."""
        view = self.view
        if view.mark == "heatmap" or (self.scale and self.scale.ends):
            colours = ScalarMappable(self.norm(), self.colour_map())
            bar = figure.colorbar(colours, ax=axes, shrink=0.6, aspect=22, pad=0.02)
            bar.set_label(self.result.column(view.colour).title)
            bar.outline.set_visible(False)
        entries: list[Any] = []
        if self.scale and not self.scale.ends and view.colour not in (view.facet, view.x):
            for level in self.scale.levels:
                marker = "s" if view.mark == "bar" else self.marker(level)
                symbol: Artist = {"linestyle": "none", "marker": marker, "markersize": 5}
                entries.append(Line2D([], [], color=self.colour(level), label=str(level), **symbol))
        for kind in KINDS:
            if kind in self.kinds:
                colour, alpha = KIND_COLOURS[kind], 2.2 * style.BAND
                entries.append(Patch(color=colour, alpha=alpha, lw=0, label=kind))
        if entries and outside:
            figure.legend(handles=entries, loc="outside right upper", handlelength=1.2)
        elif entries:
            axes[0].legend(handles=entries, handlelength=1.2)


def _tiles(result: Result, view: View, ax: Axes | None) -> tuple[Figure, Any]:
    """Draw images side by side in one axes, in points."""
    sheet = montage(result.arrays[view.array], *label_texts(result, view))
    if ax is None:
        size = (sheet.width / 90, (sheet.height + 30) / 90)
        _, ax = plt.subplots(figsize=size, layout="constrained")
    for picture, (x, y) in zip(sheet.pictures, sheet.corners, strict=True):
        extent = (x, x + sheet.tile[0], y + sheet.tile[1], y)
        ax.imshow(picture, extent=extent, interpolation="nearest", cmap="gray", vmin=0, vmax=255)
    for label, (x, y) in zip(sheet.labels, sheet.corners, strict=False):
        ax.text(x, y - 3, label, fontsize=7, va="bottom", alpha=style.QUIET)
    for label, y in sheet.headings:
        ax.text(0, y - 3, label, fontsize=9, va="bottom")
    ax.set(xlim=(0, sheet.width), ylim=(sheet.height, 0), title=view.title)
    ax.set_axis_off()
    return ax.get_figure(root=True) or plt.figure(), ax
