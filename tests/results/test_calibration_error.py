"""The debiased ECE against closed forms: one bin, many images, an optimiser, and simulated
images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from vitreous.results.calibration_error import (
    _Bins,
    _nearest_with_sum,
    expected_calibration_error,
)


def one_bin(n: int, right: int, confidence: float) -> tuple[list[float], ...]:
    return [n], [n * confidence], [n * confidence**2], [right]


def expected_size(gap: float, confidence: float, n: int) -> float:
    """Mean size of a gap that is normal with the variance of an accuracy."""
    spread = np.sqrt((confidence - gap) * (1 - confidence + gap) / n)
    return float(stats.foldnorm.mean(gap / spread) * spread)


@pytest.mark.parametrize("right", [26, 24, 22, 18])
def test_one_bin_is_the_folded_normal_distribution(right: int) -> None:
    """40 images of confidence 0.7 of which 26 are right: which gap has an expected size of 0.05?"""
    value, low, high = expected_calibration_error(*one_bin(40, right, 0.7))
    plain = 0.7 - right / 40
    missing = expected_size(0, 0.7, 40) - plain
    true = (
        optimize.brentq(lambda gap: expected_size(gap, 0.7, 40) - plain, 0, 0.5)
        if missing < 0
        else 0.0
    )
    assert value == pytest.approx(true, abs=5e-5)
    assert (low == 0) == (right > 21)
    score = optimize.brentq(
        lambda gap: plain - gap + 1.96 * np.sqrt((0.7 - gap) * (0.3 + gap) / 40), plain, 0.69
    )
    assert high == pytest.approx(
        score, abs=0.02
    )  # nearly the end of Wilson's interval of the accuracy


def test_with_many_images_it_equals_the_plain_ece() -> None:
    """A hundred thousand images, far from calibrated: there is no noise to take off."""
    count = np.array([4e4, 6e4])
    confidence, right = np.array([0.6, 0.9]), np.array([0.3, 0.95])
    sums = (count, count * confidence, count * confidence**2, count * right)
    value, low, high = expected_calibration_error(*sums)
    plain = 0.4 * 0.3 + 0.6 * 0.05
    assert value == pytest.approx(plain, abs=1e-4)
    errors = 0.4 * (0.36 - 2 * 0.6 * 0.3 + 0.3) + 0.6 * (0.81 - 2 * 0.9 * 0.95 + 0.95)
    reach = 1.96 * np.sqrt((errors - plain**2) / 1e5)  # of a mean of 1e5 numbers of mean `plain`
    assert (low, high) == (
        pytest.approx(plain - reach, rel=0.005),
        pytest.approx(plain + reach, rel=0.005),
    )


def test_a_calibrated_model_has_an_error_of_zero() -> None:
    assert expected_calibration_error(*one_bin(1000, 700, 0.7))[:2] == (0, 0)
    assert expected_calibration_error([0, 0], [0, 0], [0, 0], [0, 0]) == pytest.approx(
        (np.nan,) * 3, nan_ok=True
    )
    single = expected_calibration_error(*one_bin(1, 0, 0.4))
    assert single.mean == pytest.approx(0.4)
    assert np.isnan(single[1:]).all()
    empty = expected_calibration_error([0, 40], [0, 28], [0, 19.6], [0, 26])
    assert empty == expected_calibration_error(*one_bin(40, 26, 0.7))
    value, low, high = expected_calibration_error(
        *one_bin(40, 40, 0.98)
    )  # all right, which 0.98 is not far from
    assert (value, low) == (pytest.approx(0, abs=0.02), 0)
    assert 0.03 < high < 0.15
    wrong = expected_calibration_error(*one_bin(40, 0, 1.0))
    assert wrong.mean == pytest.approx(1, abs=1e-3)
    assert 0.85 < wrong.low < 1


@pytest.mark.parametrize("total", [0.0, 0.05, 0.2, 0.4, 0.9])
def test_nearest_against_an_optimiser(total: float) -> None:
    rng = np.random.default_rng(3)
    sizes, variances = rng.random(5) * 0.1, rng.random(5) + 0.1
    found = _nearest_with_sum(sizes, variances, total)
    assert found.sum() == pytest.approx(total, abs=1e-12)
    assert (found >= 0).all()

    def misfit(x: np.ndarray) -> float:
        return float(((x - sizes) ** 2 / variances).sum())

    limits: Any = {"type": "eq", "fun": lambda x: x.sum() - total}
    exactly: Any = {"ftol": 1e-14}
    theirs = optimize.minimize(
        misfit, np.full(5, total / 5), bounds=[(0, None)] * 5, constraints=limits, options=exactly
    )
    np.testing.assert_allclose(found, theirs.x, atol=1e-5)


def test_simulated_errors_have_the_spread_of_samples() -> None:
    """20,000 samples of 200 images in three bins whose accuracies are those of the hypothesis."""
    share, confidence = np.array([0.2, 0.3, 0.5]), np.array([0.45, 0.75, 0.95])
    right = np.round(200 * share * (confidence - [0.2, 0.15, 0.1]))
    bins = _Bins(200.0, share, confidence, confidence**2, right)
    sizes, _ = bins.hypothesis(0.15)
    rng = np.random.default_rng(0)
    count = rng.multinomial(200, share, size=20_000)
    drawn = (
        np.abs(count * confidence - rng.binomial(count, confidence - sizes / share)).sum(1) / 200
    )
    ours = bins.simulated_ece(0.15)
    assert ours.mean() == pytest.approx(drawn.mean(), rel=0.01)
    assert ours.std() == pytest.approx(drawn.std(), rel=0.05)
    assert bins.expected_ece(0.15) == pytest.approx(drawn.mean(), rel=0.01)
    np.testing.assert_allclose(
        np.quantile(ours, [0.025, 0.975]), np.quantile(drawn, [0.025, 0.975]), rtol=0.05
    )
