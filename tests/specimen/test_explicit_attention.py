"""ConViT's layers never make their attention; a specimen shows it all the same, and computes what
the model does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import vitreous
from models.weights import shaken
from vitreous.errors import NotExportable
from vitreous.models.convit import GPSA, ConViT, to_timm
from vitreous.specimen.specimen import Specimen

NANO: dict[str, Any] = {
    "image": 32,
    "patch": 8,
    "classes": 5,
    "depth": 3,
    "heads": 4,
    "head_dim": 8,
    "gpsa": 2,
}


def nano(**options: Any) -> ConViT:
    model = vitreous.build("convit_ti", **{**NANO, **options})
    assert isinstance(model, ConViT)
    return shaken(model, 0.3).eval()


def images(count: int = 3, height: int = 32) -> Tensor:
    return torch.randn(count, 3, height, 32, generator=torch.Generator().manual_seed(1))


def seen(specimen: Specimen, batch: Tensor) -> dict[str, Tensor]:
    found = specimen.observe(batch, ["attention"], "attention")
    return {
        name: sites.attention.dense()
        for name, sites in found.items()
        if sites.attention is not None
    }


@pytest.mark.parametrize(
    "options", [{}, {"class_at": "start"}, {"pool": "gap", "image": (48, 32)}, {"kind": "psa"}]
)
def test_the_mixed_attention_is_observed_and_the_output_unchanged(options: dict[str, Any]) -> None:
    model, grid = nano(**options), (6 if "image" in options else 4, 4)
    specimen, batch = vitreous.open(model), images(height=grid[0] * 8)
    shown = seen(specimen, batch)
    before = specimen.observe(batch, ["before"], "attention")
    with torch.no_grad():
        torch.testing.assert_close(
            specimen(batch), model(batch), rtol=0, atol=1e-6 * float(model(batch).abs().max())
        )
        layers: list[Any] = list(model.positional_attentions())
        for index, layer in enumerate(layers):
            entered = before[f"blocks.{index}.attn"].before
            assert entered is not None
            block: Any = model.blocks[index]
            wanted = layer.attention(block.norm1(entered.tokens), grid)
            torch.testing.assert_close(shown[f"blocks.{index}.attn"], wanted, rtol=0, atol=1e-6)
            torch.testing.assert_close(
                wanted.sum(-1), torch.ones(wanted.shape[:-1]), rtol=0, atol=1e-5
            )


def test_timm_with_the_same_weights_has_equal_attention() -> None:
    model = nano()
    ours, theirs = (
        seen(vitreous.open(model), images()),
        seen(vitreous.open(to_timm(model).eval()), images()),
    )
    assert list(ours) == list(theirs) == ["blocks.0.attn", "blocks.1.attn", "blocks.2.attn"]
    for name, matrix in ours.items():
        torch.testing.assert_close(matrix, theirs[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("class_at", ["after", "start"])
def test_the_matrix_of_a_layer_reproduces_its_forward_pass(class_at: Any) -> None:
    """In float64, with and without the class token inside: probabilities times values are the fused
    output."""
    layer = shaken(GPSA(12, 4), 0.5).double()
    x = torch.randn(2, 12 + (class_at == "start"), 12, dtype=torch.float64)
    fused = layer(x, (3, 4))
    layer.explicit_attention = True
    torch.testing.assert_close(layer(x, (3, 4)), fused, rtol=0, atol=1e-12)


def test_the_model_is_left_as_it_was_even_when_its_graph_cannot_be_read() -> None:
    model = nano()
    vitreous.open(model)
    assert not any("explicit_attention" in vars(module) for module in model.modules())
    with pytest.raises(NotExportable):
        vitreous.open(model, image=40)
    assert not any("explicit_attention" in vars(module) for module in model.modules())


def test_the_cache_does_not_depend_on_explicit_attention_set_by_hand() -> None:
    """Both are read explicitly, so that the cache of graphs cannot give the one the other's."""
    for by_hand in (True, False, True):
        model = nano()
        for layer in model.positional_attentions():
            assert isinstance(layer, GPSA)
            layer.explicit_attention = by_hand
        plain = nano()
        plain.load_state_dict(model.state_dict())
        for name, matrix in seen(vitreous.open(model), images()).items():
            torch.testing.assert_close(
                matrix, seen(vitreous.open(plain), images())[name], rtol=0, atol=1e-6
            )
        assert all(
            vars(layer)["explicit_attention"] is by_hand for layer in model.positional_attentions()
        )
