"""Many simulated studies at once, of which the truth is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

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
CHUNK = 1000


class Intervals(NamedTuple):
    """Values with their 95 % intervals, one for each study."""

    value: Array
    low: Array
    high: Array

    def cover(self, truth: float) -> float:
        """Share of the studies whose interval holds the truth."""
        return float(np.mean((self.low <= truth) & (truth <= self.high)))

    def outcomes(self, effect: Effect) -> dict[str | None, float]:
        """How often this rule has which outcome."""
        ends = zip(*(each.tolist() for each in self), strict=True)
        found = [
            replace(effect, measured=Interval95(value, low, high, ratio=effect.ratio)).outcome
            for value, low, high in ends
        ]
        return {outcome: found.count(outcome) / len(found) for outcome in dict.fromkeys(found)}


@cache
def resampling() -> Array:
    """(IMAGES, REPLICATES) how often each image counts in each replicate, as a share."""
    drawn = np.random.default_rng(0).poisson(1.0, (IMAGES, REPLICATES))
    return np.asarray(drawn / drawn.sum(0))


def chunks(number: int) -> Iterator[np.random.Generator]:
    """A generator of random numbers for each thousand of the studies."""
    for part in range(STUDIES // CHUNK):
        yield np.random.default_rng([number, part])


class World:
    """A thousand studies of trainings that are measured on the same images."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.images = rng.standard_normal((CHUNK, 1, IMAGES))

    def measure(
        self,
        truth: float,
        seeds: int,
        between: float = 0.1,
        image: float = 1.0,
        own: float = 1.0,
    ) -> Array:
        """(studies, seeds, 1 + replicates) of μ + a_s + b_i + c_si, mean over images i."""
        levels = truth + between * self.rng.standard_normal((CHUNK, seeds, 1))
        noise = own * self.rng.standard_normal((CHUNK, seeds, IMAGES))
        return resampled(levels + image * self.images + noise)


def resampled(each: Array) -> Array:
    """Mean over the last axis, images, and its replicates."""
    return np.concatenate([each.mean(-1, keepdims=True), each @ resampling()], -1)


def intervals(rows: Array, *, ratio: bool = False, known: Any = None) -> Intervals:
    """What `estimate_effect` finds of (studies, seeds, 1 + replicates)."""
    middle, reach, *_ = interval_of_mean(np.log(rows) if ratio else rows, known)
    found = (middle, middle - reach, middle + reach)
    return Intervals(*(np.exp(each) if ratio else each for each in found))


def score_intervals(values: Array, few: FewUnits) -> Intervals:
    """What it finds of shares or correlations (studies, seeds)."""
    test = ScoreTest.of(values, few)
    return Intervals(test.value, *test.interval())


def joined(parts: Any) -> Intervals:
    """The studies of all chunks."""
    return Intervals(*map(np.concatenate, zip(*parts, strict=True)))
