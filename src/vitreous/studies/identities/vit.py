"""What follows from how a ViT is built: patches, positions, and a head of zeros (Dosovitskiy et al.)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vitreous.measure.probes.cost import flops
from vitreous.models import build
from vitreous.models.positions import Learned1d
from vitreous.models.vit import ViT, resize_vit
from vitreous.studies.identities.measure import largest, measure, normal
from vitreous.training.adapt import adapt

PATCH, GRID, WIDTH, CLASSES = 4, 8, 64, 10


def small(**options: Any) -> ViT:
    """4 blocks, width 64, 4 heads, for 32 × 32 images; its head is drawn, because zeros answer alike to everything."""
    model = build(
        f"vit_ti/{PATCH}", image=32, classes=CLASSES, depth=4, width=WIDTH, heads=4, **options
    ).eval()
    assert isinstance(model, ViT)
    nn.init.normal_(model.head.weight, std=WIDTH**-0.5)  # type: ignore[arg-type]
    return model


def pictures(seed: int) -> Tensor:
    return normal(8, 3, 32, 32, seed=seed, dtype=torch.float32)


def shuffled(images: Tensor, order: Tensor) -> Tensor:
    """Their patches in another order."""
    patches = images.unflatten(3, (GRID, PATCH)).unflatten(2, (GRID, PATCH)).transpose(3, 4)
    moved = patches.flatten(2, 3)[:, :, order].unflatten(2, (GRID, GRID))
    return moved.transpose(3, 4).flatten(4, 5).flatten(2, 3)


def change_by_order(seed: int, **options: Any) -> float:
    """Largest change of a score when patches are shuffled."""
    images, model = pictures(seed), small(**options)
    order = torch.randperm(GRID**2, generator=torch.Generator().manual_seed(seed))
    return largest(model(shuffled(images, order)) - model(images))


@measure
def permutation_class(seed: int) -> float:
    """Without positions, class token (VIT-05)."""
    return change_by_order(seed, pos="none")


@measure
def permutation_mean(seed: int) -> float:
    """Without positions, mean of all tokens (VIT-05)."""
    return change_by_order(seed, pos="none", pool="gap")


@measure
def permutation_positions(seed: int) -> float:
    """With a list of positions as it is initialised, class token (VIT-05)."""
    return change_by_order(seed)


def table(model: ViT) -> Tensor:
    """(1 + tokens, width) positions, that of the class token first."""
    positions = model.positions[0]
    assert isinstance(positions, Learned1d)
    return positions.table[0]


def enlarged(field: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """What positions (8, 8, width) and a class row become on a grid of 12 × 12."""
    model = small()
    table(model).copy_(torch.cat([first[None], field.flatten(0, 1)]))
    found = table(resize_vit(model, 48))
    return found[1:].unflatten(0, (12, 12)), found[0]


@measure
def interpolation_constant(seed: int) -> float:
    """Change of positions that are one vector everywhere, on a grid of 12 × 12 (VIT-06)."""
    vector, first = normal(2, WIDTH, seed=seed, dtype=torch.float32)
    return largest(enlarged(vector.expand(GRID, GRID, -1), first)[0] - vector)


@measure
def interpolation_linear(seed: int) -> float:
    """Distance of a plane over rows and columns from the same plane on a grid of 12 × 12; the first channel rises with
    the rows alone, the last with the columns (VIT-06)."""

    def plane(side: int) -> Tensor:
        along, weight = torch.linspace(0, 1, side), torch.linspace(0, 1, WIDTH)
        return along[:, None, None] * (1 - weight) + along[None, :, None] * weight

    (first,) = normal(1, WIDTH, seed=seed, dtype=torch.float32)
    return largest(enlarged(plane(GRID), first)[0] - plane(12))


@measure
def interpolation_class(seed: int) -> float:
    """Change of the class token's row, all positions drawn (VIT-06)."""
    first, *field = normal(1 + GRID**2, WIDTH, seed=seed, dtype=torch.float32)
    return largest(enlarged(torch.stack(field).unflatten(0, (GRID, GRID)), first)[1] - first)


@measure
def zero_head_scores(seed: int) -> float:
    """Largest score of a ViT whose head was replaced as fine-tuning does it, before the first step (VIT-22)."""
    return largest(
        adapt(small(head="tanh"), classes=CLASSES, image=32, head="zero")(pictures(seed))
    )


def operations(patch: int) -> tuple[int, int]:
    """Of one image in the blocks of a ViT-Ti: those of its linear maps, and the rest, attention's two products."""
    model = build(f"vit_ti/{patch}", image=32, classes=CLASSES, pool="gap")
    assert isinstance(model, ViT)
    tokens = model.embed(torch.zeros(1, 3, 32, 32))
    maps = [each for each in model.blocks.modules() if isinstance(each, nn.Linear)]
    linear = sum(
        flops(each, tokens.new_zeros(*tokens.shape[:2], each.in_features)) for each in maps
    )
    return linear, flops(nn.Sequential(*model.blocks), tokens) - linear


@measure
def patch_linear_operations(seed: int) -> float:
    """Operations of linear maps with patches of 4 over those with patches of 8 (VIT-21)."""
    return operations(4)[0] / operations(8)[0]


@measure
def patch_attention_operations(seed: int) -> float:
    """Operations of attention's products with patches of 4 over those with patches of 8 (VIT-21)."""
    return operations(4)[1] / operations(8)[1]


@measure
def dense_over_convolution_weights(seed: int) -> float:
    """Weights of a dense layer from 3 × 32 × 32 to 64 × 32 × 32 over those of a 3 × 3 convolution (VIT-24)."""
    dense = nn.Linear(3 * 32 * 32, 64 * 32 * 32, bias=False, device="meta")
    return dense.weight.numel() / nn.Conv2d(3, 64, 3, bias=False).weight.numel()
