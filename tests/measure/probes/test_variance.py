"""Variance against torch.var in float64, and what units do to it by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import vitreous
from measure.probes.noise import noise
from specimen.toys import Block, Convolutional, Parallel, Residual, Transformer, settled
from vitreous.measure.probes.variance import Variance, variance
from vitreous.measure.subject import subjects
from vitreous.results import Result


def ask(model: nn.Module, batch: int | None = None) -> Result:
    return vitreous.inspect(model, noise(), ["variance"], batch=batch, image=16)["variance"]


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_against_torch(offset: float) -> None:
    """Also far from zero, where float32 without centring has nothing left."""
    maps = torch.randn(4, 32, 7, 9) + offset
    expected = maps.double().flatten(2).var(-1).mean(1)
    np.testing.assert_allclose(variance(maps), expected, rtol=1e-5)
    np.testing.assert_allclose(variance(maps.double()), expected, rtol=1e-12)
    half = maps.to(torch.bfloat16)
    np.testing.assert_allclose(variance(half), half.double().flatten(2).var(-1).mean(1), rtol=1e-5)


def test_any_layout_in_memory() -> None:
    maps = torch.randn(2, 6, 4, 4)
    channels_last = maps.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    np.testing.assert_allclose(variance(maps), variance(channels_last), rtol=1e-6)


def test_known_maps() -> None:
    stripes = torch.zeros(1, 1, 2, 2)
    stripes[..., 1] = 2.0
    assert variance(stripes).item() == pytest.approx(4 / 3)  # unbiased: 4 of squares over 3
    assert variance(torch.full((1, 3, 5, 5), 0.1)).item() == 0.0


@pytest.mark.parametrize("cls", [False, True])
def test_units_against_their_own_input_without_prefix_tokens(cls: bool) -> None:
    model = settled(Transformer(Block(), Parallel(), cls=cls))
    specimen = vitreous.open(model, image=16)
    (subject,) = subjects(specimen)
    seen = specimen.observe(subject.prepare(noise().images), ("before", "after"))
    table = ask(model).table.set_index("unit")
    assert table["ratio"].isna().tolist() == [True, False, False, False, False]
    for unit in specimen.units[1:-1]:
        sites = seen[unit.name]
        assert sites.before is not None
        assert sites.after is not None
        before, after = (
            at.raw[:, int(cls) :].double().var(1).mean() for at in (sites.before, sites.after)
        )
        assert table.loc[unit.name, "value"] == pytest.approx(after.item(), rel=1e-5)
        assert table.loc[unit.name, "ratio"] == pytest.approx((after / before).item(), rel=1e-5)


def test_intervals_of_ratios_hold_them() -> None:
    table = ask(settled(Convolutional(Residual(), Residual()))).table.iloc[1:]
    assert (table["ratio_low"] < table["ratio"]).all()
    assert (table["ratio"] < table["ratio_high"]).all()


def test_a_constant_layer_has_variance_zero_and_no_ratio() -> None:
    model = settled(Transformer(Block()))
    nn.init.zeros_(model.get_submodule("stem.proj").weight)  # type: ignore[arg-type]
    table = ask(model).table
    assert table["value"].tolist() == [0.0, 0.0, 0.0]
    assert table["ratio"].isna().all()


def test_size_of_batches_does_not_matter() -> None:
    model = settled(Transformer(Block(), cls=True))
    one, other = (ask(model, batch).table.select_dtypes("number") for batch in (None, 3))
    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_single_position_does_not_vary() -> None:
    (subject,) = subjects(vitreous.open(settled(Transformer(Block())), image=16))
    stem, *_, head = subject.specimen.units
    assert (
        Variance().refuses(subject, replace(stem, grid=(1, 1)))
        == "Its feature map is a single position."
    )
    assert (
        Variance().refuses(subject, replace(stem, grid=None))
        == "It has no feature map: positions are gone."
    )
    assert Variance().refuses(subject, head) == ""
