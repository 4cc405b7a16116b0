"""Many simulated studies at once, of which the truth is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from vitreous.claims.effects import Effect
from vitreous.claims.quantity import REPLICATES, Array, FewUnits
from vitreous.claims.statistics import Interval95, ScoreTest, interval_of_mean

STUDIES = 10_000
"""The Monte-Carlo error of a rate of 5 % is then 0.22 %."""
MONTE_CARLO = 0.005
"""What a rate may be off by chance. With 100,000 studies (and an error of 0.07 %) the rules that
are simulated here were falsely certain in at most 5.04 % of them: Student's test at its level."""
IMAGES = 200
CHUNK = 200
"""Studies that are simulated together: their numbers stay in the processor's cache."""
MOST = 5
"""Trainings of a model; a study of three takes the first three."""


@dataclass
class Intervals:
    """Values with their 95 % intervals, one for each study."""

    value: Array
    low: Array
    high: Array
    ratio: bool = False

    @cached_property
    def each(self) -> list[Interval95]:
        """Study by study."""
        ends = zip(self.value.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        return [Interval95(*three, ratio=self.ratio) for three in ends]

    def cover(self, truth: float) -> float:
        """Share of the studies whose interval holds the truth."""
        return float(np.mean((self.low <= truth) & (truth <= self.high)))

    def outcomes(self, effect: Effect) -> dict[str | None, float]:
        """How often this rule has which outcome."""
        if effect.direction is not None and effect.bound is None:
            found: list[str | None] = [effect.judge(measured) for measured in self.each]
        else:
            found = [replace(effect, measured=measured).outcome for measured in self.each]
        return {outcome: found.count(outcome) / len(found) for outcome in dict.fromkeys(found)}


@cache
def resampling() -> Array:
    """(IMAGES, 1 + REPLICATES) shares of images: all alike in the mean, then of each replicate."""
    drawn = np.random.default_rng(0).poisson(1.0, (IMAGES, REPLICATES))
    return np.concatenate([np.full((IMAGES, 1), 1 / IMAGES), drawn / drawn.sum(0)], 1)


def resampled(each: Array) -> Array:
    """Mean over the last axis, images, and its replicates."""
    rows = each.reshape(-1, IMAGES) @ resampling()  # as one product, not as one for each study
    return rows.reshape(*each.shape[:-1], -1)


@dataclass
class World:
    """A chunk of studies, of trainings that are measured on the same images."""

    number: int
    known: dict[Any, Array] = field(default_factory=dict)

    def draw(self, who: int, seeds: int) -> Array:
        """(studies, seeds, images) normal numbers: of what all share (0), or of a model."""
        rng = np.random.default_rng([7, self.number, who])
        return rng.standard_normal((CHUNK, seeds, IMAGES))

    def images(self, model: int, own: float) -> Array:
        """(studies, seeds, 1 + replicates) of b_i + c_si, mean over images i: resampled once."""
        if (model, own) not in self.known:
            noise = self.draw(0, 1) + own * self.draw(model, MOST)
            self.known[model, own] = resampled(noise)
        return self.known[model, own]

    def levels(self, model: int) -> Array:
        """(studies, seeds, 1) a_s: how trainings of a model differ."""
        rng = np.random.default_rng([8, self.number, model])
        return rng.standard_normal((CHUNK, MOST, 1))

    def measure(
        self, model: int, truth: float, seeds: int, between: float = 0.1, own: float = 1.0
    ) -> Array:
        """(studies, seeds, 1 + replicates) of μ + a_s + b_i + c_si, of model 1, 2, …"""
        levels = truth + between * self.levels(model)[:, :seeds]
        return np.asarray(levels + self.images(model, own)[:, :seeds])


@cache
def worlds() -> list[World]:
    """All studies. Every rule is tried on the same ones, so that they are drawn once."""
    return [World(number) for number in range(STUDIES // CHUNK)]


def simulate(study: Callable[[World], Intervals]) -> Intervals:
    """Of all studies."""
    parts = [study(world) for world in worlds()]
    value, low, high = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("value", "low", "high")
    )
    return Intervals(value, low, high, parts[0].ratio)


def intervals(rows: Array, *, ratio: bool = False, known: Any = None) -> Intervals:
    """What `estimate_effect` finds of (studies, seeds, 1 + replicates)."""
    middle, reach, *_ = interval_of_mean(np.log(rows) if ratio else rows, known)
    low, high = middle - reach, middle + reach
    if ratio:
        return Intervals(np.exp(middle), np.exp(low), np.exp(high), ratio)
    return Intervals(middle, low, high)


def score_intervals(values: Array, few: FewUnits) -> Intervals:
    """What it finds of shares or correlations (studies, seeds)."""
    test = ScoreTest.of(values, few)
    return Intervals(test.value, *test.interval())
