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
    depth_limits,
    group_rows,
    rows_to_draw,
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
    result = rows_to_draw(result, view)
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
        ax.set_title(drawing.titles[drawing.panels[0].title] or view.title)
        drawing.legend(ax.figure, [ax], outside=False)
        return ax.get_figure(root=True) or plt.figure(), ax


class _PlotDrawing(Drawing):
    """What the panels of one figure share, and one method for each mark."""

    title_limit = 30

    def __init__(self, result: Result, view: View, theme: Theme) -> None:
        super().__init__(result, view, theme)
        self.kinds: set[Kind] = set()
        """Kinds of units drawn as bands, for the legend."""

    def figure(self) -> tuple[Figure, Any]:
        count, square = len(self.panels), self.view.mark == "heatmap" or self.view.square
        across = {1: 1, 2: 2, 4: 2}.get(count, 3)
        down = math.ceil(count / across)
        if count == 1:
            width, height = (5.2, 4.6) if square else (5.8, 3.4)
        else:
            width, height = (3.5, 3.6) if square else (2.7, 2.3)
        extra = 0.9 if square and count > 1 else 0.6
        figure, axes = plt.subplots(
            down, across, figsize=(width * across + extra, height * down + 0.3), squeeze=False,
            layout="constrained", sharey=not square and not self.view.free,
        )  # fmt: skip
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)  # type: ignore[union-attr, call-arg]
        for number, (ax, panel) in enumerate(zip(axes.flat, self.panels, strict=False)):
            self.panel(ax, panel)
            ax.set_title(self.titles[panel.title], fontsize=9)
            if number % across and self.view.mark != "heatmap":
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
        for reference in self.references(panel):
            self.reference(ax, reference, panel)

    def axes(self, ax: Axes, panel: Panel) -> None:
        """Set labels, scales, limits and ticks."""
        view = self.view
        titles = self.result.column(view.x).title, self.value_title
        ax.set(
            **dict(zip(("xlabel", "ylabel"), titles[:: -1 if self.is_turned else 1], strict=True))
        )
        ax.set_facecolor(self.paper)
        ax.grid(axis="x" if self.is_turned else "y")
        for name in view.log:
            ax.set(**{f"{name}scale": "log"})
            axis = ax.xaxis if name == "x" else ax.yaxis
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            limits = self.limits_of(panel)
            if name == "y" and limits and limits[1] < 10 * limits[0]:
                axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            else:
                axis.set_minor_formatter(NullFormatter())
        if limits := self.limits_of(panel):
            (ax.set_xlim if self.is_turned else ax.set_ylim)(*limits)
        if limits := view.limits if view.square else depth_limits(panel):
            ax.set_xlim(*limits)
        if view.square:
            ax.set_aspect("equal")
        if not self.is_quantity(view.x):
            self.name_ticks(ax, panel)

    def name_ticks(self, ax: Axes, panel: Panel) -> None:
        """Write the names along an axis of categories."""
        levels, labels = self.levels(self.view.x, panel), self.labels(self.view.x)
        if self.view.facet and self.view.x == self.view.colour:  # the legend names them
            ax.set_xticks([])
            ax.set_xlabel("")
            return
        if self.is_turned:
            ax.set_yticks(range(len(levels)), [labels[level] for level in levels])
            ax.invert_yaxis()
            return
        shown = spaced_labels(len(levels), 36, 1)
        longest = max((len(labels[level]) for level in levels), default=0)
        turned: Artist = {}
        if longest * len(levels) > 60:
            turned = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(list(shown), [labels[levels[i]] for i in shown], **turned)

    def places(self, panel: Panel, rows: pd.DataFrame) -> np.ndarray:
        """Return where rows lie on the x axis: at their number, or at the index of their name."""
        if self.is_quantity(self.view.x):
            return rows[self.view.x].to_numpy(dtype=float)
        levels = self.levels(self.view.x, panel)
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
            if self.view.filled:
                floor = ax.get_ylim()[0] if "y" in self.view.log else 0.0
                heights = rows[self.view.y].to_numpy(dtype=float)
                ax.fill_between(x, floor, heights, color=colour, alpha=style.FILL, linewidth=0)
            if self.view.low and self.view.square:
                self.whiskers(ax, x, rows, colour)
            elif self.view.low:
                self.ribbon(ax, x, rows, colour)
            dots: Artist = {}
            if len(np.unique(x)) <= 40:
                dots = {"marker": self.marker(level), "markersize": 2.2 if thin else 3.2}
            if self.view.size:
                self.dots(ax, x, rows, level)
                dots = {}
            dash = self.scale.dash_of(level) if self.scale else ()
            ax.plot(
                x, rows[self.view.y], color=colour, linestyle=(0, dash) if dash else "-",
                linewidth=1.0 if thin else 1.6, **dots,
            )  # fmt: skip

    def ribbon(self, ax: Axes, x: np.ndarray, rows: pd.DataFrame, colour: str) -> None:
        """Draw an interval along a line: a pale area with thin edges."""
        low, high = (rows[name].to_numpy(dtype=float) for name in (self.view.low, self.view.high))
        ax.fill_between(x, low, high, color=colour, alpha=style.RIBBON, linewidth=0)
        for edge in () if self.is_crowded else (low, high):
            ax.plot(x, edge, color=colour, linewidth=style.EDGE * 0.8, label="_edge")

    def scatter(self, ax: Axes, panel: Panel) -> None:
        for level, rows in self.by_colour(panel.rows):
            x = self.places(panel, rows)
            self.whiskers(ax, x, rows, self.colour(level))
            self.dots(ax, x, rows, level)

    def dots(self, ax: Axes, x: np.ndarray, rows: pd.DataFrame, level: Any) -> None:
        """Draw points, whose area may show a quantity."""
        sizes: Any = 16
        if self.view.size:
            largest = float(self.result.table[self.view.size].max()) or 1.0
            sizes = 6 + 90 * rows[self.view.size].to_numpy(dtype=float) / largest
        ax.scatter(
            x, rows[self.view.y], s=sizes, color=self.colour(level), marker=self.marker(level),
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
            widths = ((part["end"] - part["start"]) * 0.95).to_numpy(dtype=float)
            draw = ax.barh if self.is_turned else ax.bar
            draw(middle, part[self.view.y], widths, color=self.colour(level))
            for ink, stroke in ((self.paper, 2.6), (self.ink, 1.0)):  # seen on dark bars too
                self.whiskers(ax, middle, part, ink, stroke)

    def whiskers(
        self, ax: Axes, x: np.ndarray, rows: pd.DataFrame, colour: str, stroke: float = 1.0
    ) -> None:
        if self.view.low:
            low, high = rows[self.view.low], rows[self.view.high]
            draw = ax.hlines if self.is_turned else ax.vlines
            draw(x, low, high, color=colour, linewidth=stroke)

    def bands(self, ax: Axes, panel: Panel) -> None:
        """Draw the kinds of units along the axis of depth, a strip for each lane."""
        height = 0.035
        for band in panel.bands:
            self.kinds.add(band.kind)
            foot = (band.lanes - 1 - band.lane) * (height + 0.004)
            colour = KIND_COLOURS[band.kind]
            ax.axvspan(band.start, band.end, foot, foot + height, color=colour, lw=0, zorder=0.5)
        if panel.bands and panel.bands[0].lanes > 1 and self.view.colour == "model":
            lanes: dict[int, list[str | None]] = {}
            for band in panel.bands:
                if band.model not in lanes.setdefault(band.lane, []):
                    lanes[band.lane].append(band.model)
            for lane, models in lanes.items():
                middle = (len(lanes) - 0.5 - lane) * (height + 0.004)
                for number, model in enumerate(models[:4]):
                    ax.plot(
                        1.015 + 0.025 * number, middle, transform=ax.transAxes, marker="s",
                        color=self.colour(model), markersize=4, clip_on=False,
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
            end = self.view.limits[1] if self.view.square and self.view.limits else end
            ax.plot([0, end], [0, value * end], **stroke)
            middle = (0.4 * end, 0.4 * end * value)
            label = {"xy": middle, "xytext": (6, -4), "ha": "left", "va": "top"}
        elif reference.axis == "x" or self.is_turned:
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
        across, up = self.levels(view.x, panel), self.rows_downwards(panel)[::-1]
        cells = np.full((len(up), len(across)), np.nan)
        columns = [across.index(level) for level in panel.rows[view.x]]
        rows = [up.index(level) for level in panel.rows[view.y]]
        cells[rows, columns] = panel.rows[view.colour].to_numpy(dtype=float)
        ax.imshow(
            cells, cmap=self.colour_map(), norm=self.norm(), origin="lower",
            interpolation="nearest", aspect="equal",
        )  # fmt: skip
        for levels, set_ticks, angle in ((across, ax.set_xticks, 90), (up, ax.set_yticks, 0)):
            names = self.labels(view.x if levels is across else view.y)
            shown = spaced_labels(len(levels), 24, 1)
            longest = max((len(names[level]) for level in levels), default=0)
            angle = 0 if longest * len(levels) < 40 else angle
            labels = [names[levels[i]] for i in shown]
            set_ticks(list(shown), labels, fontsize=6.5, rotation=angle)
        if not view.matrix:
            ax.set(xlabel=result.column(view.x).title, ylabel=result.column(view.y).title)
        ax.set_facecolor((self.ink, style.HOLE))
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        if view.matrix and len(up) <= 14:
            self.cell_numbers(ax, cells)

    def cell_numbers(self, ax: Axes, cells: np.ndarray) -> None:
        """Write the numbers of a matrix into its cells, dark on pale and pale on dark ones."""
        low, high = self.limits or (0.0, 1.0)
        for (row, column), value in np.ndenumerate(cells):
            if np.isfinite(value):
                ink = self.paper if value > (low + high) / 2 else self.ink
                ax.text(
                    column, row, f"{value:.2f}", ha="center", va="center", fontsize=6, color=ink
                )

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
            title = self.value_title if view.mark == "heatmap" else None
            bar.set_label(title or self.result.column(view.colour).title)
            bar.outline.set_visible(False)
        entries: list[Any] = []
        named = {view.facet} if view.facet and view.colour == view.x else {view.facet, view.x}
        if self.scale and not self.scale.ends and view.colour not in named:
            names = self.labels(view.colour)
            for level in self.scale.levels:
                marker = "s" if view.mark == "bar" else self.marker(level)
                symbol: Artist = {"linestyle": "none", "marker": marker, "markersize": 5}
                entries.append(
                    Line2D([], [], color=self.colour(level), label=names[level], **symbol)
                )
        present = [kind for kind in KINDS if kind in self.kinds]
        entries += [Patch(color=KIND_COLOURS[kind], lw=0, label=kind) for kind in present]
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
