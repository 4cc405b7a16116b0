"""Views drawn with matplotlib, for papers and for those who want an `ax` to go on with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

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
from vitreous.palette import KIND_COLOURS, MODEL_COLOURS, OPPOSITES, RAMPS, Theme
from vitreous.results import style
from vitreous.results.montage import montage
from vitreous.results.panels import (
    Drawing,
    Panel,
    blend,
    dashed,
    groups,
    levels,
    panels,
    spans,
    thinned,
    written,
    x_limits,
)
from vitreous.results.result import Result
from vitreous.results.view import Reference, View
from vitreous.unit_kinds import KINDS, Kind

Look = dict[str, Any]
"""Arguments of matplotlib's functions."""


def plot(result: Result, view: View, ax: Axes | None, theme: Theme) -> tuple[Figure, Any]:
    """Draw a view into `ax`, or into a figure of its own, which a view of several panels always has."""
    result = result.narrowed(view)
    with mpl.rc_context(style.matplotlib(theme)):
        if view.mark == "tiles":
            return _tiles(result, view, ax, theme)
        parts = panels(result, view)
        if ax is not None and len(parts) > 1:
            raise VitreousError(
                f"A view of {result.name!r} has {len(parts)} panels and was given one ax; leave ax out, or select "
                f"the rows of one {view.facet} first."
            )
        drawing = _Drawing(result, view, theme)
        if ax is not None:
            drawing.panel(ax, parts[0])
            ax.set_title(parts[0].title or view.title)
            drawing.legend(ax.figure, [ax], outside=False)
            return ax.get_figure(root=True) or plt.figure(), ax
        return drawing.figure(parts)


