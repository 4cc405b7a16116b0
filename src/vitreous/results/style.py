"""One style for all charts: sizes, greys and fonts, for Vega-Lite and for matplotlib."""

from __future__ import annotations

from typing import Any

from vitreous.palette import PAPERS, Theme

FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', "
    "sans-serif"
)
FAMILIES = (
    "Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans",
    # for file names and classes in other scripts, where these have no character
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Hiragino Sans", "PingFang SC", "Yu Gothic",
    "Microsoft YaHei", "Malgun Gothic", "WenQuanYi Zen Hei", "Droid Sans Fallback",
)  # fmt: skip
SIZES = {"title": 14, "axis": 12, "label": 11}
GRID, AXIS, QUIET = 0.12, 0.45, 0.75
"""Opacity of grid lines, axes and less important text."""
RIBBON = 0.16
"""Opacity of the ribbon of an interval."""
EDGE = 0.6
"""Width of the edges of a ribbon in pixels, which are opaque: the ribbon alone is too pale."""
FILL = 0.28
"""Opacity of the area under a line."""
HOLE = 0.25
"""Opacity of a heat-map's cell without a number: a grey that no ramp has."""
LANE = 8
"""Height in pixels of a strip of units."""


def vega(theme: Theme) -> dict[str, Any]:
    """Return the config of a Vega-Lite chart."""
    ink, paper = PAPERS[theme]
    text = {
        "labelColor": ink,
        "titleColor": ink,
        "labelFontSize": SIZES["label"],
        "titleFontSize": SIZES["axis"],
    }
    return {
        "background": paper,
        "font": FONT,
        "padding": 12,
        "view": {"stroke": None},
        "title": {
            "color": ink, "fontSize": SIZES["title"], "fontWeight": 600, "anchor": "start",
            "offset": 12, "subtitleColor": ink,
        },
        "axis": {
            **text, "titleFontWeight": "normal", "titlePadding": 8, "labelOpacity": QUIET,
            "labelLimit": 160, "gridColor": ink, "gridOpacity": GRID, "domainColor": ink,
            "domainOpacity": AXIS,
            "tickColor": ink, "tickOpacity": AXIS, "tickSize": 4,
        },
        "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
        "axisX": {"grid": False, "labelSeparation": 4},
        "legend": {
            **text, "titleFontWeight": "normal", "labelLimit": 220, "symbolStrokeWidth": 2.5,
            "gradientLength": 140, "gradientThickness": 10, "rowPadding": 4,
        },
        "concat": {"spacing": 24},
    }  # fmt: skip


def matplotlib(theme: Theme) -> Any:
    """Return settings for `matplotlib.rc_context`, which last only while we draw.

    Fonts have their own names: those of a generic family are looked up when the figure is rendered,
    and then the settings are the user's again.
    """
    from matplotlib.font_manager import fontManager

    ink, paper = PAPERS[theme]
    present = set(fontManager.get_font_names())
    return {
        "figure.facecolor": paper, "axes.facecolor": paper,
        "text.color": ink, "axes.labelcolor": ink, "axes.titlecolor": ink,
        "axes.edgecolor": (ink, AXIS), "xtick.color": (ink, AXIS), "ytick.color": (ink, AXIS),
        "xtick.labelcolor": ink, "ytick.labelcolor": ink, "grid.color": ink,
        "grid.alpha": GRID, "grid.linewidth": 0.8, "axes.axisbelow": True,
        "font.family": [name for name in FAMILIES if name in present],
        "font.size": 9, "axes.titlesize": 10, "axes.labelsize": 9, "xtick.labelsize": 8,
        "ytick.labelsize": 8, "legend.fontsize": 8, "legend.frameon": False,
        "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False,
        "axes.spines.left": False, "ytick.major.size": 0, "ytick.minor.size": 0,
        "xtick.major.size": 3, "axes.linewidth": 0.8, "lines.solid_capstyle": "round",
        "figure.dpi": 120,
    }  # fmt: skip
