"""How local attention is while a model learns: gates (A4.20) and nonlocality (A4.19), for the record of a training."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

from vitreous.models import mixers
from vitreous.models.convit import GPSA, ConViT
from vitreous.models.vit import ViT
from vitreous.specimen.anatomy import Grid
from vitreous.specimen.attention_geometry import mean_patch_distance
from vitreous.training.evaluate import evaluating

PerHead = list[list[float]]


def record(model: nn.Module, images: Tensor) -> dict[str, Any]:
    """Both under their names, as far as the model has them."""
    found = {"gates": gates(model), "nonlocality": nonlocality(model, images)}
    return {name: values for name, values in found.items() if values}


def gates(model: nn.Module) -> dict[str, list[float]]:
    """σ(λ) of every gated layer by its path, one number a head (A4.20); nothing for models without gates."""
    return {
        path: layer.gate().tolist()
        for path, layer in model.named_modules()
        if isinstance(layer, GPSA)
    }


@torch.no_grad()
def nonlocality(model: nn.Module, images: Tensor) -> dict[str, PerHead]:
    """D_loc of every layer and head in patches, mean over the images (A4.19): {"official": ..., "true": ...}.

    "true" reads each layer at its own input. "official" is the published logger, which gives every layer the bare patch
    embedding, without norm and positions (X-22). Our ViT with full or neighbourhood attention and our ConViT have it,
    other models have nothing.
    """
    readable = (mixers.Attention, mixers.NeighbourhoodAttention)
    if not isinstance(model, ConViT) and not (
        isinstance(model, ViT) and all(type(block.attn) in readable for block in model.blocks)
    ):
        return {}
    with evaluating(model):
        patches: Tensor = model.patch_embed(images)
        grid = _grid(images, patches.shape[1])
        layers: list[tuple[Any, Tensor]] = list(_inputs(model, images, grid))
        return {
            "official": [
                mean_patch_distance(_attention(layer, patches, grid), grid).tolist()
                for layer, _ in layers
            ],
            "true": [
                mean_patch_distance(_attention(layer, x, grid), grid).tolist()
                for layer, x in layers
            ],
        }


def _grid(images: Tensor, count: int) -> Grid:
    """Rows and columns of `count` square patches."""
    height, width = images.shape[-2:]
    side = isqrt(height * width // count)
    return height // side, width // side


def _inputs(model: ViT | ConViT, images: Tensor, grid: Grid) -> Iterator[tuple[nn.Module, Tensor]]:
    """Every attention with the normalised tokens that reach it."""
    blocks: list[Any] = list(model.blocks)
    x = model.embed(images)
    for index, block in enumerate(blocks):
        x = model.enter(index, x)
        yield block.attn, block.norm1(x)
        x = block(x) if isinstance(model, ViT) else block(x, grid)


def _attention(layer: Any, x: Tensor, grid: Grid) -> Tensor:
    """(n, heads, tokens, tokens) of any attention of ours."""
    return layer.weights(x) if isinstance(layer, mixers.Attention) else layer.attention(x, grid)
