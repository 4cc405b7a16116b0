"""One effect of a claim: a sentence with its numbers, and a small figure with its threshold."""

from __future__ import annotations

from math import isfinite, isnan

from vitreous.claims.claim import Part
from vitreous.results.words import escape, format_estimate, format_number

WIDTH, HEIGHT, EDGE = 300, 66, 10
"""Size of the figure, and the margin at its sides."""
AXIS, ABOVE, BELOW = 34, 14, 58
"""The y of the effect, and of the text above and below it."""
FAR = 3
"""The paper's number is drawn up to this many widths of the rest away; beyond, it is an arrow."""
LETTER = 6.4
"""Approximate width of a letter."""


def exact_number(value: float) -> str:
    """Format a number that is exact, as a threshold: 2, not 2.00."""
    return f"{value:,.6g}".replace("-", "−")


def threshold_words(part: Part) -> str:
    """Return the threshold in words, as `at least 2`; "" if there is none."""
    if part.threshold is None:
        return ""
    return f"{part.asks} {exact_number(part.threshold)}"


def effect_text(part: Part) -> str:
    """Return the effect with its interval, or alone if it is exact."""
    exact = part.low == part.effect == part.high
    return (
        format_number(part.effect) if exact else format_estimate(part.effect, part.low, part.high)
    )


def effect_sentence(part: Part, mark: str = "{}") -> str:
    """Return the effect with its threshold and the paper's number.

    For example `error of ViT minus error of ResNet: 4.2 (3.1 to 5.4), at least 2 wanted; paper
    16.2`; `mark` is a format for the effect.
    """
    sentence = f"{escape(part.says)}: {mark.format(effect_text(part))}"
    if part.threshold is not None:
        sentence += f", {threshold_words(part)} wanted"
    if part.paper is not None:
        sentence += f"; paper {exact_number(part.paper)}"
    return sentence


def effect_svg(part: Part) -> str:
    """Return a figure of the effect as SVG; "" if it has no threshold.

    It shows the effect with its interval, the threshold with the side that counts shaded, the null
    and the paper's number.
    """
    if part.threshold is None or not isfinite(part.effect):
        return ""
    scale = _Scale(part)
    at = scale.place
    line = at(part.threshold)
    start, end = (line, WIDTH - EDGE) if part.side == "at least" else (EDGE, line)
    low, high = (at(part.effect if isnan(each) else each) for each in (part.low, part.high))
    lines = [
        f'<svg class="effect outcome-{part.outcome}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{effect_sentence(part)}">',
        f'<rect class="counts" x="{start:.1f}" y="20" width="{max(end - start, 0):.1f}" '
        'height="28"/>',
        f'<path class="axis" d="M{EDGE} {AXIS}H{WIDTH - EDGE}"/>',
        f'<path class="threshold" d="M{line:.1f} 18V48"/>',
        _words(line, BELOW, threshold_sign(part) + " " + exact_number(part.threshold), "asked"),
        *_null_line(part, scale),
        *_paper(part, scale),
        f'<path class="interval" d="M{low:.1f} {AXIS}H{high:.1f}M{low:.1f} {AXIS - 5}v10'
        f'M{high:.1f} {AXIS - 5}v10"/>',
        f'<circle class="point" cx="{at(part.effect):.1f}" cy="{AXIS}" r="5"/>',
        "</svg>",
    ]
    return "".join(lines)


class _Scale:
    """The horizontal axis of the figure."""

    def __init__(self, part: Part) -> None:
        assert part.threshold is not None
        values = [
            part.effect,
            part.low,
            part.high,
            part.threshold,
            *([] if part.versus is None else [part.versus]),
        ]
        known = [each for each in values if isfinite(each)]
        low, high = min(known), max(known)
        width = high - low or abs(high) or 1.0
        self.paper_is_near = (
            part.paper is not None and low - FAR * width <= part.paper <= high + FAR * width
        )
        if part.paper is not None and self.paper_is_near:
            low, high = min(low, part.paper), max(high, part.paper)
        width = high - low or abs(high) or 1.0
        ends = (
            (0.08, 0.2) if part.side == "at least" else (0.2, 0.08)
        )  # the side that counts is to be seen
        self.low, self.high = low - ends[0] * width, high + ends[1] * width

    def place(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return EDGE + min(max(share, 0.0), 1.0) * (WIDTH - 2 * EDGE)


def _null_line(part: Part, scale: _Scale) -> list[str]:
    """Return a line at the null if it is not the threshold, and its number if there is room."""
    if part.versus is None or part.versus == part.threshold:
        return []
    assert part.threshold is not None
    here, line = scale.place(part.versus), scale.place(part.threshold)
    room = abs(here - line) > LETTER * (len(exact_number(part.threshold)) + 6) / 2 + 12
    return [
        f'<path class="nothing" d="M{here:.1f} 24V44"/>',
        _words(here, BELOW, exact_number(part.versus)) if room else "",
    ]


def _paper(part: Part, scale: _Scale) -> list[str]:
    """Return a diamond at the paper's number, or an arrow at the edge if it is far away."""
    if part.paper is None:
        return []
    said = f"paper {exact_number(part.paper)}"
    if scale.paper_is_near:
        x = scale.place(part.paper)
        return [
            f'<path class="reported" d="M{x:.1f} {AXIS - 6}l6 6l-6 6l-6 -6z"/>',
            _words(x, ABOVE, said),
        ]
    right = part.paper > scale.high
    x, way = (WIDTH - EDGE, -7) if right else (EDGE, 7)
    arrow = f'<path class="reported" d="M{x} {AXIS}l{way} -5v10z"/>'
    return [arrow, _words(x, ABOVE, f"{said} →" if right else f"← {said}")]


def _words(x: float, y: int, said: str, kind: str = "beside") -> str:
    """Return text centred at x, or moved inside the figure."""
    half = LETTER * len(said) / 2
    x = min(max(x, half + 1), WIDTH - half - 1)
    return f'<text class="{kind}" x="{x:.1f}" y="{y}" text-anchor="middle">{escape(said)}</text>'


def threshold_sign(part: Part) -> str:
    """Return how an effect has to compare with its threshold: ≥, >, ≤ or <."""
    return {"at least": "≥>", "at most": "≤<"}[part.side][part.strict]
