"""The colours and glyphs of drawings, charts and reports."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from vitreous.unit_kinds import Kind, Reach

Theme = Literal["light", "dark"]

KIND_COLOURS: dict[Kind, str] = {
    "stem": "#657A44",
    "attention": "#C05617",
    "conv": "#3668E6",
    "mlp": "#8494B2",
    "token-mlp": "#AA67D3",
    "mixer": "#8222FF",
    "pool": "#118268",
    "downsample": "#5861A0",
    "head": "#725F7D",
}
"""One colour per kind of unit, with a contrast of at least 3 to white and to dark paper. Any two
differ by at least 15 in CIELAB, also with protanopia, deuteranopia or tritanopia. White or black
text is legible on each."""

MODEL_COLOURS: dict[Theme, tuple[str, ...]] = {
    "light": (
        "#2C51D9", "#BD8C00", "#B50000", "#059BED", "#78459A", "#899B5A", "#F55BA1", "#844241",
        "#4A2A9C", "#5A1450", "#6E0000", "#058278",
    ),
    "dark": (
        "#3757E0", "#CF9D0B", "#C8190E", "#01AAFF", "#834FA5", "#9AAB67", "#FE65A9", "#975150",
        "#D7BEFA", "#B92878", "#FFC8A5", "#78F5E6",
    ),
}  # fmt: skip
"""Colours of models: `model_colours` says which model has which. Any two of the first eight differ
by at least 25 in CIELAB under the same conditions, which no eight colours do that have a contrast
of 3 to both papers; so each paper has its own shades of the same hues. The other four, which only
reports of more than eight models use, differ from each other and from these by at least 18."""
FIRST_COLOURS = 8
"""Number of model colours that are used first."""

MEASURE_COLOURS: dict[Theme, tuple[str, ...]] = {
    "light": ("#175E4E", "#933003", "#9392A5", "#A31BAF", "#5BA601", "#1D273D"),
    "dark": ("#358977", "#BD5405", "#B3B3C9", "#A832C5", "#89D74B", "#5C638D"),
}
"""Colours of categories that are neither models nor kinds, such as top-1 and top-5, in order. They
differ from each other as models do, and from the colours of models."""

DASHES: tuple[tuple[float, ...], ...] = ((), (6, 3), (2, 2.5), (8, 3, 2, 3))
SHAPES = ("circle", "square", "triangle-up", "diamond")
"""Dashes of lines and shapes of points: the first for the first eight models, the second for the
next twelve, and so on."""

RAMPS: dict[Theme, tuple[str, ...]] = {
    "light": ("#F7F4EE", "#F3D3A2", "#E59A6F", "#C25C6B", "#863A7A", "#4A2A72", "#1E1B4B"),
    "dark": ("#1E1C36", "#4A2A72", "#863A7A", "#C25C6B", "#E59A6F", "#F3D3A2", "#FBF3E4"),
}
"""Sequential colours of areas, from the background's lightness away from it."""

LINE_RAMPS: dict[Theme, tuple[str, ...]] = {
    "light": ("#D0713C", "#C05468", "#863A7A", "#4A2A72", "#1E1B4B"),
    "dark": ("#9A4C93", "#C25C6B", "#E59A6F", "#F3D3A2", "#FBF3E4"),
}
"""Sequential colours of lines and points, which have to stand out from the paper."""

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


@dataclass(frozen=True, slots=True)
class ModelStyle:
    """How a model is drawn in every chart of a report."""

    colour: str
    dash: tuple[float, ...] = ()
    """Lengths of dashes and gaps of its lines; empty for a solid line."""
    shape: str = SHAPES[0]
    """The shape of its points, as Vega calls it."""


def model_colours(names: Iterable[str], theme: Theme = "light") -> dict[str, str]:
    """Return the colour (`#RRGGBB`) of each model.

    The colour is a hash of the model's name, so it is the same in every report. If two models of
    one report hash to the same colour, the later one gets its next preference. Up to twelve models
    have different colours.

    Parameters
    ----------
    names
        All models of a report, in its order; also those that a chart does not show.
    theme
        "light" or "dark".

    Examples
    --------
    >>> model_colours(["nano:vit", "nano:resnet"])
    {'nano:vit': '#2C51D9', 'nano:resnet': '#BD8C00'}
    """
    return {name: style.colour for name, style in model_styles(names, theme).items()}


def model_styles(names: Iterable[str], theme: Theme = "light") -> dict[str, ModelStyle]:
    """Return colour, dash and shape of each model; parameters are those of `model_colours`.

    The colours of the models after the eighth are less far apart, and after the twelfth they
    repeat; dashes and shapes also tell these models apart.
    """
    colours = MODEL_COLOURS[theme]
    used: Counter[int] = Counter()
    styles = {}
    for name in dict.fromkeys(names):
        fewest = min(used[i] for i in range(len(colours)))
        chosen = next(i for i in _preferred_colours(name) if used[i] == fewest)
        form = (used[chosen] + (chosen >= FIRST_COLOURS)) % len(DASHES)
        styles[name] = ModelStyle(colours[chosen], DASHES[form], SHAPES[form])
        used[chosen] += 1
    return styles


def _preferred_colours(name: str) -> list[int]:
    """Return the indices of the colours: eight in a pseudo-random order given by the model's name,
    then the others in such an order.

    The salt in front of the name is the first with which the bundled networks prefer seven
    different colours, and none of their checkpoints a colour of the four models of the demo.
    """
    digest = hashlib.sha256(f"15984458:{name}".encode(errors="replace")).digest()
    later = range(FIRST_COLOURS, len(MODEL_COLOURS["light"]))
    orders = (sorted(few, key=lambda i: (digest[i], i)) for few in (range(FIRST_COLOURS), later))
    return [i for order in orders for i in order]


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
    """The text colour on a unit's colour: white or near-black, whichever is more legible."""
    return max(("#FFFFFF", "#101214"), key=lambda ink: contrast_ratio(ink, KIND_COLOURS[kind]))
