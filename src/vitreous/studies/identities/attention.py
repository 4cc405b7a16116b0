"""Exact properties of attention as an average over tokens (Park and Kim)."""

from __future__ import annotations

from math import exp

import torch
from torch import Tensor

from vitreous.measure.probes.variance import variance
from vitreous.models.mixers import Attention, box_mean
from vitreous.results.intervals import Interval, bootstrap_mean
from vitreous.studies.identities.properties import (
    exact_property,
    largest,
    normal_draws,
    wilson_share,
)

SIDE = 8
TOKENS, CHANNELS, DRAWS = SIDE**2, 32, 1000


def _bare_attention() -> Attention:
    """One head of the ViT's attention without projections.

    A token is the concatenation of its query, key and value; the first channels of the output are
    A V.
    """
    layer = Attention(3 * CHANNELS, 1, CHANNELS, bias=False).double()
    layer.qkv.weight.copy_(torch.eye(3 * CHANNELS))
    layer.proj.weight.copy_(torch.eye(3 * CHANNELS, CHANNELS))
    layer.proj.bias.zero_()
    return layer


def _draws(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """x, A and A x of every draw: (DRAWS, TOKENS, CHANNELS), and (DRAWS, TOKENS, TOKENS) for A."""
    parts, layer = normal_draws(DRAWS, TOKENS, 3 * CHANNELS, seed=seed), _bare_attention()
    return parts[..., -CHANNELS:], layer.weights(parts)[:, 0], layer(parts)[..., :CHANNELS]


def _varying_ratio(x: Tensor) -> Tensor:
    """r(x) = |(I−J)x| / |Jx|: the part that varies over tokens, relative to the constant part."""
    mean = x.mean(-2, keepdim=True)
    varying, constant = (torch.linalg.matrix_norm(each) for each in (x - mean, mean.expand_as(x)))
    return varying / constant


@exact_property
def attention_leak_from_constant(seed: int) -> float:
    """Largest entry of |(I−J)A − (I−J)A(I−J)|: how far A J is from constant (HDV-26)."""
    _, attention, _ = _draws(seed)
    varying = torch.eye(TOKENS, dtype=torch.float64) - 1 / TOKENS
    return largest(varying @ attention - varying @ attention @ varying)


@exact_property
def attention_eighth_power_ratio(seed: int) -> float:
    """Largest r(A⁸x) / r(x): what is left after eight passes of attention (HDV-26)."""
    x, attention, _ = _draws(seed)
    return largest(_varying_ratio(torch.linalg.matrix_power(attention, 8) @ x) / _varying_ratio(x))


@exact_property
def random_attention_lowers_ratio(seed: int) -> Interval:
    """Share of draws with r(Ax) < r(x) (HDV-26)."""
    x, _, mixed = _draws(seed)
    return wilson_share(_varying_ratio(mixed) < _varying_ratio(x))


@exact_property
def random_attention_variance_ratio(seed: int) -> Interval:
    """Mean of Var(Ax) / Var(x), the variance being that of the probe (HDV-34)."""
    before, _, after = (each.mT.unflatten(-1, (SIDE, SIDE)) for each in _draws(seed))
    return bootstrap_mean((variance(after) / variance(before)).numpy())


@exact_property
def attention_as_ensemble_difference(seed: int) -> float:
    """Largest difference between attention and Σᵢ π(xᵢ|xⱼ) p(zⱼ|xᵢ), written out (HDV-55)."""
    parts = normal_draws(1, TOKENS, 3 * CHANNELS, seed=seed)
    queries, keys, predictions = parts[0].chunk(3, -1)
    ensemble = torch.zeros_like(predictions)
    for j, query in enumerate(queries):
        near = [exp(query @ key / CHANNELS**0.5) for key in keys]
        for importance, prediction in zip(near, predictions, strict=True):
            ensemble[j] += importance / sum(near) * prediction
    return largest(_bare_attention()(parts)[0, :, :CHANNELS] - ensemble)


@exact_property
def blur_as_attention_difference(seed: int) -> float:
    """Largest difference between a 2 × 2 blur, away from the border, and A V with 1/4 at the four
    tokens of each window (HDV-55)."""
    values = normal_draws(4, TOKENS, 16, seed=seed)
    blurred = box_mean(values, (SIDE, SIDE), 2).unflatten(1, (SIDE, SIDE))[:, :-1, :-1]
    attention = torch.zeros(SIDE - 1, SIDE - 1, SIDE, SIDE, dtype=torch.float64)
    for row in range(SIDE - 1):
        for column in range(SIDE - 1):
            attention[row, column, row : row + 2, column : column + 2] = 1 / 4
    return largest(blurred.flatten(1, 2) - attention.flatten(2).flatten(0, 1) @ values)
