"""Networks at another resolution, with positions that were not interpolated."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from vitreous.models import build
from vitreous.models.positions import Learned1d
from vitreous.studies.measuring import _record_rows, _replace_positions
from vitreous.training import locality
from vitreous.training.adapt import adapt


def table(model: torch.nn.Module) -> torch.Tensor:
    (found,) = (each for each in model.modules() if isinstance(each, Learned1d))
    return found.table[0]


@pytest.mark.parametrize("how", ["truncated", "random"])
def test_positions_that_were_not_interpolated(how: str) -> None:
    model = build("vit_nano", image=16, classes=3)
    with torch.no_grad():
        table(model).normal_()
    larger = adapt(model, classes=3, image=32, head="keep")
    interpolated = table(larger).clone()
    _replace_positions(larger, model, how)
    assert torch.equal(table(larger)[0], table(model)[0])
    assert not torch.equal(table(larger)[1:], interpolated[1:])
    if how == "truncated":
        assert torch.equal(table(larger)[: len(table(model))], table(model))
        assert not table(larger)[len(table(model)) :].any()
    else:
        assert 0.015 < float(table(larger)[1:].detach().std()) < 0.025


def test_gates_and_nonlocality_have_rows_by_layer_and_head() -> None:
    """As a training records them: a head of a layer in each row, the gated layers first."""
    model = build("convit_nano", image=16, classes=3, patch=4, depth=3, heads=4, gpsa=2)
    with torch.no_grad():
        for layer, head in ((0, 1), (1, 3)):
            model.blocks[layer].attn.gating_param[head] = 5.0  # type: ignore[index,union-attr]
    found = pd.DataFrame(
        _record_rows({"epoch": 4, **locality.attention_locality(model, torch.rand(2, 3, 16, 16))})
    )
    gates = found[found["measure"] == "gate"]
    assert [tuple(each) for each in gates[["layer", "head"]].to_numpy()] == [
        (i, h) for i in range(2) for h in range(4)
    ]
    assert {tuple(each) for each in gates[gates["value"] > 0.99][["layer", "head"]].to_numpy()} == {
        (0, 1),
        (1, 3),
    }
    far = found[found["measure"] == "nonlocality"]
    assert set(far["reading"]) == {"true", "official"}
    assert len(far) == 2 * 3 * 4
    assert set(found["epoch"]) == {4}


def test_a_model_of_that_size_stays_as_it_is() -> None:
    """Also one whose weights are tied to its grid."""
    model = build("vit_nano", image=16, classes=3, mixer="mean", pool="gap")
    same = adapt(model, classes=3, image=16, head="keep")
    assert all(
        torch.equal(one, other)
        for one, other in zip(model.parameters(), same.parameters(), strict=True)
    )
