"""Attention by hand: numbers one pair at a time, and models that attend in every way."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import hypot, log2, nan
from typing import Any

import timm
import torch
from timm.models.maxxvit import MaxxVit, MaxxVitCfg, MaxxVitTransformerCfg
from torch import Tensor, nn

import vitreous
from measure.probes.noise import noise
from specimen.toys import Block, Transformer, settled
from vitreous.data.dataset import Dataset
from vitreous.data.subsets import class_balanced_order
from vitreous.measure.subject import Subject, subjects
from vitreous.results import Result
from vitreous.specimen.attention_geometry import Places
from vitreous.specimen.layout import BatchAxis
from vitreous.specimen.observe import AttentionMap, Observation
from vitreous.specimen.specimen import Specimen

Tokens = list[list[int]]

MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: Transformer(Block(), Block()),
    "class": lambda: Transformer(Block(), Block(), cls=True),
    "wide": lambda: vitreous.build(
        "vit_ti/4", image=(16, 24), depth=1, heads=2, width=8, classes=3
    ),
    "swin": lambda: timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=32,
        window_size=4,
        depths=(2, 1),
        embed_dim=8,
        num_heads=(2, 2),
    ),
    "maxvit": lambda: MaxxVit(
        MaxxVitCfg(
            embed_dim=(16,),
            depths=(1,),
            block_type=("M",),
            stem_width=8,
            transformer_cfg=MaxxVitTransformerCfg(dim_head=8, window_size=(4, 4), grid_size=(4, 4)),
        ),
        img_size=32,
        num_classes=3,
    ),
    "pvt": lambda: timm.create_model(
        "pvt_v2_b0", depths=(1, 1), embed_dims=(8, 16), num_heads=(1, 2), num_classes=3
    ),
    "cait": lambda: timm.create_model(
        "cait_xxs24_224", img_size=32, depth=1, embed_dim=16, num_heads=2
    ),
    "neighbours": lambda: vitreous.build(
        "vit_ti/4", image=16, depth=1, heads=2, width=8, mixer="neighbourhood", pool="gap"
    ),
}
SIDE = {"swin": 32, "maxvit": 32, "pvt": 64, "cait": 32}


@cache
def opened(name: str) -> Specimen:
    """With random weights, large enough for attention to be far from uniform."""
    torch.manual_seed(1)
    model = MODELS[name]()
    if isinstance(model, Transformer):
        return vitreous.open(settled(model), image=16)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * (0.2 if weight.ndim < 2 else 0.1))
    return vitreous.open(
        model.eval(), image=None if name == "wide" or name == "neighbours" else SIDE[name]
    )


def ask(specimen: Specimen, probe: str, count: int = 2, **options: Any) -> Result:
    return vitreous.inspect(specimen, noise(count), {probe: options})[probe]


def subject(specimen: Specimen) -> Subject:
    return subjects(specimen)[0]


def passing(count: int) -> Dataset:
    """The images in the order in which they pass."""
    data = noise(count)
    return data.take(torch.from_numpy(class_balanced_order(data.labels.numpy(), 0)))


def look(specimen: Specimen, count: int = 2) -> Observation:
    return specimen.observe(subject(specimen).prepare(passing(count).images), ["attention"])


def seen(specimen: Specimen, unit: str, count: int = 2) -> AttentionMap:
    found = look(specimen, count)[unit].attention
    assert found is not None
    return found.probabilities


def attention_units(specimen: Specimen) -> list[str]:
    return [unit.name for unit in specimen.units if unit.kind == "attention"]


def random_map(
    queries: Tokens, keys: Tokens, prefix: int, grids: Any, heads: int = 2
) -> AttentionMap:
    shape = 3, len(queries), heads, len(queries[0]), len(keys[0])
    order = torch.zeros(len(queries), heads, dtype=torch.long)
    places = Places(
        BatchAxis(0, 1, True), order, torch.tensor(queries), torch.tensor(keys), prefix, *grids
    )
    return AttentionMap((torch.randn(shape, dtype=torch.float64) * 2).softmax(-1), places)


def middle(
    token: int, prefix: int, grid: tuple[int, int], extent: tuple[float, float]
) -> tuple[float, float] | None:
    if token < prefix:
        return None
    row, column = divmod(token - prefix, grid[1])
    return (row + 0.5) * extent[0] / grid[0], (column + 0.5) * extent[1] / grid[1]


def mean_distance(
    found: AttentionMap, extent: tuple[float, float], renormalise: bool = True
) -> Tensor:
    """(b, heads), one pair at a time."""
    values = found.values.double()
    out = torch.zeros(values.shape[0], values.shape[2], dtype=torch.float64)
    asking = 0
    for g, queries in enumerate(found.queries.tolist()):
        for i, query in enumerate(queries):
            here = middle(query, found.prefix, found.query_grid, extent)
            if here is None:
                continue
            asking += 1
            moment, mass = torch.zeros_like(out), torch.zeros_like(out)
            for j, key in enumerate(found.keys[g].tolist()):
                there = middle(key, found.prefix, found.key_grid, extent)
                if there is not None:
                    weight = values[:, g, :, i, j]
                    moment += weight * hypot(here[0] - there[0], here[1] - there[1])
                    mass += weight
            out += moment / mass if renormalise else moment
    return out / asking if asking else torch.full_like(out, nan)


def entropy(found: AttentionMap) -> Tensor:
    """(b, heads) in bits, one row at a time."""
    values = found.values.double()
    rows = [
        [
            [
                -sum(p * log2(p) for p in values[b, g, h, i].tolist() if p > 0)
                for g, queries in enumerate(found.queries.tolist())
                for i, query in enumerate(queries)
                if query >= 0
            ]
            for h in range(values.shape[2])
        ]
        for b in range(values.shape[0])
    ]
    return torch.tensor(rows, dtype=torch.float64).mean(-1)
