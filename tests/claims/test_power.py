"""Power against closed forms and against studies that are simulated."""

from __future__ import annotations

from dataclasses import replace
from math import isnan, log, sqrt

import numpy as np
import pytest
from scipy import stats

from vitreous.claims.effects import Effect, at_most, less, more, within
from vitreous.claims.power import (
    assumed_truth,
    detectable_effect,
    largest_spread,
    power,
    power_of_few,
)
from vitreous.claims.quantity import FewUnits, Quantity
from vitreous.claims.statistics import Interval95, ScoreTest, interval_of_mean
from vitreous.claims.student_t import LEVEL

NOTHING = Quantity({})


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("truth", [0.5, 2.0, 4.0])
def test_without_images_it_is_that_of_student_s_test(seeds: int, truth: float) -> None:
    critical = stats.t.ppf(0.975, seeds - 1)
    wanted = stats.nct.sf(critical, seeds - 1, truth * sqrt(seeds))
    assert power(more("", NOTHING), truth, seeds, 1.0) == pytest.approx(wanted, abs=1e-3)
    assert power(less("", NOTHING), -truth, seeds, 1.0) == pytest.approx(wanted, abs=1e-3)


def test_with_images_alone_it_is_that_of_the_normal_test() -> None:
    wanted = stats.norm.sf(stats.t.ppf(0.975, 199) - 2.5)
    assert power(more("", NOTHING), 2.5, 3, 1e-9, images=1.0) == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize(
    ("effect", "truth"),
    [
        (more("", NOTHING, paper=3.0), 3.0),
        (more("", NOTHING, matters=2.0), 2.0),
        (less("", NOTHING, paper=-3.0), -2.0),
        (within("", NOTHING, 4.0), 0.5),
        (at_most("", NOTHING, 4.0), 1.0),
    ],
)
def test_it_is_how_many_studies_come_out(effect: Effect, truth: float) -> None:
    """Twenty thousand studies of three trainings, judged by the rule itself."""
    rng = np.random.default_rng(0)
    rows = truth + 0.9 * rng.standard_normal((20_000, 3, 1))
    middle, reach, *_ = interval_of_mean(rows)
    studies = zip(middle.tolist(), reach.tolist(), strict=True)
    outcomes = [
        replace(effect, measured=Interval95(value, value - half, value + half)).outcome
        for value, half in studies
    ]
    found = outcomes.count("reproduced") / len(outcomes)
    assert power(effect, truth, 3, 0.9) == pytest.approx(found, abs=0.01)
    certain = found + outcomes.count("weaker") / len(outcomes)
    assert power(effect, truth, 3, 0.9, certain=True) == pytest.approx(certain, abs=0.01)


def test_a_share_has_the_power_of_counting_units() -> None:
    """At 0.75 of 12 layers in three trainings: 25 of 36 are certain."""
    rule, few = more("", NOTHING, 0.5, paper=0.75), FewUnits("share", 12)
    counts = np.arange(37)
    known = np.full(37, 1 / 3)
    test = ScoreTest(few, 3, counts / 36, known, 0.0, sqrt(6**3 / 2))
    first = counts[(counts > 18) & (test.p_value(0.5) < LEVEL)].min()
    assert first == 25
    assert power_of_few(rule, 0.75, 3, few) == pytest.approx(stats.binom.sf(first - 1, 36, 0.75))


def test_a_rank_correlation_that_is_strong_is_found() -> None:
    rule = less("", NOTHING)
    weak, strong = (power_of_few(rule, rho, 5, FewUnits("correlation", 5)) for rho in (-0.2, -0.9))
    assert weak < 0.3
    assert strong > 0.99


def test_what_is_assumed() -> None:
    assert assumed_truth(more("", NOTHING, paper=4.0)) == 4.0
    assert assumed_truth(more("", NOTHING, 1.0, matters=log(1.5))) == pytest.approx(1.5)
    assert assumed_truth(within("", NOTHING, 1.0)) == 0.0
    assert assumed_truth(more("", NOTHING)) is None
    assert assumed_truth(at_most("", NOTHING, 2.0)) is None


def test_spreads_and_effects_at_which_it_is_80_per_cent() -> None:
    rule = more("", NOTHING, paper=4.0)
    limit = largest_spread(lambda spread: power(rule, 4.0, 3, spread))
    assert power(rule, 4.0, 3, limit) == pytest.approx(0.8, abs=1e-6)
    assert isnan(largest_spread(lambda spread: power(rule, 4.0, 3, spread, images=4.0)))
    least = detectable_effect(5, 2.0, 0.5)
    assert power(more("", NOTHING), least, 5, 2.0, 0.5) == pytest.approx(0.8, abs=1e-6)
