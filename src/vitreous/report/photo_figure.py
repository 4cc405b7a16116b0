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
"""Maximum height and width of a picture in inches."""
LEFT, GAP, BAR, PREDICTION, BARS = 0.15, 0.35, 0.75, 3.0, 2.5
"""Widths in inches: left margin, gap between panels, colour bar, and prediction, whose last number
is its height."""
HEADING, LINE, SMALL = 0.42, 0.17, 0.13
"""Heights in inches: the figure's title, a line of a panel's title, and a line of the caption."""
GREY = 0.55
"""Brightness of the grey picture behind a map."""
MAX_OPACITY = 0.7
"""Opacity of the map where it is brightest."""
CLIPPED = 99.5
"""Percentile at which the colour scale ends: single patches get far more attention than others."""
FLAT_RATIO = 4.0
"""Ratio of largest to smallest share below which colours begin at the smallest instead of zero."""
NEARLY_UNIFORM = 2.0
"""Ratio of largest to smallest share below which shares are called nearly uniform."""
MIN_SPAN = 0.02
"""Minimum span of the colours, relative to the mean share: smaller differences are rounding."""
MARK = "#39F3FF"
"""Colour of the frame around the query, as in the attention maps of a report."""
PLAIN_TEXT: Any = {"parse_math": False}
"""Matplotlib's option for names, in which a dollar sign would begin a formula."""
MAX_NAME = 30
"""Maximum number of characters of a class name."""


def draw_photo(shown: Shown, theme: Theme) -> tuple[Figure, NDArray[Any]]:
    """Draw the result of `show` into a new figure; return the figure and its axes."""
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
            axes[1].set_title(title, **PLAIN_TEXT)
        if with_bars:
            _bars(axes[-1], shown, theme)
        left = LEFT / across
        figure.text(
            left, 1 - 0.1 / down, shown.title, va="top", fontsize=11, weight="bold", **PLAIN_TEXT
        )
        figure.text(left, 0.08 / down, caption, fontsize=7, alpha=0.75, va="bottom", **PLAIN_TEXT)
    return figure, np.array(axes)


def _title(found: PhotoMap, width: float) -> str:
    """The title of a map, wrapped to its width."""
    words = f"{_measure(found)}: {found.says}"
    return "\n".join(textwrap.wrap(words, max(int(13 * (width + BAR)), 24)))


def _picture(ax: Axes, shown: Shown) -> None:
    ax.imshow(shown.picture, interpolation="nearest", aspect="auto")
    ax.set_title(_short(shown.photo) or "Picture", **PLAIN_TEXT)
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
        found.values, cmap=ramp, norm=scale, alpha=MAX_OPACITY * share**0.5, extent=extent,
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
    """The range of the colour scale.

    For norms it begins at the smallest value. For shares it begins at zero, unless they are so
    similar that this would give a single colour; then it begins at the smallest share, which the
    legend and the caption say.
    """
    values = found.values[np.isfinite(found.values)]
    if not len(values):
        return Normalize(0, 1)
    low, mean = float(values.min()), float(values.mean())
    high = float(np.percentile(values, CLIPPED)) if values.size > 100 else float(values.max())
    if found.measure == "feature norm":
        return Normalize(low, high if high > low else low + 1)
    if high >= FLAT_RATIO * low:
        return Normalize(0, high if high > 0 else 1)
    if high - low < MIN_SPAN * mean:
        return Normalize(mean * (1 - MIN_SPAN / 2), mean * (1 + MIN_SPAN / 2))
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
        ax.text(0, place - 0.24, name, va="bottom", ha="left", **PLAIN_TEXT)
        ax.text(1, place - 0.24, _percent(share), va="bottom", ha="right")
    ax.set(xlim=(0, 1), ylim=(len(shares) - 0.5, -0.75))
    ax.set_title("Prediction")
    ax.set_axis_off()


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"


def _percent(share: float) -> str:
    """A probability in percent; one that is nearly 0 or 1 is not rounded to 0 or 100 %."""
    if 0.999 < share < 1:
        return "> 99.9 %"
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def describe_shares(shares: NDArray[np.float64]) -> str:
    """A sentence on how much the shares of attention differ.

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
    """The caption: preprocessing, range of the shares, and warnings."""
    lines = [f"Image: {shown.preprocessing}."]
    shown_map = shown.map
    if shown_map is not None and shown_map.measure != "feature norm":
        line = describe_shares(shown_map.values)
        if shown_map.elsewhere > 5e-4:
            line += f" {100 * shown_map.elsewhere:.1f} % rests on tokens without a place."
        lines.append(line)
    lines += [each for each in (shown.enlarged, shown.warning) if each]
    if not len(shown.predictions):
        lines.append("The output is not a score for each class, so there is no prediction.")
    return "\n".join(part for line in lines for part in textwrap.wrap(line, int(20 * width)))