class _Drawing(Drawing):
    """What the panels of one figure share."""

    def __init__(self, result: Result, view: View, theme: Theme) -> None:
        super().__init__(result, view, theme)
        self.kinds: set[Kind] = set()

    def figure(self, parts: list[Panel]) -> tuple[Figure, Any]:
        across = len(parts) if len(parts) <= 3 else 2 if len(parts) == 4 else 3
        down = math.ceil(len(parts) / across)
        square = self.view.mark == "heatmap"
        one, many = ((5.2, 4.6), (3.5, 3.6)) if square else ((5.8, 3.4), (2.7, 2.3))
        wide, high = one if len(parts) == 1 else many
        size = (wide * across + (0.9 if square and len(parts) > 1 else 0.6), high * down + 0.3)
        fig, axes = plt.subplots(
            down, across, figsize=size, squeeze=False, layout="constrained", sharey=not square
        )
        fig.get_layout_engine().set(w_pad=0.08, h_pad=0.08)  # type: ignore[union-attr, call-arg]
        for i, (ax, part) in enumerate(zip(axes.flat, parts, strict=False)):
            self.panel(ax, part)
            ax.set_title(part.title, fontsize=9)
            if i % across and not square:
                ax.set_ylabel("")
        for ax in axes.flat[len(parts) :]:
            ax.set_axis_off()
        if self.view.title:
            fig.suptitle(self.view.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        self.legend(fig, list(axes.flat), outside=True)
        return fig, axes[0, 0] if len(parts) == 1 and not self.view.facet else axes.ravel()[
            : len(parts)
        ]

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
        ends = x_limits(panel, view)
        if ends:
            ax.set_xlim(*ends)
        if self.result.column(view.x).kind != "quantity":
            shown = levels(self.result, view.x, panel.rows)
            chosen = thinned(len(shown), 36, 1)
            turned = max((len(str(level)) for level in shown), default=0) * len(shown) > 60
            look: Look = (
                {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if turned else {}
            )
            ax.set_xticks(list(chosen), [str(shown[i]) for i in chosen], **look)

    def places(self, panel: Panel, rows: pd.DataFrame) -> np.ndarray:
        """Where rows lie on the x axis: at their quantity, or at the number of their name."""
        if self.result.column(self.view.x).kind == "quantity":
            return rows[self.view.x].to_numpy(dtype=float)
        shown = levels(self.result, self.view.x, panel.rows)
        return np.array([shown.index(level) for level in rows[self.view.x]], dtype=float)

    def colour(self, level: Any) -> str:
        found = self.shades
        if found is None or level is None or level != level:
            return MODEL_COLOURS[0]
        if found.ends:
            low, high = found.ends
            return blend(found.colours, (level - low) / ((high - low) or 1))
        return found.of(level)

    def parts(self, rows: pd.DataFrame, *names: str) -> Iterator[tuple[str, Any, pd.DataFrame]]:
        """Rows of one colour (and of one of what else is named), with it."""
        for key, part in groups(
            rows, list(dict.fromkeys(name for name in (self.view.colour, *names) if name))
        ):
            yield self.colour(key.get(self.view.colour)), key.get(self.view.colour), part

    def line(self, ax: Axes, panel: Panel) -> None:
        thin = bool(self.view.detail)
        for colour, level, part in self.parts(panel.rows, self.view.detail):
            order = np.argsort(self.places(panel, part), kind="stable")
            rows, x = part.iloc[order], self.places(panel, part)[order]
            if self.view.low:
                low, high = (
                    rows[name].to_numpy(dtype=float) for name in (self.view.low, self.view.high)
                )
                ax.fill_between(x, low, high, color=colour, alpha=style.RIBBON, linewidth=0)
            dots: Look = (
                {"marker": "o", "markersize": 2.2 if thin else 3.2}
                if len(np.unique(x)) <= 40
                else {}
            )
            dash = (
                "--"
                if dashed(self.shades, level)
                and self.result.column(self.view.colour).kind == "category"
                else "-"
            )
            ax.plot(
                x,
                rows[self.view.y],
                color=colour,
                linestyle=dash,
                linewidth=1.0 if thin else 1.6,
                **dots,
            )

    def scatter(self, ax: Axes, panel: Panel) -> None:
        for colour, _, rows in self.parts(panel.rows):
            x = self.places(panel, rows)
            self.whiskers(ax, x, rows, colour)
            ax.scatter(x, rows[self.view.y], s=16, color=colour, alpha=0.8, linewidths=0, zorder=3)

    def bar(self, ax: Axes, panel: Panel) -> None:
        rows = panel.rows
        if self.result.column(self.view.x).kind == "quantity":
            rows = spans(self.result, self.view, rows)
        else:
            beside = self.shades and self.view.colour not in (self.view.x, self.view.facet)
            count = len(self.shades.levels) if self.shades and beside else 1
            lane = (
                rows[self.view.colour].map(self.shades.levels.index).astype(float)
                if self.shades and beside
                else 0.0
            )
            start = self.places(panel, rows) - 0.4 + 0.8 / count * lane
            rows = rows.assign(start=start, end=start + 0.8 / count)
        for colour, _, part in self.parts(rows):
            middle = ((part["start"] + part["end"]) / 2).to_numpy(dtype=float)
            ax.bar(
                middle,
                part[self.view.y],
                width=(part["end"] - part["start"]) * 0.95,
                color=colour,
                alpha=0.9,
            )
            self.whiskers(ax, middle, part, self.ink)

    def whiskers(self, ax: Axes, x: np.ndarray, rows: pd.DataFrame, colour: str) -> None:
        if self.view.low:
            ax.vlines(
                x, rows[self.view.low], rows[self.view.high], color=colour, alpha=0.7, linewidth=1
            )

    def bands(self, ax: Axes, panel: Panel) -> None:
        """Kinds of units behind everything; strips at the foot where models differ, in the order of the legend."""
        lane = 0.035
        for band in panel.bands:
            self.kinds.add(band.kind)
            whole = band.lanes == 1
            foot = (band.lanes - 1 - band.lane) * (lane + 0.004)
            low, high, alpha = (0, 1, style.BAND) if whole else (foot, foot + lane, 0.6)
            ax.axvspan(
                band.start,
                band.end,
                low,
                high,
                color=KIND_COLOURS[band.kind],
                alpha=alpha,
                lw=0,
                zorder=0.5,
            )
            if not whole and self.view.colour == "model":
                mark: Look = {
                    "color": self.colour(band.model),
                    "marker": "s",
                    "markersize": 4,
                    "clip_on": False,
                }
                ax.plot(1.015, foot + lane / 2, transform=ax.transAxes, **mark)

    def reference(self, ax: Axes, reference: Reference, panel: Panel) -> None:
        """A dashed line and its words, in a halo of paper that keeps the data off them."""
        look: Look = {"color": self.ink, "alpha": 0.7, "linewidth": 0.9, "linestyle": (0, (4, 3))}
        value = reference.value
        place: Look
        if reference.axis == "slope":
            end = float(panel.rows[self.view.x].max())
            ax.plot([0, end], [0, value * end], **look)
            place = {"xy": (end, value * end), "xytext": (-8, 0), "ha": "right", "va": "center"}
        elif reference.axis == "x":
            ax.axvline(value, **look)
            place = {
                "xy": (value, 1),
                "xytext": (3, -2),
                "xycoords": ax.get_xaxis_transform(),
                "va": "top",
            }
        else:
            ax.axhline(value, **look)
            place = {
                "xy": (1, value),
                "xytext": (-3, 2),
                "xycoords": ax.get_yaxis_transform(),
                "ha": "right",
            }
        halo = [withStroke(linewidth=2.5, foreground=self.paper, alpha=0.8)]
        ax.annotate(
            reference.label, textcoords="offset points", fontsize=8, path_effects=halo, **place
        )

    def heatmap(self, ax: Axes, panel: Panel) -> None:
        view, result = self.view, self.result
        across, up = levels(result, view.x, panel.rows), levels(result, view.y, panel.rows)
        cells = np.full((len(up), len(across)), np.nan)
        columns, rows = (
            [shown.index(level) for level in panel.rows[name]]
            for shown, name in ((across, view.x), (up, view.y))
        )
        cells[rows, columns] = panel.rows[view.colour].to_numpy(dtype=float)
        ax.imshow(
            cells,
            cmap=self.colours(),
            norm=self.norm(),
            origin="lower",
            interpolation="nearest",
            aspect="equal",
        )
        for names, ticks, labels, turn in (
            (across, ax.set_xticks, ax.set_xlabel, 90),
            (up, ax.set_yticks, ax.set_ylabel, 0),
        ):
            chosen = thinned(len(names), 24, 1)
            short = max((len(written(name)) for name in names), default=0) * len(names) < 40
            ticks(
                list(chosen),
                [written(names[i]) for i in chosen],
                fontsize=6.5,
                rotation=0 if short else turn,
            )
            labels(result.column(view.x if names is across else view.y).title)
        ax.set_facecolor((self.ink, style.HOLE))
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)

    def colours(self) -> LinearSegmentedColormap:
        stops = OPPOSITES[self.theme] if self.view.middle is not None else RAMPS[self.theme]
        if self.view.mark != "heatmap" and self.shades:
            stops = self.shades.colours
        return LinearSegmentedColormap.from_list("vitreous", list(stops))

    def norm(self) -> Normalize:
        ends = self.shades.ends if self.shades else self.limits
        return Normalize(*(ends or (0, 1)))

    def legend(self, fig: Any, axes: list[Axes], *, outside: bool) -> None:
        """A bar of colours for numbers; names and kinds beside the panels, so that they cover nothing."""
        view = self.view
        if view.mark == "heatmap" or (self.shades and self.shades.ends):
            bar = fig.colorbar(
                ScalarMappable(self.norm(), self.colours()),
                ax=axes,
                shrink=0.6,
                aspect=22,
                pad=0.02,
            )
            bar.set_label(self.result.column(view.colour).title)
            bar.outline.set_visible(False)
        entries: list[Any] = []
        if self.shades and not self.shades.ends and view.colour not in (view.facet, view.x):
            for level in self.shades.levels:
                look: Look = {
                    "linestyle": "none",
                    "marker": "s" if view.mark == "bar" else "o",
                    "markersize": 5,
                }
                entries.append(Line2D([], [], color=self.colour(level), label=str(level), **look))
        entries += [
            Patch(color=KIND_COLOURS[kind], alpha=2.2 * style.BAND, lw=0, label=kind)
            for kind in KINDS
            if kind in self.kinds
        ]
        if entries and outside:
            fig.legend(handles=entries, loc="outside right upper", handlelength=1.2)
        elif entries:
            axes[0].legend(handles=entries, handlelength=1.2)


def _tiles(result: Result, view: View, ax: Axes | None, theme: Theme) -> tuple[Figure, Any]:
    """Pictures side by side in one axes, in points."""
    names = (
        [str(value) for value in result.table[name]] if name else []
        for name in (view.x, view.facet)
    )
    sheet = montage(result.arrays[view.array], *names)
    if ax is None:
        _, ax = plt.subplots(
            figsize=(sheet.width / 90, (sheet.height + 30) / 90), layout="constrained"
        )
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
