"""Gates and nonlocality against loops, reference values and the definition."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from models.weights import shaken
from vitreous.models import build
from vitreous.specimen.attention_geometry import mean_patch_distance
from vitreous.training.locality import attention_locality, head_gates, head_nonlocality


def by_loops(attention: Tensor, rows: int, columns: int) -> list[float]:
    """The definition, token by token, of (n, heads, tokens, tokens); extra tokens come first."""
    extra, count = attention.shape[-1] - rows * columns, rows * columns
    heads = []
    for head in attention.detach().transpose(0, 1).double():
        total = 0.0
        for one in head:
            for i in range(count):
                row = [float(one[extra + i, extra + j]) for j in range(count)]
                far = [
                    math.hypot(i // columns - j // columns, i % columns - j % columns)
                    for j in range(count)
                ]
                total += sum(a * d for a, d in zip(row, far, strict=True)) / sum(row)
        heads.append(total / count / len(head))
    return heads


@pytest.mark.parametrize(
    ("side", "value"), [(4, 2.01), (7, 3.61), (8, 4.14), (14, 7.28), (16, 8.33)]
)
def test_uniform_attention(side: int, value: float) -> None:
    uniform = torch.full((1, 2, side**2, side**2), 1 / side**2)
    assert mean_patch_distance(uniform, (side, side)).tolist() == pytest.approx(
        [value] * 2, abs=0.005
    )


def test_attention_to_oneself_and_to_the_next() -> None:
    assert mean_patch_distance(torch.eye(6).expand(1, 1, 6, 6), (2, 3)).tolist() == [0]
    neighbour = torch.eye(6)[[1, 0, 1, 4, 3, 4]]
    assert mean_patch_distance(neighbour.expand(3, 1, 6, 6), (2, 3)).tolist() == [1]


def test_extra_tokens_are_left_out() -> None:
    attention = torch.rand(2, 3, 8, 8).softmax(-1)
    assert mean_patch_distance(attention, (2, 3)).tolist() == pytest.approx(
        by_loops(attention, 2, 3), rel=1e-5
    )


VITS = [
    {},
    {"distilled": True},
    {"pool": "gap", "pos": "2d", "inject": "every"},
    {"pos": "relative"},
    {"mixer": "neighbourhood", "pool": "gap", "border": "zero"},
]


@pytest.mark.parametrize("options", VITS)
def test_vit_layer_by_layer(options: dict[str, Any]) -> None:
    model: Any = shaken(
        build("vit_ti/4", image=(8, 12), classes=4, depth=2, drop_path=0.5, dropout=0.3, **options)
    )
    images, seen = torch.randn(2, 3, 8, 12), []
    for block in model.blocks:
        block.attn.register_forward_hook(
            lambda layer, given, _: seen.append(layer.weights(given[0]).detach())
        )
    model.eval()(images)
    found = head_nonlocality(model.train(), images)
    assert found["true"] == [pytest.approx(by_loops(a, 2, 3), rel=1e-4) for a in seen[:2]]
    patches = model.patch_embed(images)
    assert found["official"] == [
        pytest.approx(by_loops(b.attn.weights(patches), 2, 3), rel=1e-4) for b in model.blocks
    ]
    assert found["official"] != found["true"]


CONVITS = [
    {},
    {"kind": "psa"},
    {"class_at": "start"},
    {"class_at": "start", "kind": "psa"},
    {"pool": "gap", "content_scale": 1.0},
    {"pos": "none"},
]


@pytest.mark.parametrize("options", CONVITS)
def test_convit_is_what_its_outputs_say(options: dict[str, Any]) -> None:
    """The matrix of a layer is read off its outputs: with v and proj set to choose, they are the
    rows of A."""
    model: Any = shaken(
        build("convit_ti/4", image=8, classes=4, heads=4, head_dim=12, depth=2, gpsa=1, **options)
    )
    images, seen = torch.randn(2, 3, 8, 8), []
    for block in model.blocks:
        block.attn.register_forward_hook(
            lambda layer, given, _: seen.append((layer, given[0].detach()))
        )
    model.eval()(images)
    true, official = (
        head_nonlocality(model, images)["true"],
        head_nonlocality(model, images)["official"],
    )
    for index, (layer, x) in enumerate(seen[:2]):
        assert true[index] == pytest.approx(by_loops(probed(layer, x), 2, 2), rel=1e-3)
    patches = model.patch_embed(images)
    for index, block in enumerate(model.blocks):
        assert official[index] == pytest.approx(
            by_loops(probed(block.attn, patches), 2, 2), rel=1e-3
        )


@torch.no_grad()
def probed(layer: Any, x: Tensor) -> Tensor:
    """A as (n, heads, N, N) by linearity: values of one token at a time, by a hook on the values,
    and no projection."""
    n, tokens, width = x.shape
    heads, proj, out = layer.heads, layer.proj, torch.zeros(n, layer.heads, tokens, tokens)
    layer.proj = torch.nn.Identity()
    values = layer.v if hasattr(layer, "v") else layer.qkv
    for j in range(tokens):

        def only(_: Any, __: Any, given: Tensor, j: int = j) -> Tensor:
            given[..., -width:] = 0
            given[:, j, -width:] = 1
            return given

        hook = values.register_forward_hook(only)
        out[..., j] = layer(x, (2, 2)).view(n, tokens, heads, -1)[..., 0].transpose(1, 2)
        hook.remove()
    layer.proj = proj
    return out


def test_convit_at_initialisation() -> None:
    """σ(1) for every gate; positional heads look half a patch to each side, so they are more local
    than uniform."""
    model = build("convit_ti/4", image=32, classes=4)
    assert list(head_gates(model)) == [f"blocks.{i}.attn" for i in range(10)]
    assert [len(heads) for heads in head_gates(model).values()] == [4] * 10
    assert head_gates(model)["blocks.3.attn"] == pytest.approx([1 / (1 + math.exp(-1))] * 4)
    strong = build("convit_ti/4", image=32, classes=4, locality=10.0)
    near, nearer = (head_nonlocality(m, torch.randn(2, 3, 32, 32))["true"] for m in (model, strong))
    assert len(near) == 12
    assert all(layer[head] < 3 for layer in near[:10] for head in range(4))
    assert all(
        b < a
        for one, two in zip(near[:10], nearer[:10], strict=True)
        for a, b in zip(one, two, strict=True)
    )
    assert all(value == pytest.approx(4.14, abs=0.05) for layer in near[10:] for value in layer)


def test_models_without_attention_of_their_own_have_nothing() -> None:
    images = torch.randn(1, 3, 16, 16)
    for name, options in [
        ("resnet_18", {}),
        ("vit_ti/4", {"mixer": "window", "window": 2, "pool": "gap", "depth": 1}),
    ]:
        model = build(name, image=16, classes=4, **options)
        assert (
            head_gates(model),
            head_nonlocality(model, images),
            attention_locality(model, images),
        ) == ({}, {}, {})
    vit, convit = (
        build("vit_ti/4", image=16, depth=1),
        build("convit_ti/4", image=16, depth=2, gpsa=1),
    )
    assert attention_locality(vit, images).keys() == {"nonlocality"}
    assert attention_locality(convit, images).keys() == {"gates", "nonlocality"}


def test_the_model_is_left_as_it_was() -> None:
    model = build("vit_ti/4", image=16, depth=2, dropout=0.5).train()
    model.get_submodule("blocks.1").eval()
    before = [module.training for module in model.modules()]
    images = torch.randn(1, 3, 16, 16)
    assert head_nonlocality(model, images) == head_nonlocality(model, images)
    assert [module.training for module in model.modules()] == before
    assert all(p.grad is None for p in model.parameters())
