"""Intervals against scipy's bootstrap, Student's formula and the normal approximation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from vitreous.errors import VitreousError
from vitreous.results import bootstrap_mean, intervals, mean_of_sums, wilson


def test_bootstrap_against_scipy() -> None:
    """On skewed values, where the interval is not symmetric: the spread and the skewness are those
    of scipy's replicates. Both are random; 20,000 repeats."""
    values = np.random.default_rng(0).exponential(size=40)
    mean, low, high = bootstrap_mean(values, repeats=20_000)
    drawn = stats.bootstrap((values,), np.mean, n_resamples=20_000, rng=1).bootstrap_distribution
    wide, t = drawn.std(ddof=1) * np.sqrt(40 / 39), stats.t.ppf(0.975, 39)
    moved = stats.skew(drawn) * (2 * stats.norm.ppf(0.975) ** 2 + 1) / 12
    assert mean == pytest.approx(values.mean(), abs=1e-15)
    np.testing.assert_allclose(
        [low, high], values.mean() + wide * (moved + np.array([-t, t])), atol=0.02 * wide * t
    )
    assert high - mean > 1.03 * (mean - low)


def test_bootstrap_against_the_normal_approximation() -> None:
    values = 1e6 + np.random.default_rng(1).normal(size=(4000, 3)) * [1, 10, 0]
    mean, low, high = bootstrap_mean(values, confidence=0.9, repeats=4000)
    half = stats.norm.ppf(0.95) * values.std(axis=0) / np.sqrt(4000)
    np.testing.assert_allclose([mean - low, high - mean], [half, half], rtol=0.06, atol=1e-9)


def test_bootstrap_of_every_column_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All columns see the same resampling; memory is bounded and the chunks make no difference."""
    values = np.random.default_rng(2).normal(size=(30, 2, 3))
    whole = bootstrap_mean(values)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_allclose(
            bootstrap_mean(values[:, i, j]), [end[i, j] for end in whole], rtol=1e-12
        )
    monkeypatch.setattr(intervals, "CHUNK", 70)
    np.testing.assert_allclose(bootstrap_mean(values), whole, rtol=1e-12)
    assert not np.allclose(bootstrap_mean(values, seed=1).low, whole.low, rtol=1e-9)


def test_one_image_has_no_interval() -> None:
    mean, low, high = bootstrap_mean([[2.0, 3.0]])
    assert mean.tolist() == [2.0, 3.0]
    assert np.isnan([low, high]).all()
    sums = mean_of_sums([2.0, 6.0], [4.0, 20.0], [1, 2])
    assert np.isnan(sums.low).tolist() == np.isnan(sums.high).tolist() == [True, False]


def test_sums_against_student() -> None:
    values = np.random.default_rng(3).normal(3, 2, size=(12, 4))
    ours = mean_of_sums(values.sum(axis=0), (values**2).sum(axis=0), 12, confidence=0.9)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    np.testing.assert_allclose(ours, [values.mean(axis=0), theirs.low, theirs.high], rtol=1e-12)


def test_equal_values_have_an_interval_without_width() -> None:
    assert bootstrap_mean([0.1] * 7) == pytest.approx((0.1, 0.1, 0.1), abs=1e-15)
    assert mean_of_sums(0.7, 7 * 0.1**2, 7) == pytest.approx((0.1, 0.1, 0.1), abs=1e-8)


def test_what_has_no_mean_is_refused() -> None:
    with pytest.raises(VitreousError, match=r"shape \(0, 3\)"):
        bootstrap_mean(np.zeros((0, 3)))
    with pytest.raises(VitreousError, match="confidence of an interval is 95"):
        bootstrap_mean([1.0, 2.0], confidence=95)


@pytest.mark.parametrize("count", [1, 3, 7, 100, 12345])
def test_wilsons_interval_of_none_and_of_all_ends_there(count: int) -> None:
    none, every = wilson(0, count), wilson(count, count)
    assert (none.mean, none.low) == (0, 0) < (none.high, 1)
    assert (every.mean, every.high) == (1, 1)
    assert every.low == pytest.approx(1 - none.high, abs=1e-12)
