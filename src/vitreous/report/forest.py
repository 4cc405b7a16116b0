"""The forest plot: the main effects of all claims on one scale, where 0 is no effect and 1 the
paper's value.

An effect whose paper has no number is shown relative to the size that matters. Without either it is
an open mark at 1 or −1: only its direction and the width of its interval can be read. An
equivalence is a square, where 0 is no difference, and 1 and −1 are the most that counts as none.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from vitreous.claims.effects import Effect
from vitreous.claims.verdicts import OUTCOMES, Outcome, Verdict
from vitreous.report.effect import in_words
from vitreous.results.words import escape

WIDTH, LEFT, RIGHT, ROW, HEADING, TOP = 960, 420, 14, 15, 20, 30
MAX_LETTERS = 58
"""Maximum number of letters of a finding beside its row; the tooltip has the full sentence."""
LEAST, MOST = -1.5, 2.5
"""Ends of the axis; values beyond are drawn as arrows."""
TICKS = (
    (-1.0, "−1", "grid"),
    (0.0, "no effect", "nothing"),
    (0.5, "half", "grid"),
    (1.0, "paper", "paper"),
    (2.0, "2 ×", "grid"),
)


def forest(verdicts: Sequence[Verdict]) -> str:
    """An SVG with a row for each claim whose main effect was measured, grouped by verdict."""
    rows: list[str] = []
    y, count = float(TOP), 0
    for outcome in OUTCOMES:
        group = [
            (verdict, effect)
            for verdict in verdicts
            if verdict.outcome == outcome and (effect := _shown_effect(verdict)) is not None
        ]
        if not group:
            continue
        rows.append(_heading(outcome, len(group), y))
        y += HEADING
        for verdict, effect in group:
            rows.append(_row(verdict, effect, y + ROW / 2))
            y += ROW
        count += len(group)
    if not rows:
        return ""
    height = y + 4
    start = (
        f'<svg class="forest" viewBox="0 0 {WIDTH} {height:g}" role="group" '
        f'aria-label="Main effects of {count} claims relative to the papers\' values">'
    )
    return "".join([start, *_axis(height), *rows, "</svg>"])


def _shown_effect(verdict: Verdict) -> Effect | None:
    """The main effect, if it was measured; those of identities are exact."""
    main = verdict.main
    if main is None or verdict.outcome == "identity":
        return None
    return main if isfinite(main.measured.value) else None


def _axis(height: float) -> list[str]:
    lines = []
    for value, label, kind in TICKS:
        x = _x(value)
        lines.append(f'<path class="{kind}" d="M{x:.1f} {TOP - 8}V{height - 6:g}"/>')
        lines.append(f'<text x="{x:.1f}" y="{TOP - 14}" text-anchor="middle">{label}</text>')
    return lines


def _heading(outcome: Outcome, count: int, y: float) -> str:
    kind = outcome.replace(" ", "-")
    text = f"{outcome} ({count})"
    return f'<text class="group outcome-{kind}" x="4" y="{y + HEADING - 5:.1f}">{text}</text>'


def _row(verdict: Verdict, effect: Effect, y: float) -> str:
    value, low, high = _relative(effect)
    outcome = verdict.outcome.replace(" ", "-")
    claim = verdict.claim
    title = f"{claim.id} {verdict.outcome}: {in_words(effect)} — {escape(claim.sentence)}"
    return (
        f'<a href="#{verdict.claim.id}" class="outcome-{outcome}"><title>{title}</title>'
        f'<rect class="hit" x="0" y="{y - ROW / 2:.1f}" width="{WIDTH}" height="{ROW}"/>'
        f'<text class="id" x="14" y="{y + 4:.1f}">{escape(verdict.claim.id)}</text>'
        f'<text class="says" x="68" y="{y + 4:.1f}">{escape(_beginning(verdict))}</text>'
        f'<path class="interval" d="{_interval(value, low, high, y)}"/>'
        f"{_mark(effect, value, y)}</a>"
    )


def _beginning(verdict: Verdict) -> str:
    """Return as many whole words of a finding as fit beside its row."""
    sentence = verdict.claim.sentence
    if len(sentence) <= MAX_LETTERS:
        return sentence
    return f"{sentence[:MAX_LETTERS].rpartition(' ')[0].rstrip(',;:')} …"


def _interval(value: float, low: float, high: float, y: float) -> str:
    """SVG path of an interval, with an arrow head at an end beyond the axis.

    There is none if the value is beyond the axis as well: `_mark` then draws a triangle there.
    """
    path = f"M{_x(low):.1f} {y:.1f}H{_x(high):.1f}"
    if low < LEAST <= value:
        path += f"M{_x(low) + 5:.1f} {y - 4:.1f}l-5 4l5 4"
    if high > MOST >= value:
        path += f"M{_x(high) - 5:.1f} {y - 4:.1f}l5 4l-5 4"
    return path


def _mark(effect: Effect, value: float, y: float) -> str:
    """A dot, a square for an equivalence; a triangle at the edge for a value beyond the axis."""
    kind, x = "point open" if _unit(effect) is None else "point", _x(value)
    if LEAST <= value <= MOST and effect.direction == "within":
        return f'<path class="{kind}" d="M{x:.1f} {y - 4:.1f}h4v8h-8v-8z"/>'
    if LEAST <= value <= MOST:
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    way = -8 if value > MOST else 8
    return f'<path class="{kind}" d="M{x:.1f} {y:.1f}l{way} -5v10z"/>'


def _unit(effect: Effect) -> float | None:
    """The paper's effect, or the size that matters; None if there is neither. Of an equivalence the
    bound."""
    if effect.direction == "within":
        return effect.bound
    size = effect.matters if effect.paper is None else effect.distance(effect.paper)
    return size if size is not None and size > 0 else None


def _relative(effect: Effect) -> tuple[float, float, float]:
    """Value, low and high relative to the paper's effect, else to the size that matters, else to
    the value itself."""
    interval = effect.measured
    value, *ends = (effect.distance(each) for each in (interval.value, *interval.ends))
    unit = _unit(effect) or abs(value) or 1.0
    return value / unit, min(ends) / unit, max(ends) / unit


def _x(value: float) -> float:
    share = (min(max(value, LEAST), MOST) - LEAST) / (MOST - LEAST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)
