"""Plasma: the clouds that fog and frosted panes are made of."""

from __future__ import annotations

import torch
from torch import Tensor

from vitreous.data.draws import Draws


def plasma(draws: Draws, side: int, decay: float) -> Tensor:
    """Diamond-square heights (n, side, side) in [0, 1] on a torus; each level's noise is decay² times smaller.

    (The published code takes its falling amplitude twice, as a factor and as a range.) A level fills the middle of
    every square with the mean of its corners, then the middle of every edge with the mean of its four neighbours.
    """
    noise = draws.uniform(side, side, low=-1, high=1)
    heights = torch.zeros_like(noise)
    scale, step = 1.0, side
    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        middles = (pairs + pairs.roll(-1, 2)) / 4 + scale * noise[:, half::step, half::step]
        heights[:, half::step, half::step] = middles
        across = (middles + middles.roll(1, 1) + corners + corners.roll(-1, 2)) / 4
        heights[:, ::step, half::step] = across + scale * noise[:, ::step, half::step]
        along = (middles + middles.roll(1, 2) + corners + corners.roll(-1, 1)) / 4
        heights[:, half::step, ::step] = along + scale * noise[:, half::step, ::step]
        step, scale = half, scale / decay**2
    heights -= heights.amin((1, 2), keepdim=True)
    return heights / heights.amax((1, 2), keepdim=True)
