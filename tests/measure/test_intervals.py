"""Intervals from sums alone agree with scipy's bootstrap, and hold the truth as often as they
say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from vitreous.measure.per_image import mean_over_images, sum_over_images
from vitreous.measure.probe import Batch, interval
from vitreous.measure.resampling import REPEATS, poisson_weights


def batch(rows: torch.Tensor, seed: int = 0) -> Batch:
    return Batch(
        rows, torch.zeros(len(rows), 3, 1, 1, dtype=torch.uint8), torch.zeros(len(rows)), seed
    )


def test_a_mean_has_scipys_interval() -> None:
    values = torch.from_numpy(np.random.default_rng(0).gamma(2.0, size=400))
    found, count = mean_over_images(sum_over_images(batch(torch.arange(400)), {"x": values}), "x")
    expected = scipy.stats.bootstrap(
        (values.numpy(),),
        np.mean,
        n_resamples=5000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    width = expected.high - expected.low
    assert found.value == pytest.approx(values.mean().item(), rel=1e-12)
    assert abs(found.low - expected.low) < 0.1 * width
    assert abs(found.high - expected.high) < 0.1 * width
    assert count == 400


def test_intervals_have_their_nominal_coverage() -> None:
    """300 samples of 100 normal numbers: 95 % of the intervals hold 0, within three standard errors
    (and a little for the bootstrap's own error at 100 images)."""
    trials, size = 300, 100
    values = torch.from_numpy(np.random.default_rng(3).normal(size=(size, trials)))
    held = []
    for trial in range(trials):  # other images each time, so that the resamplings are others too
        rows = torch.arange(size) + trial * size
        found, _ = mean_over_images(sum_over_images(batch(rows), {"x": values[:, trial]}), "x")
        held.append(bool(found.low <= 0 <= found.high))
    assert 0.90 < np.mean(held) < 0.98


def test_resamplings_are_poisson_and_belong_to_image_and_seed() -> None:
    drawn = poisson_weights(range(500), 0)
    assert drawn.shape == (500, REPEATS)
    assert drawn.mean() == pytest.approx(1, abs=0.01)
    assert drawn.var() == pytest.approx(1, abs=0.02)
    alone = np.random.Generator(np.random.Philox(key=[0, 17])).poisson(1.0, REPEATS)
    assert np.array_equal(alone, drawn[17])
    assert not np.array_equal(poisson_weights([17], 1)[0], drawn[17])
    apart, together = batch(torch.tensor([5])).weights, batch(torch.tensor([3, 5, 9])).weights
    assert torch.equal(apart[:, 0], together[:, 1])
    assert (together[0] == 1).all()


def test_sums_of_arrays_and_of_numbers() -> None:
    values = torch.randn(6, 2, 3)
    one = batch(torch.arange(6))
    assert one.total(values).shape == (1 + REPEATS, 2, 3)
    torch.testing.assert_close(one.total(values)[0], values.double().sum(0))
    assert one.total(values[:, 0, 0]).shape == (1 + REPEATS,)
    again = torch.einsum("rb,bij->rij", one.weights, values.double())
    torch.testing.assert_close(one.total(values), again)


def test_images_without_a_value_do_not_count() -> None:
    values = torch.tensor([1.0, torch.nan, 3.0, torch.nan])
    found, count = mean_over_images(sum_over_images(batch(torch.arange(4)), {"x": values}), "x")
    assert found.value == 2
    assert count == 2
    assert found.low < 1 < 3 < found.high  # two images tell very little
    nothing, none = mean_over_images(
        sum_over_images(batch(torch.arange(4)), {"x": torch.full((4,), torch.nan)}), "x"
    )
    assert none == 0
    assert np.isnan([nothing.value, nothing.low, nothing.high]).all()


def test_a_replicate_without_images_is_ignored() -> None:
    replicates = np.array([2.0, np.nan, 1.0, 3.0])
    reach = scipy.stats.t.ppf(0.975, 4) * math.sqrt(5 / 4) * math.sqrt(2)
    assert interval(replicates, 5) == (2.0, pytest.approx(2 - reach), pytest.approx(2 + reach))
    assert np.isnan(interval(replicates, 1)[1:]).all()
