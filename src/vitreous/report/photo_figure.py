"""The figure of `vitreous.show`: the picture, the map over it, and the prediction as bars."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from vitreous.palette import PAPERS, RAMPS, Theme, model_colours
from vitreous.results import style
from vitreous.results.words import format_interval, format_number

if TYPE_CHECKING:
    from vitreous.measure.photo_map import PhotoMap
    from vitreous.report.show import Shown

TALL, WIDE = 3.1, 5.0
"""Inches that a picture may take, at most."""
LEFT, GAP, BAR, PREDICTION, BARS = 0.15, 0.35, 0.75, 3.0, 2.5
"""Inches of the left margin, between panels, of the colours' legend, and of the prediction."""
HEADING, LINE, SMALL = 0.42, 0.17, 0.13
"""Inches of the figure's title, of a line of a panel's title, and of one of small print."""
GREY = 0.55
"""How bright the grey picture behind a map is."""
MOST = 0.7
"""Opacity of the map where it is brightest."""
CLIPPED = 99.5
"""Percentile at which colours end: single patches attract far more attention than all others."""
FLAT = 4.0
"""Shares begin at the smallest, not at zero, if the largest is less than this times as large."""
NEARLY_UNIFORM = 2.0
"""Shares are called nearly uniform if the largest is less than this times the smallest."""
LEAST_SPAN = 0.02
"""What colours span at least, as a part of the mean share: less is rounding, and stays pale."""
MARK = "#39F3FF"
"""The colour around the patch that looks, as in the attention maps of a report."""
AS_IS: Any = {"parse_math": False}
"""Names of models and classes may hold dollar signs, which would begin a formula."""
LONGEST = 30
"""Characters of a class name."""


def draw_photo(shown: Shown, theme: Theme) -> tuple[Figure, NDArray[Any]]:
    """Draw what `show` found into a new figure; return the figure and its axes."""
    ratio = shown.picture.shape[1] / shown.picture.shape[0]
    width = min(TALL * ratio, WIDE)
    panel = width, width / ratio
    with_bars = len(shown.predictions) > 0
    columns = [panel]
    columns += [panel] if shown.map is not None else []
    columns += [(PREDICTION, BARS)] if with_bars else []
    across = LEFT + sum(each[0] + GAP for each in columns) + (BAR if shown.map is not None else 0)
    title = _title(shown.map, width) if shown.map is not None else ""
    caption = _caption(shown, across)
    top = HEADING + LINE * (title.count("\n") + 1) + 0.08
    down = top + max(each[1] for each in columns) + 0.2 + SMALL * (caption.count("\n") + 1)
    axes: list[Axes] = []
    with mpl.rc_context(style.matplotlib(theme)):
        # made without pyplot, so that notebooks do not draw it twice
        figure = Figure(figsize=(across, down))
        FigureCanvasAgg(figure)
        left = LEFT
        for number, (wide, tall) in enumerate(columns):
            box = left / across, 1 - (top + tall) / down, wide / across, tall / down
            axes.append(figure.add_axes(box))
            left += wide + GAP + (BAR if number == 1 and shown.map is not None else 0)
        _picture(axes[0], shown)
        if shown.map is not None:
            _overlay(axes[1], shown.picture, shown.map)
            axes[1].set_title(title, **AS_IS)
        if with_bars:
            _bars(axes[-1], shown, theme)
        left = LEFT / across
        figure.text(
            left, 1 - 0.1 / down, shown.title, va="top", fontsize=11, weight="bold", **AS_IS
        )
        figure.text(left, 0.08 / down, caption, fontsize=7, alpha=0.75, va="bottom", **AS_IS)
    return figure, np.array(axes)


def _title(found: PhotoMap, width: float) -> str:
    """What a map shows, in lines that fit over it."""
    words = f"{_measure(found)}: {found.says}"
    return "\n".join(textwrap.wrap(words, max(int(13 * (width + BAR)), 24)))


def _picture(ax: Axes, shown: Shown) -> None:
    ax.imshow(shown.picture, interpolation="nearest", aspect="auto")
    ax.set_title(_short(shown.photo) or "Picture", **AS_IS)
    ax.set_axis_off()


