"""Intervals, p-values and corrections against closed forms; `test_coverage.py` simulates them."""

from __future__ import annotations

from math import exp, factorial, log

import numpy as np
import pytest
from scipy import stats

from vitreous.claims.effects import within
from vitreous.claims.quantity import (
    REPLICATES,
    Array,
    FewUnits,
    Quantity,
    share_replicates,
    spearman,
)
from vitreous.claims.readings import _batch_weights
from vitreous.claims.statistics import ScoreTest, beyond_chance, estimate_effect, holm
from vitreous.claims.student_t import widening_factor


def seeds(*values: float) -> Quantity:
    """A training for each value, without replicates."""
    return Quantity({seed: np.array([value]) for seed, value in enumerate(values)})


def test_a_range_is_compared_with_that_of_noise() -> None:
    """Four equal models differ by chance; four unequal ones by more."""
    rng = np.random.default_rng(0)

    def corrected(spread: float) -> float:
        noise = rng.standard_normal((3, 1 + REPLICATES, 4)) * 0.1
        levels = spread * np.arange(4) + 0.1 * rng.standard_normal((3, 1, 4))
        row = Quantity(dict(enumerate(levels + noise)))
        return estimate_effect(beyond_chance(row, np.ptp)).value

    none, some = (np.mean([corrected(spread) for _ in range(200)]) for spread in (0.0, 1.0))
    assert abs(none) < 0.1 * some


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
    found = estimate_effect(seeds(*values))
    wanted = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(wanted)
    assert found.p_value(0.0) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)


def test_replicates_alone_and_a_mixture_of_both() -> None:
    """The p-value is Student's with 199 degrees of freedom where images are all there is; of three
    trainings it is the mean of both, weighted by their parts of the variance."""
    deviations = np.random.default_rng(0).standard_normal(REPLICATES)
    one = estimate_effect(Quantity({0: np.concatenate([[0.5], 0.5 + deviations])}))
    statistic = 0.5 / deviations.std(ddof=1)
    by_images = 2 * stats.t.sf(statistic, REPLICATES - 1)
    assert one.p_value(0.0) == pytest.approx(by_images)
    values = np.array([0.4, 0.7, 1.0])
    three = estimate_effect(
        Quantity({s: np.concatenate([[v], v + deviations]) for s, v in enumerate(values)})
    )
    between, images = values.var(ddof=1) / 3, deviations.var(ddof=1)
    statistic = values.mean() / np.sqrt(between + images)
    weight = 1.25 * between / (1.25 * between + images)
    parts = [2 * stats.t.sf(statistic, freedom) for freedom in (2, REPLICATES - 1)]
    assert three.p_value(0.0) == pytest.approx(weight * parts[0] + (1 - weight) * parts[1])
    assert three.p_value(three.low) == pytest.approx(0.05)
    assert three.p_value(three.high) == pytest.approx(0.05)


def test_a_single_share_has_the_exact_interval() -> None:
    """That of Clopper and Pearson, or Wilson's where it is wider."""
    for ones, units in ((12, 12), (10, 12), (0, 4), (3, 24)):
        test = ScoreTest.of(np.array([ones / units]), FewUnits("share", units))
        exact = stats.binomtest(ones, units)
        wilson = exact.proportion_ci(0.95, "wilson")
        clopper = exact.proportion_ci(0.95, "exact")
        low, high = map(float, test.interval())
        assert low == pytest.approx(min(clopper.low, wilson.low), abs=2e-5)
        assert high == pytest.approx(max(clopper.high, wilson.high), abs=2e-5)


def test_a_share_of_several_trainings_is_wilson_s_with_their_dispersion() -> None:
    """Of trainings that differ as much as units alone make them differ, φ is one."""
    shares = np.array([5.0, 9.0, 7.0]) / 12
    units = FewUnits("share", 12)
    expected = units.variance((21 + 1) / (36 + 2))
    phi = (2 * shares.var(ddof=1) / expected + 4) / 6
    z = stats.t.ppf(0.975, np.sqrt(6**3 / 2)) * np.sqrt(phi)
    p, n = shares.mean(), 36
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    found = ScoreTest.of(shares, units).interval()
    assert found == pytest.approx((centre - reach, centre + reach))


def test_equivalence_has_the_p_value_of_two_one_sided_tests() -> None:
    """Twice the larger of the two, since each may err in 2.5 %; outside of the bound that of the
    opposite. Certain is what is below 5 %."""
    for values in ((0.1, 0.3, 0.2), (-0.3, 0.1, -0.4), (1.4, 1.5, 1.45), (-2.0, -1.2, -1.5)):
        effect = within("apart", seeds(*values), 1.0)
        sides = [
            stats.ttest_1samp(values, -1.0, alternative="greater").pvalue,
            stats.ttest_1samp(values, 1.0, alternative="less").pvalue,
        ]
        outside = abs(np.mean(values)) > 1
        one_sided = 1 - max(sides) if outside else max(sides)
        assert effect.p_value == pytest.approx(2 * one_sided)
        certain = "opposite" if outside else "reproduced"
        assert effect.outcome == (certain if effect.p_value < 0.05 else "undecided")
    assert within("apart", seeds(0.1, 0.3, 0.2), 1.0).p_value < 0.05  # and not that against zero
    assert within("apart", seeds(0.1, 0.3, 0.2), 1.0).measured.p_value(0.0) > 0.05


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
    found = estimate_effect(Quantity({0: np.concatenate([[0.0], none])}))
    assert found.value == 0
    assert found.high == pytest.approx(upper, rel=0.35)
    every = share_replicates(1.0, np.ones(REPLICATES), 32)
    np.testing.assert_allclose(1 - np.sort(every)[::-1], np.sort(none))


def test_holm_keeps_what_bonferroni_keeps_and_more() -> None:
    assert holm([0.001, 0.04, 0.02, 0.03]) == [True, False, False, False]
    assert holm([0.001, 0.012, 0.02, 0.03]) == [True, True, True, True]
    assert holm([]) == []


@pytest.mark.parametrize("count", [8, 16, 40])
def test_few_batches_are_resampled_as_widely_as_they_have_to_be(count: int) -> None:
    """Student's t of so few means, as it was before anything was resampled."""
    rows = np.random.default_rng(count).standard_normal((4000, count))
    weights = _batch_weights(count)
    weights = weights[weights.sum(1) > 0]
    replicates = rows @ (weights / weights.sum(1, keepdims=True)).T
    spread = widening_factor(count) * replicates[:, 1:].std(1, ddof=1)
    reach = stats.t.ppf(0.975, REPLICATES - 1) * spread
    assert np.mean(np.abs(rows.mean(1)) <= reach) == pytest.approx(0.95, abs=0.015)
    assert widening_factor(1) == 1.0
