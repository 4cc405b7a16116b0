"""Attention replaced by fixed probabilities, against the same product done by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vitreous
from specimen.surgery import attention_by, check, forward, operated, same
from specimen.toys import Attention, Block, Transformer, open_toy, part, pictures, unfused
from specimen.zoo import images, opened
from vitreous.errors import UnknownName, VitreousError


def box(side: int, prefix: int, reach: int) -> Tensor:
    """Equal weights over the neighbourhood of each cell, one loop at a time; prefix tokens look at
    everything."""
    tokens = prefix + side * side
    weights = torch.zeros(tokens, tokens)
    for q in range(tokens):
        for k in range(tokens):
            if q < prefix:
                weights[q, k] = 1
            elif k >= prefix:
                (a, b), (c, d) = divmod(q - prefix, side), divmod(k - prefix, side)
                weights[q, k] = float(abs(a - c) <= reach and abs(b - d) <= reach)
    return weights / weights.sum(1, keepdim=True)


PRODUCTS = pytest.mark.parametrize(
    "attend",
    [
        pytest.param(nn.functional.scaled_dot_product_attention, id="fused"),
        pytest.param(unfused, id="unfused"),
    ],
)


@PRODUCTS
def test_uniform_attention_is_the_mean_of_the_values(attend: Any) -> None:
    model = Transformer(Block(Attention(attend)), Block(Attention(attend)), cls=True)
    specimen = open_toy(model)
    mean = attention_by(lambda value: torch.full((17, 17), 1 / 17))
    check(
        specimen.with_attention("blocks.1.attn", "uniform"),
        operated(model, "blocks.1.attn", mean),
        pictures(),
        model,
    )


@PRODUCTS
@pytest.mark.parametrize("cls", [False, True])
def test_uniform_attention_over_a_neighbourhood(attend: Any, cls: bool) -> None:
    model = Transformer(Block(Attention(attend)), cls=cls)
    specimen = open_toy(model)
    weights = box(4, int(cls), 1)
    near = attention_by(lambda value: weights)
    edited = specimen.with_attention("attention", "uniform 3x3")
    check(edited, operated(model, "blocks.0.attn", near), pictures(), model)
    seen = edited.observe(pictures(), ["attention"])["blocks.0.attn"].attention
    assert seen is not None
    torch.testing.assert_close(seen.dense(), weights.expand(2, 2, -1, -1))


@PRODUCTS
def test_a_given_matrix(attend: Any) -> None:
    model = Transformer(Block(Attention(attend)), cls=True)
    specimen = open_toy(model)
    one, two = torch.rand(17, 17).softmax(-1), torch.rand(2, 17, 17).softmax(-1)
    for matrix in (one, two):
        by_hand = operated(model, "blocks.0.attn", attention_by(lambda value, m=matrix: m))  # type: ignore[misc]
        check(specimen.with_attention("blocks.0.attn", matrix), by_hand, pictures(), model)
    again = specimen.with_attention("blocks.0.attn", one).with_attention("blocks.0.attn", two)
    check(again, by_hand, pictures(), model)
    with pytest.raises(VitreousError, match=r"\(17, 17\).*\(2, 17, 17\).*not \(16, 16\)"):
        specimen.with_attention("blocks.0.attn", torch.ones(16, 16))
    with pytest.raises(VitreousError, match="odd sides"):
        specimen.with_attention("blocks.0.attn", "uniform 2x2")
    with pytest.raises(VitreousError, match=r"'uniform'.*not 'even'"):
        specimen.with_attention("blocks.0.attn", "even")
    with pytest.raises(VitreousError, match=r"'blocks\.0\.mlp' \(mlp.* no attention"):
        specimen.with_attention("blocks.0.mlp", "uniform")
    with pytest.raises(UnknownName, match=r"blocks\.0\.attn"):
        specimen.with_attention("blocks.0.attn", {"blocks.1.attn": one})


@PRODUCTS
def test_a_removed_unit_is_not_taken_for_one_that_is_edited_later(attend: Any) -> None:
    """What an edit adds to the graph needs a name that no later edit of another unit gives."""
    specimen = open_toy(Transformer(Block(Attention(attend)), Block(Attention(attend)), cls=True))
    fixed = specimen.with_attention("blocks.0.attn", "uniform").without("blocks.0.attn")
    edited = fixed.with_attention("blocks.1.attn", "uniform 3x3")
    assert list(edited.observe(pictures(), ["attention"])) == ["blocks.1.attn"]
    with pytest.raises(VitreousError, match="earlier edit removed"):
        edited.with_attention("blocks.0.attn", "uniform")


def test_grouped_queries_with_a_given_matrix() -> None:
    def grouped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)

    model = Transformer(Block(Attention(grouped, key_heads=1)))
    matrix = torch.rand(2, 16, 16).softmax(-1)
    edited = open_toy(model).with_attention("attention", matrix)
    check(
        edited,
        operated(model, "blocks.0.attn", attention_by(lambda value: matrix)),
        pictures(),
        model,
    )


@pytest.mark.parametrize("name", ["vit", "swin", "cait"])
def test_mean_attention_of_one_image_reproduces_its_output(name: str) -> None:
    model, specimen = opened(name)
    batch = images(specimen, 3)
    mean = specimen.mean_attention([batch[:1]])
    edited = specimen.with_attention("attention", mean)
    with torch.no_grad():
        given, wanted = edited(batch), model(batch)
    same(given[:1], wanted[:1])
    assert (given[1:] - wanted[1:]).abs().max() > 1e-4


def test_the_mean_is_taken_over_images_not_batches() -> None:
    _, specimen = opened("vit")
    batch = images(specimen, 3)
    wanted = specimen.observe(batch, ["attention"])["blocks.0.attn"].attention
    assert wanted is not None
    mean = specimen.mean_attention([batch[:2], batch[2:]], "blocks.0.attn")
    assert list(mean) == ["blocks.0.attn"]
    torch.testing.assert_close(mean["blocks.0.attn"], wanted.values.mean(0))
    with pytest.raises(VitreousError, match="no images"):
        specimen.mean_attention([])


@pytest.mark.parametrize("block", [0, 1])
def test_uniform_attention_in_windows(block: int) -> None:
    """Swin: the mean of the values in each window, cut by hand; a shifted window is rolled there
    and back."""
    model = copy.deepcopy(opened("swin")[0])
    path = f"layers.0.blocks.{block}"
    with torch.no_grad():
        part(model, f"{path}.attn").qkv.weight.mul_(
            9
        )  # so that its own attention is far from uniform
    specimen = vitreous.open(model)

    def attn(module: Any, x: Tensor) -> Tensor:
        shift, width = -3 * block, x.shape[-1]
        value = nn.functional.linear(
            x, module.attn.qkv.weight[-width:], module.attn.qkv.bias[-width:]
        )
        value = value.roll((shift, shift), (1, 2)).unflatten(2, (2, 7)).unflatten(1, (2, 7))
        mean = value.mean((2, 4), keepdim=True).expand_as(value).flatten(3, 4).flatten(1, 2)
        return module.attn.proj(mean.roll((-shift, -shift), (1, 2)))

    def instead(module: Any, x: Tensor) -> Tensor:
        x = x + attn(module, module.norm1(x))
        return x + module.mlp(module.norm2(x))

    edited = specimen.with_attention(f"{path}.attn", "uniform")
    check(edited, operated(model, path, forward(instead)), images(specimen), model)


def test_a_neighbourhood_in_shifted_windows_does_not_wrap_around() -> None:
    _, specimen = opened("swin")
    edited = specimen.with_attention("layers.0.blocks.1.attn", "uniform 3x3")
    seen = edited.observe(images(specimen), ["attention"], "layers.0.blocks.1.attn")
    found = seen["layers.0.blocks.1.attn"].attention
    assert found is not None
    place = torch.arange(196)
    window = ((place // 14 - 3) % 14 // 7) * 2 + (place % 14 - 3) % 14 // 7
    near = (box(14, 0, 1) > 0) & (window[:, None] == window[None, :])
    wanted = near / near.sum(1, keepdim=True)
    torch.testing.assert_close(found.dense(), wanted.expand(2, 2, -1, -1))
