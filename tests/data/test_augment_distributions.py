"""Numbers drawn by formula have the distributions they claim."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from vitreous.data.augment.distributions import (
    beta,
    first_valid,
    hashed_noise,
    integer,
    lookup,
    scramble,
    standard_normal,
)

MANY = 40_000


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 0.8, 1.0, 2.0, 8.0])
def test_beta_is_scipys(alpha: float) -> None:
    found = beta(torch.rand(MANY), torch.rand(MANY), alpha).double()
    assert found.min() >= 0
    assert found.max() <= 1
    inner = found[(found > 1e-6) & (found < 1 - 1e-6)]  # float32 has nothing finer next to 1
    law = stats.beta(alpha, alpha)
    low, high = law.cdf(1e-6), law.cdf(1 - 1e-6)
    assert len(inner) / MANY == pytest.approx(high - low, abs=0.01)
    assert stats.kstest(inner.numpy(), lambda x: (law.cdf(x) - low) / (high - low)).pvalue > 1e-3


def test_beta_is_finite_at_the_ends() -> None:
    ends = torch.tensor([0.0, 1 - 2**-24])
    first, second = torch.cartesian_prod(
        ends, torch.tensor([0.0, 0.25, 0.5, 0.75, 1 - 2**-24])
    ).unbind(1)
    for alpha in (0.05, 0.2, 1.0, 8.0):
        assert beta(first, second, alpha).isfinite().all()


def test_normal_and_integer() -> None:
    assert stats.kstest(standard_normal(torch.rand(MANY)).numpy(), "norm").pvalue > 1e-3
    drawn = integer(torch.rand(MANY), 9)
    assert stats.chisquare(torch.bincount(drawn, minlength=9).numpy()).pvalue > 1e-3
    largest = torch.tensor([1 - 2**-24])
    for count in range(1, 300):
        assert int(integer(largest, count)) == count - 1
    assert integer(largest.expand(2), torch.tensor([3, 7])).tolist() == [2, 6]


def test_noise_is_normal_and_has_no_pattern() -> None:
    found = hashed_noise(torch.rand(12), (3, 32, 40))
    assert found.shape == (12, 3, 32, 40)
    assert stats.kstest(found.flatten().numpy(), "norm").pvalue > 1e-3
    for axis in (0, 1, 2, 3):
        shifted = (found * found.roll(1, axis)).mean()
        assert abs(float(shifted)) < 4 / found.numel() ** 0.5
    assert not torch.equal(found[0], found[1])
    bits = (scramble(torch.arange(MANY))[:, None] >> torch.arange(32)) & 1
    assert (bits.double().mean(0) - 0.5).abs().max() < 5 * 0.5 / MANY**0.5
    flipped = scramble(torch.arange(2000)[:, None]) ^ scramble(
        torch.arange(2000)[:, None] ^ (1 << torch.arange(32))
    )
    share = ((flipped[..., None] >> torch.arange(32)) & 1).double().mean(0)
    assert (share - 0.5).abs().max() < 0.1, (
        "every bit of the input turns over every bit of the output half of the time"
    )


def test_choose_and_first_valid() -> None:
    values = [0.5, 2.0, 7.0, 2.0, 9.0]
    assert lookup(torch.tensor([0, 1, 2, 3, 4, 1]), values).tolist() == [
        0.5,
        2.0,
        7.0,
        2.0,
        9.0,
        2.0,
    ]
    valid = torch.tensor([[False, True, True], [True, False, True], [False, False, False]])
    (found,) = first_valid(valid, torch.arange(9).view(3, 3))
    assert found.tolist() == [1, 3, 6]
