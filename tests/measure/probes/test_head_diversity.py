"""Divergence between heads against scipy, and by what is known of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import rel_entr

from measure.probes.attending import ask, attention_units, look, opened, random_map
from vitreous.measure.heads import cross_entropy
from vitreous.measure.probes.head_diversity import diversity


def by_scipy(values: np.ndarray) -> float:
    """Mean over images, pairs of heads and queries, in bits, of (b, g, h, q, k)."""
    heads = range(values.shape[2])
    pairs = [
        rel_entr(values[:, :, i], values[:, :, j]).sum(-1) for i in heads for j in heads if i != j
    ]
    return float(np.mean(pairs) / np.log(2))


@pytest.mark.parametrize("name", ["class", "swin", "cait"])
def test_against_scipy(name: str) -> None:
    table, observed = (
        ask(opened(name), "head_diversity").table.set_index("unit"),
        look(opened(name)),
    )
    for unit in attention_units(opened(name)):
        found = observed[unit].attention
        assert found is not None
        found = found.probabilities
        values = (
            found.values.double().clamp_min(1e-30).numpy()
        )  # masked pairs are no numbers to divide by
        assert table.loc[unit, "value"] == pytest.approx(by_scipy(values), rel=1e-3)


def test_padding_does_not_count() -> None:
    found = random_map([[0, 1, -1]], [[0, 1, 2]], 0, ((1, 3), (1, 3)), heads=3)
    wanted = by_scipy(found.values[..., :2, :].numpy())
    assert diversity(cross_entropy(found.values, found.queries)).mean() == pytest.approx(
        wanted, rel=1e-10
    )


def test_equal_heads_have_no_divergence() -> None:
    matrix = (torch.randn(17, 17) * 3).softmax(-1)
    table = ask(opened("class").with_attention("attention", matrix), "head_diversity").table
    np.testing.assert_allclose(table["value"], 0, atol=1e-5)


def test_a_unit_with_one_head_has_no_divergence() -> None:
    found = ask(opened("pvt"), "head_diversity")
    assert found.table["unit"].tolist() == attention_units(opened("pvt"))[1:]
    assert list(found.about["left_out"].values()) == [
        {attention_units(opened("pvt"))[0]: "It has one head only."}
    ]
