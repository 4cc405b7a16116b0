"""Random numbers of an image: the published generator, its distributions, and independence of
everything else."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from vitreous.data.random_streams import RandomStreams, _scramble_tensor_, scramble_

CPU = torch.device("cpu")


def splitmix(state: int) -> int:
    """The generator as published, in whole numbers of any size."""
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def test_it_is_splitmix64() -> None:
    states = np.random.default_rng(0).integers(0, 2**64, 500, dtype=np.uint64)
    wanted = [splitmix(int(state)) for state in states]
    signed = torch.from_numpy(states.astype(np.int64))
    assert [int(got) % 2**64 for got in _scramble_tensor_(signed.clone())] == wanted
    assert [int(got) for got in scramble_(states)] == wanted


def test_distributions() -> None:
    draws = RandomStreams("a test", 0, 4, CPU)
    assert stats.kstest(draws.uniform(20000).flatten().numpy(), "uniform").pvalue > 0.01
    assert stats.kstest(draws.normal(20001).flatten().numpy(), "norm").pvalue > 0.01
    shifted = draws.normal(101, 99, mean=3.0, std=0.5)
    assert shifted.shape == (4, 101, 99)
    assert stats.kstest(shifted.flatten().numpy(), "norm", (3.0, 0.5)).pvalue > 0.01
    assert (
        stats.kstest(
            draws.coarse(19999, low=-1, high=3).flatten().numpy(), "uniform", (-1, 4)
        ).pvalue
        > 0.01
    )
    words = draws.words(50001).flatten().int() + 2**15
    assert stats.chisquare(torch.bincount(words // 1024, minlength=64).numpy()).pvalue > 0.01
    assert stats.chisquare(torch.bincount(words % 64, minlength=64).numpy()).pvalue > 0.01


def test_streams_are_independent_and_their_own() -> None:
    both = RandomStreams("a test", 5, 2, CPU)
    first, second = both.normal(4000), both.normal(4000)
    alone = RandomStreams("a test", 6, 1, CPU)
    assert torch.equal(alone.normal(4000), first[1:])
    assert torch.equal(alone.normal(4000), second[1:])
    others = [first[0], first[1], second[0], RandomStreams("another", 5, 1, CPU).normal(4000)[0]]
    together = torch.corrcoef(torch.stack(others)) - torch.eye(4)
    assert together.abs().max() < 0.06
