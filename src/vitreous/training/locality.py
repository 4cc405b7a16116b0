"""Measures of the locality of attention, for the record of a training."""

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
from vitreous.training.evaluate import eval_mode


def attention_locality(model: nn.Module, images: Tensor) -> dict[str, Any]:
    """`{"gates": ..., "nonlocality": ...}`; what the model does not have is left out."""
    measures = {"gates": head_gates(model), "nonlocality": head_nonlocality(model, images)}
    return {name: values for name, values in measures.items() if values}


def head_gates(model: nn.Module) -> dict[str, list[float]]:
    """The gates σ(λ) of every gated layer by its path, one number per head."""
    layers = {path: m for path, m in model.named_modules() if isinstance(m, GPSA)}
    return {path: layer.gate().tolist() for path, layer in layers.items()}


@torch.no_grad()
def head_nonlocality(model: nn.Module, images: Tensor) -> dict[str, list[list[float]]]:
    """Nonlocality D_loc (d'Ascoli et al. 2021) of every layer and head, mean over images.

    Returns
    -------
    `{"official": ..., "true": ...}`, each (layers, heads). "true" reads each layer at its own
    input. "official" is the published logger, which gives every layer the bare patch embedding,
    without norm and positions. Models other than our ConViT and our ViT with full or neighbourhood
    attention have neither.
    """
    readable = (mixers.Attention, mixers.NeighbourhoodAttention)
    if isinstance(model, ViT):
        if not all(type(block.attn) in readable for block in model.blocks):
            return {}
    elif not isinstance(model, ConViT):
        return {}
    with eval_mode(model):
        patches: Tensor = model.patch_embed(images)
        height, width = images.shape[-2:]
        side = isqrt(height * width // patches.shape[1])
        grid = height // side, width // side
        official, true = [], []
        for layer, x in _attention_inputs(model, images, grid):
            official.append(mean_patch_distance(_attention(layer, patches, grid), grid).tolist())
            true.append(mean_patch_distance(_attention(layer, x, grid), grid).tolist())
        return {"official": official, "true": true}


def _attention_inputs(model: Any, images: Tensor, grid: Grid) -> Iterator[tuple[Any, Tensor]]:
    """Every attention layer with the normalised tokens that reach it."""
    x = model.embed(images)
    for index, block in enumerate(model.blocks):
        x = model.enter(index, x)
        yield block.attn, block.norm1(x)
        x = block(x) if isinstance(model, ViT) else block(x, grid)


def _attention(layer: Any, x: Tensor, grid: Grid) -> Tensor:
    """Attention (n, heads, tokens, tokens) of any of our attention layers."""
    return layer.weights(x) if isinstance(layer, mixers.Attention) else layer.attention(x, grid)
