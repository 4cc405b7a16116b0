"""One effect of a claim, as a line of text and as a small picture with the null and the paper's
number."""

from __future__ import annotations

from math import isfinite

from vitreous.claims.effects import Effect
from vitreous.results.words import escape, format_estimate, format_number

WIDTH, HEIGHT, EDGE = 300, 66, 10
"""Size of the picture in pixels, and its margin."""
AXIS, ABOVE, BELOW = 34, 14, 58
"""Vertical positions of the effect, of the text above it, and of the text below it."""
MAX_DISTANCE = 3
"""If the paper's number is farther away than this many widths of everything else, it is drawn as an
arrow at the edge."""
LETTER = 6.4
"""Approximate width of a letter in pixels."""


def format_given(value: float) -> str:
    """Format a number from a paper or a criterion as it is written there: 2, not 2.00."""
    return f"{value:,.4g}".replace("-", "−")


def measured(effect: Effect) -> str:
    """The number and its interval; an exact number has none."""
    interval = effect.measured
    if interval.low == interval.value == interval.high:
        return format_number(interval.value)
    return format_estimate(interval.value, interval.low, interval.high)


def in_words(effect: Effect, mark: str = "{}") -> str:
    """The effect as a line: `error of ViT minus error of ResNet: 4.2 (3.1 to 5.4); paper 16.2`.

    `mark` goes around the number.
    """
    text = f"{escape(effect.label)}: {mark.format(measured(effect))}"
    if effect.paper is not None:
        text += f"; paper {format_given(effect.paper)}"
    if effect.share_of_paper is not None:
        text += f" ({effect.share_of_paper:.0%} of its effect)"
    if effect.control is not None and isfinite(effect.control.value):
        text += f"; untrained {format_number(effect.control.value)}"
    added = what_training_adds(effect)
    return f"{text}; {added}" if added else text


def what_training_adds(effect: Effect) -> str:
    """`training adds 0.17 (0.05 to 0.30)`: what is judged if untrained networks show a part of the
    effect. Empty without an untrained control."""
    learned = effect.learned
    if learned is None or not isfinite(learned.value) or effect.bound is not None:
        return ""
    number = format_estimate(learned.value, learned.low, learned.high)
    return f"training multiplies it by {number}" if effect.ratio else f"training adds {number}"


def picture(effect: Effect) -> str:
    """SVG of the effect's value and interval, with the null, the paper's number, and the shaded
    range that counts as reproduced."""
    if effect.direction is None or not isfinite(effect.measured.value):
        return ""
    scale = _Scale(effect)
    at = scale.place
    if effect.direction == "within":
        assert effect.bound is not None
        start, end = at(effect.null - effect.bound), at(effect.null + effect.bound)
    else:
        line = at(effect.threshold)
        start, end = (line, WIDTH - EDGE) if effect.sign > 0 else (EDGE, line)
    low, high = map(at, effect.measured.ends)
    outcome = (effect.outcome or "noted").replace(" ", "-")
    lines = [
        f'<svg class="effect outcome-{outcome}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{in_words(effect)}">',
        f'<rect class="counts" x="{start:.1f}" y="20" width="{max(end - start, 0):.1f}" '
        'height="28"/>',
        f'<path class="axis" d="M{EDGE} {AXIS}H{WIDTH - EDGE}"/>',
        *_null(effect, scale),
        *_paper(effect, scale),
        f'<path class="interval" d="M{low:.1f} {AXIS}H{high:.1f}M{low:.1f} {AXIS - 5}v10'
        f'M{high:.1f} {AXIS - 5}v10"/>',
        f'<circle class="point" cx="{at(effect.measured.value):.1f}" cy="{AXIS}" r="5"/>',
        "</svg>",
    ]
    return "".join(lines)


class _Scale:
    """Converts numbers to horizontal positions in the picture."""

    def __init__(self, effect: Effect) -> None:
        interval = effect.measured
        shown = [interval.value, interval.low, interval.high, effect.null, effect.threshold]
        if effect.direction == "within" and effect.bound is not None:
            shown += [effect.null - effect.bound, effect.null + effect.bound]
        known = [each for each in shown if isfinite(each)]
        low, high = min(known), max(known)
        width = high - low or abs(high) or 1.0
        paper = effect.paper
        reach = MAX_DISTANCE * width
        self.paper_is_near = paper is not None and low - reach <= paper <= high + reach
        if paper is not None and self.paper_is_near:
            low, high = min(low, paper), max(high, paper)
        width = high - low or abs(high) or 1.0
        self.low, self.high = low - 0.12 * width, high + 0.12 * width

    def place(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return EDGE + min(max(share, 0.0), 1.0) * (WIDTH - 2 * EDGE)


def _null(effect: Effect, scale: _Scale) -> list[str]:
    """A dotted line where there would be no effect."""
    here = scale.place(effect.null)
    return [
        f'<path class="nothing" d="M{here:.1f} 20V48"/>',
        _text(here, BELOW, f"no effect {format_given(effect.null)}"),
    ]


def _paper(effect: Effect, scale: _Scale) -> list[str]:
    """A diamond at the paper's number, or an arrow at the edge if that is far away."""
    if effect.paper is None:
        return []
    label = f"paper {format_given(effect.paper)}"
    if scale.paper_is_near:
        x = scale.place(effect.paper)
        diamond = f'<path class="reported" d="M{x:.1f} {AXIS - 6}l6 6l-6 6l-6 -6z"/>'
        return [diamond, _text(x, ABOVE, label)]
    right = effect.paper > scale.high
    x, way = (WIDTH - EDGE, -7) if right else (EDGE, 7)
    arrow = f'<path class="reported" d="M{x} {AXIS}l{way} -5v10z"/>'
    return [arrow, _text(x, ABOVE, f"{label} →" if right else f"← {label}")]


def _text(x: float, y: int, text: str) -> str:
    """A text that is centred at x, or moved so that it stays inside the picture."""
    half = LETTER * len(text) / 2
    x = min(max(x, half + 1), WIDTH - half - 1)
    return f'<text class="beside" x="{x:.1f}" y="{y}" text-anchor="middle">{escape(text)}</text>'
