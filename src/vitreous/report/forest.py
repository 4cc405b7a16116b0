"""The forest plot: the main effects of all claims on one scale, where 0 is no effect and 1 the
paper's value.

An effect whose paper has no number is shown relative to the size that matters; without either it is
shown as an open mark at its own size, so that only its direction and interval can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from vitreous.claims.effects import Effect
from vitreous.claims.verdicts import OUTCOMES, Verdict
from vitreous.report.effect import in_words
from vitreous.results.words import escape

WIDTH, LEFT, RIGHT, ROW, TOP = 900, 92, 16, 17, 34
LEAST, MOST = -1.5, 2.5
"""Ends of the axis; what lies beyond is an arrow."""


def forest(verdicts: Sequence[Verdict]) -> str:
    """An SVG with a row for each claim whose main effect was measured, grouped by verdict."""
    shown = [
        (verdict, verdict.main)
        for outcome in OUTCOMES
        for verdict in verdicts
        if verdict.outcome == outcome
        and outcome != "identity"
        and verdict.main is not None
        and isfinite(verdict.main.measured.value)
        and verdict.main.direction != "within"
    ]
    if not shown:
        return ""
    height = TOP + ROW * len(shown) + 10
    lines = [
        f'<svg class="forest" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Main effects of {len(shown)} claims relative to the papers\' values">',
    ]
    for value, label in (
        (-1.0, "−1"),
        (0.0, "no effect"),
        (0.5, "half"),
        (1.0, "paper"),
        (2.0, "2 ×"),
    ):
        x = _x(value)
        kind = {0.0: "nothing", 1.0: "paper"}.get(value, "grid")
        lines.append(f'<path class="{kind}" d="M{x:.1f} {TOP - 8}V{height - 6}"/>')
        lines.append(f'<text x="{x:.1f}" y="{TOP - 14}" text-anchor="middle">{label}</text>')
    for number, (verdict, effect) in enumerate(shown):
        lines.append(_row(verdict, effect, TOP + ROW * number + ROW / 2))
    return "".join([*lines, "</svg>"])


def _row(verdict: Verdict, effect: Effect, y: float) -> str:
    value, low, high = _relative(effect)
    outcome = verdict.outcome.replace(" ", "-")
    known = effect.paper is not None or effect.matters is not None or effect.bound is not None
    mark = "point" if known else "point open"
    title = f"{verdict.claim.id} {verdict.outcome}: {in_words(effect)}"
    x = _x(value)
    ends = (_x(min(low, high)), _x(max(low, high)))
    arrow = ""
    if not LEAST <= value <= MOST:
        way = 5 if value > MOST else -5
        arrow = f'<path class="{mark}" d="M{x:.1f} {y:.1f}l{-way} -4v8z"/>'
    point = arrow or f'<circle class="{mark}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    return (
        f'<a href="#{verdict.claim.id}" class="outcome-{outcome}"><title>{title}</title>'
        f'<rect class="hit" x="0" y="{y - ROW / 2:.1f}" width="{WIDTH}" height="{ROW}"/>'
        f'<text class="id" x="4" y="{y + 4:.1f}">{escape(verdict.claim.id)}</text>'
        f'<path class="interval" d="M{ends[0]:.1f} {y:.1f}H{ends[1]:.1f}"/>{point}</a>'
    )


def _relative(effect: Effect) -> tuple[float, float, float]:
    """Value and interval in units of the paper's effect, of the size that matters, or of itself."""
    found = effect.measured
    distances = [effect.distance(each) for each in (found.value, found.low, found.high)]
    unit = 0.0
    if effect.paper is not None:
        unit = effect.distance(effect.paper)
    elif effect.matters is not None:
        unit = effect.matters
    if not unit > 0:
        unit = abs(distances[0]) or 1.0
    value, one, other = (distance / unit for distance in distances)
    return value, one, other


def _x(value: float) -> float:
    share = (min(max(value, LEAST), MOST) - LEAST) / (MOST - LEAST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)
