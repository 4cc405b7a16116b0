"""Exact properties of the ViT's patches, positions and zero heads (Dosovitskiy et al.)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vitreous.measure.probes.cost import flops
from vitreous.models import build
from vitreous.models.positions import Learned1d
from vitreous.models.vit import ViT, resize_vit
from vitreous.studies.identities.properties import exact_property, largest, normal_draws
from vitreous.training.adapt import adapt

PATCH, GRID, WIDTH, CLASSES = 4, 8, 64, 10


def _small_vit(**options: Any) -> ViT:
    """A ViT with 4 blocks for 32 × 32 images. Its head is random: zeros give every image 0."""
    model = build(
        f"vit_ti/{PATCH}", image=32, classes=CLASSES, depth=4, width=WIDTH, heads=4, **options
    ).eval()
    assert isinstance(model, ViT)
    nn.init.normal_(model.head.weight, std=WIDTH**-0.5)  # type: ignore[arg-type]
    return model


def _noise_images(seed: int) -> Tensor:
    return normal_draws(8, 3, 32, 32, seed=seed, dtype=torch.float32)


def _shuffle_patches(images: Tensor, order: Tensor) -> Tensor:
    """Permute the patches of images."""
    patches = images.unflatten(3, (GRID, PATCH)).unflatten(2, (GRID, PATCH)).transpose(3, 4)
    moved = patches.flatten(2, 3)[:, :, order].unflatten(2, (GRID, GRID))
    return moved.transpose(3, 4).flatten(4, 5).flatten(2, 3)


def _change_by_order(seed: int, **options: Any) -> float:
    """Largest change of a class score when the patches of images are shuffled."""
    images, model = _noise_images(seed), _small_vit(**options)
    order = torch.randperm(GRID**2, generator=torch.Generator().manual_seed(seed))
    return largest(model(_shuffle_patches(images, order)) - model(images))


@exact_property
def permutation_class(seed: int) -> float:
    """Largest change of a score by shuffled patches: no positions, class token (VIT-05)."""
    return _change_by_order(seed, pos="none")


@exact_property
def permutation_mean(seed: int) -> float:
    """Largest change of a score by shuffled patches: no positions, mean pooling (VIT-05)."""
    return _change_by_order(seed, pos="none", pool="gap")


@exact_property
def permutation_positions(seed: int) -> float:
    """Largest change of a score by shuffled patches: initial 1-d positions, class token
    (VIT-05)."""
    return _change_by_order(seed)


def _position_table(model: ViT) -> Tensor:
    """(1 + tokens, width) positions, that of the class token first."""
    positions = model.positions[0]
    assert isinstance(positions, Learned1d)
    return positions.table[0]


def _enlarge(field: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Interpolate positions (8, 8, width) and a class row to a grid of 12 × 12."""
    model = _small_vit()
    _position_table(model).copy_(torch.cat([first[None], field.flatten(0, 1)]))
    enlarged = _position_table(resize_vit(model, 48))
    return enlarged[1:].unflatten(0, (12, 12)), enlarged[0]


@exact_property
def interpolation_constant(seed: int) -> float:
    """Change of positions that are one vector everywhere, on a grid of 12 × 12 (VIT-06)."""
    vector, first = normal_draws(2, WIDTH, seed=seed, dtype=torch.float32)
    return largest(_enlarge(vector.expand(GRID, GRID, -1), first)[0] - vector)


@exact_property
def interpolation_linear(seed: int) -> float:
    """Distance of an interpolated plane from that plane on a 12 × 12 grid; the first channel rises
    with the rows alone, the last with the columns (VIT-06)."""

    def plane(side: int) -> Tensor:
        along, weight = torch.linspace(0, 1, side), torch.linspace(0, 1, WIDTH)
        return along[:, None, None] * (1 - weight) + along[None, :, None] * weight

    (first,) = normal_draws(1, WIDTH, seed=seed, dtype=torch.float32)
    return largest(_enlarge(plane(GRID), first)[0] - plane(12))


@exact_property
def interpolation_class(seed: int) -> float:
    """Change of the class token's row, all positions drawn (VIT-06)."""
    first, *field = normal_draws(1 + GRID**2, WIDTH, seed=seed, dtype=torch.float32)
    return largest(_enlarge(torch.stack(field).unflatten(0, (GRID, GRID)), first)[1] - first)


@exact_property
def zero_head_scores(seed: int) -> float:
    """Largest score of a ViT with the new head of fine-tuning, before the first step (VIT-22)."""
    return largest(
        adapt(_small_vit(head="tanh"), classes=CLASSES, image=32, head="zero")(_noise_images(seed))
    )


def _block_operations(patch: int) -> tuple[int, int]:
    """Operations of one image in the blocks of a ViT-Ti: of its linear maps, and of attention."""
    model = build(f"vit_ti/{patch}", image=32, classes=CLASSES, pool="gap")
    assert isinstance(model, ViT)
    tokens = model.embed(torch.zeros(1, 3, 32, 32))
    maps = [each for each in model.blocks.modules() if isinstance(each, nn.Linear)]
    linear = sum(
        flops(each, tokens.new_zeros(*tokens.shape[:2], each.in_features)) for each in maps
    )
    return linear, flops(nn.Sequential(*model.blocks), tokens) - linear


@exact_property
def patch_linear_operations(seed: int) -> float:
    """Operations of linear maps with patches of 4 over those with patches of 8 (VIT-21)."""
    return _block_operations(4)[0] / _block_operations(8)[0]


@exact_property
def patch_attention_operations(seed: int) -> float:
    """Operations of attention with patches of 4 over those with patches of 8 (VIT-21)."""
    return _block_operations(4)[1] / _block_operations(8)[1]


@exact_property
def dense_over_convolution_weights(seed: int) -> float:
    """Weights of a dense layer over those of a 3 × 3 convolution of the same shapes (VIT-24)."""
    dense = nn.Linear(3 * 32 * 32, 64 * 32 * 32, bias=False, device="meta")
    return dense.weight.numel() / nn.Conv2d(3, 64, 3, bias=False).weight.numel()
