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
    heights = torch.zeros_like(noise[:, :1, :1])
    scale, step = 1.0, side
    while step >= 2:
        step //= 2
        corners, heights = heights, noise[:, ::step, ::step] * scale
        heights[:, ::2, ::2] = corners
        pairs = corners + corners.roll(-1, 2)
        middles = heights[:, 1::2, 1::2].add_(pairs + pairs.roll(-1, 1), alpha=0.25)
        heights[:, ::2, 1::2].add_((middles + middles.roll(1, 1)).add_(pairs), alpha=0.25)
        pairs = corners + corners.roll(-1, 1)
        heights[:, 1::2, ::2].add_((middles + middles.roll(1, 2)).add_(pairs), alpha=0.25)
        scale /= decay**2
    heights -= heights.amin((1, 2), keepdim=True)
    return heights.div_(heights.amax((1, 2), keepdim=True))
