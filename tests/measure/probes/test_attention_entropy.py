"""Entropy one row at a time, and the two ends of the scale."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy

import vitreous
from measure.probes import attending
from measure.probes.attending import ask, attention_units, look, opened, random_map
from measure.probes.noise import noise
from vitreous.measure.heads import cross_entropy, shared_cross_entropy


def test_against_scipy_with_zeros() -> None:
    values = (torch.randn(2, 3, 4, 5, 6, dtype=torch.float64) * 3).softmax(-1)
    values[..., 2] = 0
    wanted = (
        scipy_entropy(values.numpy(), base=2, axis=-1) * values.sum(-1).numpy()
    )  # scipy scales rows to one
    wanted -= values.sum(-1).numpy() * np.log2(values.sum(-1).numpy())
    found = cross_entropy(values, torch.arange(15).reshape(3, 5)).diagonal(dim1=1, dim2=2)
    np.testing.assert_allclose(found, wanted.mean((1, 3)), rtol=1e-10)


def test_the_cache_of_the_last_attention_does_not_mix_up_units() -> None:
    tokens = [[0, 1, 2]]
    one, other = (random_map(tokens, tokens, 0, ((1, 3), (1, 3))) for _ in range(2))
    first = shared_cross_entropy(one)
    assert shared_cross_entropy(one) is first
    torch.testing.assert_close(
        shared_cross_entropy(other), cross_entropy(other.values, other.queries)
    )
    assert not torch.equal(shared_cross_entropy(other), first)
    del other
    torch.testing.assert_close(shared_cross_entropy(one), first)


@pytest.mark.parametrize("name", ["class", "swin", "pvt", "cait"])
def test_every_kind_of_attention(name: str) -> None:
    table, observed = ask(opened(name), "attention_entropy").table, look(opened(name))
    for unit in attention_units(opened(name)):
        found = observed[unit].attention
        assert found is not None
        found = found.probabilities
        rows = table[table["unit"] == unit]
        np.testing.assert_allclose(rows["value"], attending.entropy(found).mean(0), rtol=1e-5)
        assert (rows["relative"] < 1).all()


def test_uniform_attention_has_the_logarithm_of_its_keys() -> None:
    for name, keys in (("plain", 16), ("class", 17), ("pvt", 4), ("cait", 4)):
        table = ask(
            opened(name).with_attention(attention_units(opened(name))[0], "uniform"),
            "attention_entropy",
        ).table
        assert table["uniform"][0] == pytest.approx(np.log2(keys), rel=1e-5)
        assert table["value"][0] == pytest.approx(np.log2(keys), rel=1e-5)
        assert table["relative"][0] == pytest.approx(1, rel=1e-5)


def test_attention_to_one_token_has_none() -> None:
    table = ask(
        opened("class").with_attention("attention", torch.eye(17)), "attention_entropy"
    ).table
    np.testing.assert_allclose(table["value"], 0, atol=1e-7)


def test_models_side_by_side_have_a_line_each() -> None:
    """16 and 17 keys differ by a percent and a half in bits: two lines, each with its model's
    name."""
    found = vitreous.inspect(
        {"a": opened("plain"), "b": opened("class")}, noise(2), ["attention_entropy"]
    )
    lines = found["attention_entropy"].views[0].references
    assert [line.label for line in lines] == ["uniform, a", "uniform, b"]
    assert [line.value for line in lines] == pytest.approx([4, np.log2(17)], abs=1e-3)
