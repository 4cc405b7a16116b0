"""Derived seeds and generators: the formulas that stored results depend on, written out a second
time."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest
import torch

from vitreous.random_numbers import (
    derive_seed,
    hash_bits,
    named_generator,
    row_generators,
    seed_torch,
    seeded,
    torch_generator,
)


def test_seeds_are_the_beginning_of_a_hash() -> None:
    digest = sha256(b"(3, 'order', 7)").digest()
    assert derive_seed(3, "order", 7) == int.from_bytes(digest[:7], "big")
    assert torch_generator(3, "order", 7).initial_seed() == derive_seed(3, "order", 7)
    digest = sha256(b"world/train/0/1").digest()
    assert hash_bits("world/train/0/1", 63) == int.from_bytes(digest[:8], "big") >> 1
    assert hash_bits("world/train/0/1", 64) == int.from_bytes(digest[:8], "big")
    purposes = [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1)]
    assert len({derive_seed(*purpose) for purpose in purposes}) == 4


def test_the_stream_of_a_row_does_not_depend_on_earlier_draws() -> None:
    drawn = {}
    for row, generator in zip((5, 0, 2**40), row_generators(3, (5, 0, 2**40)), strict=True):
        drawn[row] = generator.integers(0, 2, 7), generator.poisson(1.0, 5)
    for row, (signs, counts) in drawn.items():
        alone = np.random.Generator(np.random.Philox(key=[3, row]))
        np.testing.assert_array_equal(signs, alone.integers(0, 2, 7))
        np.testing.assert_array_equal(counts, alone.poisson(1.0, 5))


def test_names_draw_their_own_numbers() -> None:
    assert named_generator("a").random() == named_generator("a").random()
    assert named_generator("a").random() != named_generator("b").random()


def test_seeding_ends_with_the_block() -> None:
    before = torch.get_rng_state()
    with seeded(5):
        inside = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(inside, torch.rand(3, generator=torch.Generator().manual_seed(5)))


def test_seeding_is_what_torch_does() -> None:
    for seed in (0, 2**56 - 1):
        torch.manual_seed(seed)
        theirs = torch.get_rng_state()
        torch.manual_seed(1)
        seed_torch(seed)
        assert torch.equal(torch.get_rng_state(), theirs)


def test_seeding_leaves_gpus_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    seed_torch(7)
    assert seeds == [7]
