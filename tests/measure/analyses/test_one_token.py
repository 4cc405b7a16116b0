"""Graphs that compute one token alone, against those that compute all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

import vitreous
from vitreous.measure.readout.one_token import one_token
from vitreous.specimen.specimen import Specimen


class Block(nn.Module):
    """Attention with heads rearranged by views, a scale, a table of positions; tokens are read off
    as `how` says."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how = how
        self.stem, self.norm, self.head = nn.Conv2d(3, 8, 8, 8), nn.LayerNorm(8), nn.Linear(8, 5)
        self.qkv, self.proj, self.mlp = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 8)
        self.scale, self.places = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(16, 8))
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images).flatten(2).transpose(1, 2)
        b, n, c = tokens.shape
        query, key, value = self.qkv(tokens).reshape(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        mask = torch.zeros(n, n) if self.how == "mask" else None
        mixed = F.scaled_dot_product_attention(
            query, query if self.how == "self" else key, value, mask
        )
        tokens = (
            tokens + self.scale * self.proj(mixed.transpose(1, 2).reshape(b, n, c)) + self.places
        )
        tokens = self.norm(tokens + F.gelu(self.mlp(tokens)))
        if self.how == "softmax":
            tokens = tokens.softmax(1)
        if self.how == "two":
            return self.head(tokens[:, 2]) + self.head(tokens[:, 5])
        if self.how == "mean":
            return self.head(tokens[:, 2] + tokens.mean(1))
        if self.how == "feature":
            return self.mlp(tokens).select(2, 3)
        if self.how == "channel":
            return mixed.select(3, 2).flatten(1)
        return self.head(tokens[:, -1 if self.how == "last" else 2])


def shortened(specimen: Specimen) -> Specimen:
    return specimen._edited(lambda module, nodes: one_token(module.graph), "with one token")


def rows(specimen: Specimen, images: Tensor) -> list[int]:
    """Of what goes through linear layers, for every image."""
    found: list[int] = []

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default):
                found.append(args[-2].shape[0] // len(images))
            return func(*args, **(kwargs or {}))

    with Watching():  # type: ignore[no-untyped-call]
        specimen(images)
    return found


@torch.no_grad()
@pytest.mark.parametrize(
    "how", ["first", "last", "mask", "self", "softmax", "two", "mean", "feature", "channel"]
)
def test_the_answer_is_the_same_from_fewer_tokens(how: str) -> None:
    specimen, images = vitreous.open(Block(how), image=32), torch.randn(3, 3, 32, 32)
    short = shortened(specimen)
    torch.testing.assert_close(short(images), specimen(images), rtol=1e-5, atol=1e-6)
    all_, expected = (
        [16, 16, 16],
        {"first": [16, 1, 1], "last": [16, 1, 1], "mask": [16, 1, 1], "self": [16, 1, 1]},
    )
    heads = {"two": [1, 1], "feature": [16]}.get(how, [1])
    if how == "channel":
        all_, heads = [16], []
    assert rows(specimen, images) == all_ + heads
    assert rows(short, images) == expected.get(how, all_) + heads


@torch.no_grad()
def test_queries_of_the_last_block_are_those_of_one_token() -> None:
    torch.manual_seed(0)
    model = VisionTransformer(
        16, 8, num_classes=4, embed_dim=12, depth=2, num_heads=2, mlp_ratio=2
    ).eval()
    specimen, images = vitreous.open(model, image=16), torch.randn(3, 3, 16, 16)
    short = shortened(specimen)
    torch.testing.assert_close(short(images), specimen(images), rtol=1e-5, atol=1e-6)
    assert rows(short, images) == [
        5,
        5,
        5,
        5,
        5,
        1,
        1,
        1,
        1,
    ]  # of the queries all: they share a layer with the keys
    attended = [
        node for node in short.module.graph.nodes if "scaled_dot_product" in str(node.target)
    ]
    assert [node.args[0].target is torch.ops.aten.slice.Tensor for node in attended] == [
        False,
        True,
    ]
