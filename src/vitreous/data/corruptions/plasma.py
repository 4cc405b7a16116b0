"""Plasma fractals, for fog and frosted panes."""

from __future__ import annotations

import torch
from torch import Tensor

from vitreous.data.corruptions.numpy_or_torch import library, native
from vitreous.data.random_streams import RandomStreams


def plasma(rng: RandomStreams, side: int, decay: float) -> Tensor:
    """Diamond-square heights (n, side, side) in [0, 1] on a torus.

    A level fills the middle of every square with the mean of its corners, then the middle of every
    edge with the mean of its four neighbours, and adds noise. The noise decreases by decay² per
    level, because the published code uses the decreasing amplitude twice, as factor and as range.
    """
    noise = native(rng.coarse(side, side, low=-1, high=1))
    lib = library(noise)
    heights = lib.zeros_like(noise[:, :1, :1])
    scale, step = 1.0, side
    while step >= 2:
        step //= 2
        corners, heights = heights, noise[:, ::step, ::step] * scale
        heights[:, ::2, ::2] = corners
        across = corners + lib.concatenate([corners[..., 1:], corners[..., :1]], axis=2)
        middles = heights[:, 1::2, 1::2]
        middles += (across + lib.concatenate([across[:, 1:], across[:, :1]], axis=1)) * 0.25
        across += middles
        across += lib.concatenate([middles[:, -1:], middles[:, :-1]], axis=1)
        along = corners + lib.concatenate([corners[:, 1:], corners[:, :1]], axis=1)
        along += middles
        along += lib.concatenate([middles[..., -1:], middles[..., :-1]], axis=2)
        heights[:, ::2, 1::2] += across * 0.25
        heights[:, 1::2, ::2] += along * 0.25
        scale /= decay**2
    heights -= lib.amin(heights, axis=(1, 2), keepdims=True)
    heights /= lib.amax(heights, axis=(1, 2), keepdims=True)
    return torch.as_tensor(heights)
