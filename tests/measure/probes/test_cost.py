"""Operations in closed form; time of the model itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

import vitreous
from measure.looks import cnn, images, vit
from vitreous.errors import VitreousError
from vitreous.measure.probes import cost


def vit_flops(
    tokens: int, width: int, hidden: int, blocks: int, patch: int, classes: int, prefix: int
) -> int:
    """Two for a multiplication and an addition: projections, the two products of attention, MLP,
    embedding, head."""
    attention = tokens * width * 3 * width + 2 * tokens * tokens * width + tokens * width * width
    block = attention + 2 * tokens * width * hidden
    return 2 * ((tokens - prefix) * patch * patch * 3 * width + blocks * block + width * classes)


def test_operations_of_a_transformer() -> None:
    expected = vit_flops(17, 8, 16, 2, 4, 5, 1)
    assert cost.flops(vit(), torch.zeros(1, 3, 16, 16, dtype=torch.float64)) == expected
    found = vitreous.inspect([vit(), vitreous.open(vit())], images(6), ["cost"], device="cpu")[
        "cost"
    ].table
    assert found["gflops"].to_list() == pytest.approx([expected / 1e9] * 2)
    assert found["parameters"].to_list() == [sum(p.numel() for p in vit().parameters())] * 2


def test_operations_of_attention_do_not_depend_on_which_kernels_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Older versions of torch do not know how to count the one for a CPU."""
    model, shown = vit(), torch.zeros(1, 3, 16, 16, dtype=torch.float64)
    before = cost.flops(model, shown)
    monkeypatch.delitem(
        flop_registry, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, raising=False
    )
    assert cost.flops(model, shown) == before


def test_operations_of_a_convolution() -> None:
    model = nn.Conv2d(3, 7, 3, padding=1)
    assert cost.flops(model, torch.zeros(2, 3, 10, 12)) == 2 * 2 * 10 * 12 * 7 * 3 * 9


def test_a_lesion_saves_operations() -> None:
    opened = vitreous.open(vit())
    table = vitreous.inspect([opened, opened.without("mlp")], images(4), ["cost"], device="cpu")[
        "cost"
    ].table
    whole, less = table["gflops"]
    assert whole - less == pytest.approx(2 * 2 * 2 * 17 * 8 * 16 / 1e9)


def test_the_original_model_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[tuple[type[nn.Module], int, bool]] = []

    def seconds(model: nn.Module, shown: Any, repeats: int) -> list[float]:
        timed.append((type(model), len(shown), model.training))
        return [0.5, 0.25, 1.0][:repeats]

    monkeypatch.setattr(cost, "seconds", seconds)
    model, opened = cnn().train(), vitreous.open(vit()).without("blocks.1.attn")
    found = vitreous.inspect(
        [model, opened], images(50), ["cost"], shard=20, batch=5, device="cpu"
    )["cost"].table
    assert timed == [(type(model), 5, False), (type(opened), 5, False)]
    assert model.training
    assert found[["low", "value", "high"]].to_numpy().tolist() == [[5.0, 10.0, 20.0]] * 2
    assert (found["batch"] == 5).all()
    assert found["device"].str.startswith("cpu").all()


def test_real_time() -> None:
    options = {"cost": {"images": 3, "repeats": 4}}
    row = vitreous.inspect(vit(), images(10), options, device="cpu")["cost"].table.iloc[0]
    assert 0 < row["low"] <= row["value"] <= row["high"]
    assert row["batch"] == 3
    assert len(cost.seconds(nn.Identity(), torch.zeros(1), 4)) == 4


@pytest.mark.parametrize("option", ["images", "repeats"])
def test_options_that_make_no_sense(option: str) -> None:
    with pytest.raises(
        VitreousError, match=rf"{option} ?= ?0.*it takes (at least one|numbers from 1)"
    ):
        vitreous.inspect(vit(), images(3), {"cost": {option: 0}}, device="cpu")
