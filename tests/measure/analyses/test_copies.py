"""Copies side by side, and lean layers, against the plain model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vitreous
from vitreous.errors import VitreousError
from vitreous.measure.curvature.loss import weights
from vitreous.measure.curvature.parameter_points import (
    attend,
    scores_at,
    with_fused_linear,
    with_stackable_attention,
    with_statistics,
)


class Mixing(nn.Module):
    """Attention with a learned mask, GELUs of both kinds, one that is used twice, a layer without
    bias."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.norm = nn.Conv2d(3, 8, 8, 8), nn.BatchNorm2d(8)
        self.qkv, self.mask = nn.Linear(8, 24, bias=False), nn.Parameter(torch.randn(2, 16, 16))
        self.one, self.two, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 5)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.norm(self.stem(images)).flatten(2).transpose(1, 2)
        query, key, value = self.qkv(tokens).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        mixed = (
            F.scaled_dot_product_attention(query, key, value, self.mask).transpose(1, 2).flatten(2)
        )
        mixed = F.gelu(self.one(mixed), approximate="tanh")
        twice = self.two(mixed)
        found: Tensor = self.head((F.gelu(twice) + twice).mean(1))
        return found


def stacked(specimen: Any, copies: int) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return {
        name: value + 0.1 * torch.randn(copies, *value.shape)
        for name, value in weights(specimen).items()
    }


@torch.no_grad()
@pytest.mark.filterwarnings("error")
def test_copies_in_parallel_equal_copies_one_by_one() -> None:
    specimen = vitreous.open(Mixing(), image=32)
    moved, images = stacked(specimen, 3), torch.randn(4, 3, 32, 32)
    together = scores_at(with_stackable_attention(specimen), moved, images, 3)
    for i in range(3):
        alone = scores_at(specimen, {name: value[i] for name, value in moved.items()}, images)
        torch.testing.assert_close(together[i], alone, rtol=1e-4, atol=1e-5)
    assert together[0].sub(together[1]).abs().max() > 1e-2


@torch.no_grad()
@pytest.mark.parametrize("at_a_time", [1, 3, 4, 9])
def test_some_images_after_the_other(at_a_time: int) -> None:
    """Every one of them with the weights that were given, and the model has its own again
    afterwards."""
    specimen = with_fused_linear(vitreous.open(Mixing(), image=32))
    own = {name: value.clone() for name, value in specimen.state_dict().items()}
    moved, images = (
        {name: value[0] for name, value in stacked(specimen, 1).items()},
        torch.randn(4, 3, 32, 32),
    )
    together, plain = scores_at(specimen, moved, images), scores_at(specimen, {}, images)
    torch.testing.assert_close(
        scores_at(specimen, moved, images, at_a_time=at_a_time), together, rtol=1e-4, atol=1e-5
    )
    assert together.sub(plain).abs().max() > 1e-2
    assert all(torch.equal(value, own[name]) for name, value in specimen.state_dict().items())


@torch.no_grad()
@pytest.mark.parametrize("shape", [(5, 5), (2, 5, 5), (1, 1, 5, 5), (4, 1, 5, 5), None])
@pytest.mark.parametrize("batched", [(True, True), (True, False), (False, True)])
def test_attention_of_copies_with_masks_of_any_shape(
    shape: Any, batched: tuple[bool, bool]
) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 6, 4, 2, 5, 8).unbind(0)
    mask = None if shape is None else torch.randn(6, *shape)
    query = query if batched[0] else query[0]
    mask = mask if batched[1] or mask is None else mask[0]
    axes = 0 if batched[0] else None, 0, 0, 0 if batched[1] and mask is not None else None
    found = torch.vmap(attend, in_dims=axes)(query, key, value, mask)
    for i in range(6):
        own = None if mask is None else mask[i] if batched[1] else mask
        expected = F.scaled_dot_product_attention(
            query[i] if batched[0] else query, key[i], value[i], own
        )
        torch.testing.assert_close(found[i], expected)


@torch.no_grad()
def test_fused_linear_layers_compute_the_same() -> None:
    specimen, images = vitreous.open(Mixing(), image=32), torch.randn(4, 3, 32, 32)
    thrifty = with_fused_linear(specimen)
    torch.testing.assert_close(thrifty(images), specimen(images), rtol=1e-5, atol=1e-6)
    targets = [str(node.target) for node in thrifty.module.graph.nodes]
    if any("_linear_pointwise" in target for target in targets):
        assert (
            sum("gelu" in target for target in targets) == 1
        )  # the one whose input is needed as well
        assert not any("aten.linear" in target for target in targets)
    double = vitreous.open(Mixing().double(), image=32)
    assert with_fused_linear(double) is double


@torch.no_grad()
@pytest.mark.parametrize("pool", ["token", "avg"])
def test_only_the_class_token_is_computed_in_the_last_block(pool: str) -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    how = {
        "img_size": 32,
        "patch_size": 8,
        "embed_dim": 16,
        "depth": 2,
        "num_heads": 2,
        "num_classes": 5,
    }
    model = timm.models.vision_transformer.VisionTransformer(
        **how, global_pool=pool, fc_norm=False
    ).eval()
    specimen, images = vitreous.open(model, image=32), torch.randn(4, 3, 32, 32)
    thrifty = with_fused_linear(specimen)
    torch.testing.assert_close(thrifty(images), specimen(images), rtol=1e-5, atol=1e-6)
    sizes: list[int] = []

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if "layer_norm" in str(func):
                sizes.append(args[0].numel() // 16)
            return func(*args, **(kwargs or {}))

    with Watching():  # type: ignore[no-untyped-call]
        thrifty(images)
    assert sizes == (
        [68, 68, 68, 4, 4] if pool == "token" else [68] * 5
    )  # of four images of 17 tokens


@torch.no_grad()
def test_statistics_of_the_batch() -> None:
    model, images = Mixing(), torch.randn(4, 3, 32, 32)
    specimen = vitreous.open(model, image=32)
    assert with_statistics(specimen, "running") is specimen
    found = with_statistics(specimen, "batch")(images)
    before = {name: value.clone() for name, value in model.named_buffers()}
    assert all(torch.equal(before[name], value) for name, value in model.named_buffers())
    model.norm.train()
    torch.testing.assert_close(found, model(images), rtol=1e-5, atol=1e-6)


def test_no_score_for_each_class() -> None:
    specimen = vitreous.open(nn.Sequential(nn.Conv2d(3, 4, 3)), image=8)
    with pytest.raises(VitreousError, match="no score for each class"):
        scores_at(specimen, {}, torch.zeros(1, 3, 8, 8))
