"""Intervals cover what they promise, and effects that are not there are rarely certain:
simulated."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import exp, factorial, log
from typing import Any

import numpy as np
import pytest
from scipy import stats

from vitreous.claims.quantity import (
    REPLICATES,
    Array,
    Quantity,
    share_replicates,
    side_by_side,
    spearman,
)
from vitreous.claims.statistics import (
    Interval95,
    beyond_chance,
    estimate_effect,
    holm,
)

TRIALS = 1000
IMAGES = 64
RESAMPLINGS = 50
"""Drawing them anew for each trial takes most of the time and changes nothing."""
SEEDS = pytest.mark.parametrize("seeds", [3, 5])


@cache
def resampling(number: int) -> Array:
    """How often each image counts in each replicate, as a share: rows add up to one."""
    drawn = np.random.default_rng([number, IMAGES]).poisson(1.0, (REPLICATES, IMAGES))
    return np.asarray(drawn / drawn.sum(1, keepdims=True))


class World:
    """Trainings of models measured on a sample of images, with known truth."""

    def __init__(self, number: int) -> None:
        self.rng = np.random.default_rng(number)
        self.images = self.rng.standard_normal(IMAGES)
        self.weights = resampling(number % RESAMPLINGS)

    def measure(
        self, truth: float, seeds: int, between: float = 0.1, image: float = 1.0, own: float = 1.0
    ) -> Quantity:
        """μ + a_s + b_i + c_si, mean over images, with the replicates that a probe would keep."""
        own_noise = own * self.rng.standard_normal((seeds, IMAGES))
        levels = truth + between * self.rng.standard_normal((seeds, 1))
        each = levels + image * self.images + own_noise
        replicates = each @ self.weights.T
        values = np.concatenate([each.mean(1, keepdims=True), replicates], 1)
        return Quantity(dict(enumerate(values)))


def covers(found: Interval95, truth: float) -> bool:
    return found.low <= truth <= found.high


def coverage(trial: Callable[[World], bool], trials: int = TRIALS) -> float:
    return float(np.mean([trial(World(number)) for number in range(trials)]))


@SEEDS
@pytest.mark.parametrize("between", [0.0, 0.1, 1.0])
def test_mean(seeds: int, between: float) -> None:
    """From image noise alone to differences between trainings that are ten times as large."""
    rate = coverage(lambda w: covers(estimate_effect(w.measure(1.0, seeds, between)), 1.0))
    assert 0.92 <= rate <= 0.97


@SEEDS
@pytest.mark.parametrize("between", [0.05, 0.5])
def test_difference_of_models_on_the_same_images(seeds: int, between: float) -> None:
    def trial(world: World) -> bool:
        one, other = world.measure(2.0, seeds, between), world.measure(1.0, seeds, between)
        return covers(estimate_effect(one - other), 1.0)

    assert 0.92 <= coverage(trial) <= 0.97


@SEEDS
def test_ratio(seeds: int) -> None:
    def trial(world: World) -> bool:
        one, other = world.measure(3.0, seeds, 0.2), world.measure(2.0, seeds, 0.2)
        truth = 1.5 * exp((0.2 / 2) ** 2 / 2 - (0.2 / 3) ** 2 / 2)
        return covers(estimate_effect(one / other, ratio=True), truth)

    assert 0.92 <= coverage(trial) <= 0.97


@SEEDS
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_share_of_units(seeds: int, share: float) -> None:
    """Twelve units whose sign is drawn anew in every training.

    A share of twelve units takes few values, so some intervals cover a little too often.
    """

    def trial(world: World) -> bool:
        signs = {s: (world.rng.random(12) < share).astype(float) for s in range(seeds)}
        rows = {s: np.broadcast_to(each, (1 + REPLICATES, 12)) for s, each in signs.items()}
        return covers(estimate_effect((Quantity(rows) > 0.5).mean()), share)

    assert 0.92 <= coverage(trial) <= 0.98


@SEEDS
def test_rank_correlation(seeds: int) -> None:
    """Over eight settings, of which neighbours change places from training to training."""

    def row(world: World) -> Quantity:
        noise = world.rng.standard_normal((seeds, 8)) * 1.5
        return Quantity({s: (np.arange(8) + each)[None] for s, each in enumerate(noise)})

    truth = np.mean([spearman(range(8), row(World(n))).values.mean() for n in range(4000, 5000)])
    rate = coverage(lambda w: covers(estimate_effect(spearman(range(8), row(w))), float(truth)))
    assert 0.92 <= rate <= 0.97


def significant(found: Interval95, null: float) -> bool:
    return found.p_value(null) < 0.05


def lead_of_the_best(row: Array, axis: int) -> Any:
    return row[..., 1:].max(axis) - row[..., 0]


@SEEDS
def test_false_certainty_is_rare(seeds: int) -> None:
    """Differences, ratios, shares and the best of five, where there is nothing."""

    def difference(world: World) -> bool:
        return significant(estimate_effect(world.measure(1, seeds) - world.measure(1, seeds)), 0)

    def ratio(world: World) -> bool:
        quotient = world.measure(3, seeds) / world.measure(3, seeds)
        return significant(estimate_effect(quotient, ratio=True), 1)

    def share(world: World) -> bool:
        units = np.stack([(world.rng.random(12) < 0.5).astype(float) for _ in range(seeds)])
        rows = {s: np.broadcast_to(each, (1 + REPLICATES, 12)) for s, each in enumerate(units)}
        return significant(estimate_effect((Quantity(rows) > 0.5).mean()), 0.5)

    def best_of_five(world: World) -> bool:
        models = side_by_side([world.measure(1, seeds) for _ in range(6)])
        return significant(estimate_effect(beyond_chance(models, lead_of_the_best)), 0)

    for rule in (difference, ratio, share, best_of_five):
        rate = coverage(rule)
        assert rate <= 0.065, rule.__name__


@SEEDS
def test_a_range_is_compared_with_that_of_noise(seeds: int) -> None:
    def corrected(world: World, spread: float) -> float:
        models = [world.measure(1 + spread * place, seeds, own=2.0) for place in range(4)]
        return estimate_effect(beyond_chance(side_by_side(models), np.ptp)).value

    none = [corrected(World(number), 0.0) for number in range(300)]
    some = [corrected(World(number), 1.0) for number in range(100)]
    assert abs(np.mean(none)) < 0.1 * np.mean(some)
    false = coverage(
        lambda w: (
            estimate_effect(
                beyond_chance(side_by_side([w.measure(1, seeds) for _ in range(4)]), np.ptp)
            ).low
            > 0
        ),
        600,
    )
    assert false <= 0.05


def test_few_settings_are_not_certain() -> None:
    """As in the exact test: a perfect order of five settings is rare (p = 0.017), one of four is
    not (0.083)."""
    for points, certain in ((4, False), (5, True), (8, True)):
        found = estimate_effect(
            spearman(range(points), Quantity({0: np.arange(points, dtype=float)[None]}))
        )
        exact = 2 / factorial(points)
        assert (found.p_value(0.0) < 0.05) == (exact < 0.05) == certain


def test_student_for_seeds_without_images() -> None:
    values = np.array([0.3, 0.9, 0.5])
    found = estimate_effect(
        Quantity({seed: np.array([value]) for seed, value in enumerate(values)})
    )
    wanted = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(wanted)
    assert found.p_value(0.0) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)
    assert found.at_level(0.05) == pytest.approx(wanted)


def test_a_ratio_is_symmetric() -> None:
    rows: dict[int, Array] = {s: np.array([v]) for s, v in enumerate((2.0, 4.0, 3.0))}
    one = estimate_effect(Quantity(rows), ratio=True)
    other = estimate_effect(1.0 / 1.0 * Quantity({s: 1 / v for s, v in rows.items()}), ratio=True)
    assert one.value == pytest.approx(exp(np.mean([log(2), log(4), log(3)])))
    assert (one.low, one.high) == pytest.approx((1 / other.high, 1 / other.low))


def test_shares_of_none_have_the_exact_interval() -> None:
    """Clopper and Pearson's upper end for none of 32 batches, and its mirror image for all."""
    none = share_replicates(0.0, np.zeros(REPLICATES), 32)
    upper = float(stats.binomtest(0, 32).proportion_ci(0.95).high)
    found = estimate_effect(Quantity({0: np.concatenate([[0.0], none])}, bounds=(0.0, 1.0)))
    assert found.low == 0
    assert found.high == pytest.approx(upper, rel=0.35)
    every = share_replicates(1.0, np.ones(REPLICATES), 32)
    np.testing.assert_allclose(1 - np.sort(every)[::-1], np.sort(none))


def test_holm_keeps_what_bonferroni_keeps_and_more() -> None:
    assert holm([0.001, 0.04, 0.02, 0.03]) == [True, False, False, False]
    assert holm([0.001, 0.012, 0.02, 0.03]) == [True, True, True, True]
    assert holm([]) == []