def _overlay(ax: Axes, picture: NDArray[np.uint8], found: PhotoMap) -> None:
    """The picture in grey, and the map over it in colours that start transparent."""
    height, width = picture.shape[:2]
    grey = picture.astype(np.float64) @ np.array([0.299, 0.587, 0.114]) / 255
    ax.imshow(GREY * grey, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    scale = colour_limits(found)
    ramp = LinearSegmentedColormap.from_list("attention", RAMPS["dark"])
    share = scale(found.values).filled(0).clip(0, 1)
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    ax.imshow(
        found.values, cmap=ramp, norm=scale, alpha=MOST * share**0.5, extent=extent,
        interpolation="nearest", aspect="auto",
    )  # fmt: skip
    if found.query_cell is not None and found.query_grid is not None:
        down, right = height / found.query_grid[0], width / found.query_grid[1]
        corner = found.query_cell[1] * right - 0.5, found.query_cell[0] * down - 0.5
        ax.add_patch(Rectangle(corner, right, down, fill=False, edgecolor=MARK, linewidth=1.5))
    ax.set_axis_off()
    above = float(found.values.max()) > float(scale.vmax or 0)
    beside = ax.inset_axes((1.03, 0.05, 0.03, 0.9))
    bar = ax.figure.colorbar(
        ScalarMappable(scale, ramp), cax=beside, extend="max" if above else "neither"
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    if found.measure != "feature norm":
        bar.ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")


def colour_limits(found: PhotoMap) -> Normalize:
    """Where colours begin and end.

    Norms begin at the smallest. Shares begin at zero; where all are alike that would be a single
    colour, so they begin at the smallest, too, and the legend and the caption say so.
    """
    values = found.values[np.isfinite(found.values)]
    if not len(values):
        return Normalize(0, 1)
    low, mean = float(values.min()), float(values.mean())
    high = float(np.percentile(values, CLIPPED)) if values.size > 100 else float(values.max())
    if found.measure == "feature norm":
        return Normalize(low, high if high > low else low + 1)
    if high >= FLAT * low:
        return Normalize(0, high if high > 0 else 1)
    if high - low < LEAST_SPAN * mean:
        return Normalize(mean * (1 - LEAST_SPAN / 2), mean * (1 + LEAST_SPAN / 2))
    return Normalize(low, high)


def _measure(found: PhotoMap) -> str:
    return "No attention to show" if found.measure == "feature norm" else "Attention"


def _bars(ax: Axes, shown: Shown, theme: Theme) -> None:
    """The most probable classes, the first on top, each with its name above its bar."""
    ink, _ = PAPERS[theme]
    shares = shown.predictions["probability"].to_list()
    names = [_short(name) for name in shown.predictions["class"]]
    places = np.arange(len(shares))
    ax.barh(places, np.ones(len(shares)), height=0.28, color=ink, alpha=style.GRID)
    ax.barh(places, shares, height=0.28, color=model_colours([shown.model], theme)[shown.model])
    for place, name, share in zip(places, names, shares, strict=True):
        ax.text(0, place - 0.24, name, va="bottom", ha="left", **AS_IS)
        ax.text(1, place - 0.24, _percent(share), va="bottom", ha="right")
    ax.set(xlim=(0, 1), ylim=(len(shares) - 0.5, -0.75))
    ax.set_title("Prediction")
    ax.set_axis_off()


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _percent(share: float) -> str:
    """A probability in percent; what is not quite all or nothing does not look like it."""
    if 0.999 < share < 1:
        return "> 99.9 %"
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def describe_shares(shares: NDArray[np.float64]) -> str:
    """How far the shares of attention differ, in words.

    >>> describe_shares(np.array([[0.24, 0.26], [0.25, 0.25]]))
    'Nearly uniform: 24.0 to 26.0 % a patch; uniform is 25.0 %.'
    """
    low, most, even = (100 * float(each) for each in (shares.min(), shares.max(), shares.mean()))
    if most < NEARLY_UNIFORM * low:
        return (
            f"Nearly uniform: {format_interval(low, most)} % a patch; uniform is "
            f"{format_number(even)} %."
        )
    return (
        f"Largest share of a patch: {format_number(most)} %; uniform would be "
        f"{format_number(even)} %."
    )


def _caption(shown: Shown, width: float) -> str:
    """What else a reader has to know, in small print."""
    lines = [f"Image: {shown.preprocessing}."]
    found = shown.map
    if found is not None and found.measure != "feature norm":
        line = describe_shares(found.values)
        if found.elsewhere > 5e-4:
            line += f" {100 * found.elsewhere:.1f} % rests on tokens without a place."
        lines.append(line)
    lines += [each for each in (shown.enlarged, shown.warning) if each]
    if not len(shown.predictions):
        lines.append("The output is not a score for each class, so there is no prediction.")
    return "\n".join(part for line in lines for part in textwrap.wrap(line, int(20 * width)))
