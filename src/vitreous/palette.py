"""The colours and glyphs of drawings, charts and reports."""

from __future__ import annotations

from typing import Literal

from vitreous.unit_kinds import Kind, Reach

Theme = Literal["light", "dark"]

KIND_COLOURS: dict[Kind, str] = {
    "stem": "#667B45",
    "attention": "#C05517",
    "conv": "#2360DC",
    "mlp": "#B4C0D8",
    "token-mlp": "#9B57C0",
    "mixer": "#6C00F0",
    "pool": "#108268",
    "downsample": "#454C88",
    "head": "#5F4E69",
}
"""One colour per kind of unit. Any two differ by at least 15 in CIELAB, also with protanopia,
deuteranopia or tritanopia. White text is legible on all but the pale mlp, which is pale because it
fills half of a transformer."""

MODEL_COLOURS = (
    "#3355DD",
    "#CC9900",
    "#BB0000",
    "#00AAFF",
    "#774499",
    "#99AA66",
    "#FF66AA",
    "#884444",
)
"""Colours of models, and of categories without a colour, in order. Any two differ by at least 25 in
CIELAB under the same conditions, and all are visible on light and on dark backgrounds."""

RAMPS: dict[Theme, tuple[str, ...]] = {
    "light": ("#F7F4EE", "#F3D3A2", "#E59A6F", "#C25C6B", "#863A7A", "#4A2A72", "#1E1B4B"),
    "dark": ("#1E1C36", "#4A2A72", "#863A7A", "#C25C6B", "#E59A6F", "#F3D3A2", "#FBF3E4"),
}
"""Sequential colours, from the background's lightness away from it."""

OPPOSITES: dict[Theme, tuple[str, ...]] = {
    "light": ("#1B3F94", "#5B86E0", "#B9CDF2", "#F7F7F5", "#F3C7A4", "#D9793A", "#8F3A0A"),
    "dark": ("#B5CBF8", "#5B86E0", "#2B4A8F", "#1C2027", "#8A4318", "#D9793A", "#F6CFAE"),
}
"""Diverging colours; the middle is nearly the background."""

OUTCOME_COLOURS: dict[Theme, dict[str, str]] = {
    "light": {"supported": "#0069A8", "refuted": "#B8400A", "inconclusive": "#6A6F78"},
    "dark": {"supported": "#5CB8FF", "refuted": "#FF9566", "inconclusive": "#AEB5C0"},
}
"""Verdicts on a claim: blue and orange, which colour-blind readers can tell apart, unlike green and
red. All are legible as text on their background."""

PAPERS: dict[Theme, tuple[str, str]] = {
    "light": ("#1B1F24", "#FFFFFF"),
    "dark": ("#E8EAED", "#14171C"),
}
"""Text colour and background of each theme. Greys are the text colour at some opacity."""

REACH_GLYPHS: dict[Reach, str] = {
    "global": "M0 0H8V8H0Z",
    "windowed": "M0 0H8V8H0ZM1 4V7H7V1H4V4Z",
    "reduced": "M0 0H3V3H0ZM5 0H8V3H5ZM0 5H3V8H0ZM5 5H8V8H5Z",
    "class": "M4 0A4 4 0 0 1 4 8A4 4 0 0 1 4 0Z",
    "channel": "M0 0H2V8H0ZM3 0H5V8H3ZM6 0H8V8H6Z",
    "linear": "M6 0H8V2L2 8H0V6Z",
    "unknown": "M0 0H8V8H0ZM1 1V7H7V1Z",
}
"""The reach of an attention unit as an SVG path (even-odd) in a square of 8: everything, a
window, a coarser grid, one token, channels, a kernel; an empty square if unknown."""


def contrast_ratio(one: str, other: str) -> float:
    """Contrast of two colours (`#RRGGBB`) after WCAG 2, from 1 to 21."""

    def luminance(colour: str) -> float:
        channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        red, green, blue = (
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def ink_on(kind: Kind) -> str:
    """The colour of text on this kind's colour: white or near-black, whichever is more legible."""
    return max(("#FFFFFF", "#101214"), key=lambda ink: contrast_ratio(ink, KIND_COLOURS[kind]))
