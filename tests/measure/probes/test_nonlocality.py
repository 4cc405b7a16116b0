"""Nonlocality is attention distance in patches, with the paper's numbers for uniform attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitreous
from measure.probes.attending import ask, attention_units, look, mean_distance, opened, subject
from measure.probes.noise import noise
from vitreous.training.locality import head_nonlocality


@pytest.mark.parametrize(
    ("side", "wanted"), [(4, 2.01), (7, 3.61), (8, 4.14), (14, 7.28), (16, 8.33)]
)
def test_uniform_attention_by_grid(side: int, wanted: float) -> None:
    model = vitreous.build(
        "vit_ti/4", image=4 * side, depth=1, heads=1, width=8, classes=0, pool="gap"
    )
    specimen = vitreous.open(model).with_attention("attention", "uniform")
    table = vitreous.inspect(specimen, noise(1), ["nonlocality"])["nonlocality"].table
    assert table["value"].item() == pytest.approx(wanted, abs=0.01)
    assert table["uniform"].item() == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize("name", ["class", "wide", "swin", "pvt"])
def test_distances_in_patches_of_the_unit(name: str) -> None:
    table, observed = ask(opened(name), "nonlocality").table, look(opened(name))
    for unit in attention_units(opened(name)):
        found = observed[unit].attention
        assert found is not None
        found = found.probabilities
        wanted = mean_distance(found, found.query_grid).mean(0)
        np.testing.assert_allclose(table.loc[table["unit"] == unit, "value"], wanted, rtol=1e-5)


def test_equals_the_record_of_a_training() -> None:
    """Two ways to the same number: layers asked by hand, and what is seen in passing; with gates
    and a class token."""
    torch.manual_seed(0)
    model = vitreous.build(
        "convit_ti", image=32, patch=8, classes=3, depth=3, heads=4, head_dim=8, gpsa=2
    ).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    table = vitreous.inspect(model, noise(4, 32), ["nonlocality"])["nonlocality"].table
    prepared = subject(vitreous.open(model)).prepare(noise(4, 32).images)
    wanted = head_nonlocality(model, prepared)["true"]
    np.testing.assert_allclose(table["value"].to_numpy().reshape(3, 4), wanted, rtol=1e-4)
    np.testing.assert_allclose(
        table["mean"].to_numpy().reshape(3, 4)[:, 0], np.mean(wanted, 1), rtol=1e-4
    )


def test_cvt_10_a_fresh_convit_is_local() -> None:
    """The exact value at the start for four heads on 8x8 patches is 1.80 with uniform content
    (catalogue)."""
    torch.manual_seed(0)
    model = vitreous.build(
        "convit_ti", image=32, patch=4, classes=3, depth=2, heads=4, head_dim=8, gpsa=1
    ).eval()
    with torch.no_grad():
        model.get_submodule("blocks.0.attn.qk").weight.zero_()  # type: ignore[operator]
    table = vitreous.inspect(model, noise(2, 32), ["nonlocality"])["nonlocality"].table
    assert table["mean"][0] == pytest.approx(1.80, abs=0.01)
