"""Gates of our ConViT and of timm's, from the weights alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitreous
from measure.probes.noise import noise
from vitreous.errors import VitreousError
from vitreous.models.convit import ConViT, to_timm


@pytest.fixture(scope="module")
def model() -> ConViT:
    made = vitreous.build(
        "convit_ti", image=32, patch=8, classes=3, depth=4, heads=4, head_dim=8, gpsa=3
    ).eval()
    assert isinstance(made, ConViT)
    with torch.no_grad():
        for number, layer in enumerate(made.positional_attentions()):
            layer.get_parameter("gating_param").copy_(torch.tensor([-3.0, 0.0, 1.0, number]))
    return made


def test_ours_and_timms(model: ConViT) -> None:
    result = vitreous.inspect(
        {"ours": model, "timm": to_timm(model).eval()}, noise(2, 32), ["gates"]
    )["gates"]
    for name in ("ours", "timm"):
        rows = result.table[result.table["model"] == name]
        assert rows["unit"].unique().tolist() == ["blocks.0.attn", "blocks.1.attn", "blocks.2.attn"]
        values = rows["value"].to_numpy().reshape(3, 4)
        np.testing.assert_allclose(
            values[:, :3], [[1 / (1 + np.e**3), 0.5, 1 / (1 + 1 / np.e)]] * 3, rtol=1e-7
        )
        np.testing.assert_allclose(
            values[:, 3], [0.5, 1 / (1 + np.e**-1), 1 / (1 + np.e**-2)], rtol=1e-7
        )
        np.testing.assert_allclose(rows["mean"].to_numpy().reshape(3, 4)[:, 0], values.mean(1))
        assert rows["head"].tolist() == [0, 1, 2, 3] * 3


def test_models_without_gates_are_left_out() -> None:
    found = vitreous.inspect("nano:vit", noise(2, 32), ["gates"])
    with pytest.raises(VitreousError, match="no gated positional attention"):
        found["gates"]


def test_cvt_26_gates_start_at_0_731() -> None:
    fresh = vitreous.build(
        "convit_ti", image=32, patch=8, classes=3, depth=2, heads=4, head_dim=8, gpsa=1
    )
    result = vitreous.inspect(fresh, noise(2, 32), ["gates"])["gates"]
    np.testing.assert_allclose(
        result.table["value"], result.views[0].references[0].value, atol=1e-4
    )
