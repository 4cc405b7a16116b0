"""Synthetic images of frosted glass panes.

The original corruption adds photographs that cannot be distributed. These panes are generated once
by a fixed rule: ferns with bent stems and side branches at sixty degrees, like ice, on a plasma
fractal. Mean and standard deviation of each channel are those of the five photographs.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.corruptions.filters import gaussian_smooth
from vitreous.data.corruptions.plasma import plasma
from vitreous.data.random_streams import RandomStreams

SIDE = 512
FERNS, STEPS, BRANCHES, TWIGS = 500, 100, 24, 20
MEANS = ((78, 149, 166), (201, 205, 214), (201, 205, 214), (138, 153, 165), (112, 123, 135))
STDS = ((27, 16, 15), (21, 22, 23), (21, 22, 23), (28, 28, 30), (44, 43, 42))


@lru_cache(maxsize=4)
def panes(scale: float, least: int, device: torch.device) -> Tensor:
    """Five panes, float (5, 3, side, side) in [0, 1], shrunk to this scale but never smaller
    than `least` pixels."""
    side = max(round(SIDE * scale), least + least // 8)
    ice = _full_size_panes()
    if side != SIDE:
        ice = F.interpolate(
            ice, size=(side, side), mode="bilinear", antialias=True, align_corners=False
        )
    return ice.to(device)


@lru_cache(maxsize=1)
def _full_size_panes() -> Tensor:
    """The panes at full size."""
    rng = RandomStreams("frosted panes", 0, len(MEANS), torch.device("cpu"))
    ice = gaussian_smooth(_ferns(rng), 0.5, "reflect").sqrt()
    ice -= 0.7 * gaussian_smooth(ice, 4, "reflect")  # darker beside a ridge than far from it
    ice *= 0.4 + plasma(rng, SIDE, 1.4)
    ice += 0.6 * plasma(rng, SIDE, 2) + rng.normal(SIDE, SIDE, std=0.02)
    ice = (ice - ice.mean((1, 2), keepdim=True)) / ice.std((1, 2), keepdim=True)
    mean, std = (torch.tensor(each)[..., None, None] / 255 for each in (MEANS, STDS))
    return (mean + std * ice[:, None]).clamp(0, 1)


def _ferns(rng: RandomStreams) -> Tensor:
    """The amount of ice on each pixel, (panes, side, side): the sum over all branches of all
    ferns."""
    length = rng.uniform(FERNS, 1, low=12, high=110)
    heading = rng.uniform(FERNS, 1, high=2 * math.pi)
    heading = heading + rng.normal(FERNS, 1, std=0.6) * torch.linspace(0, 1, STEPS)
    stride = length / STEPS
    stem = torch.stack([heading.sin(), heading.cos()], -1) * stride[..., None]
    stem = stem.cumsum(2) + rng.uniform(FERNS, 1, 2, high=SIDE)
    joints = torch.linspace(0, STEPS - 1, BRANCHES).long()
    age = 1 - joints / STEPS  # the oldest branches, at the foot of the stem, are the longest
    reach = 0.4 * length * age * rng.uniform(FERNS, BRANCHES, low=0.3, high=1)
    ice = _deposit(stem, stride * torch.linspace(1, 0.3, STEPS))
    for turn in (-math.pi / 3, math.pi / 3):
        way = heading[..., joints] + turn
        along = reach[..., None] * torch.linspace(0, 1, TWIGS)
        branch = torch.stack([way.sin()[..., None] * along, way.cos()[..., None] * along], -1)
        ice += _deposit(
            stem[:, :, joints, None] + branch,
            reach[..., None] / TWIGS * torch.linspace(0.7, 0.2, TWIGS),
        )
    return ice


def _deposit(points: Tensor, weights: Tensor) -> Tensor:
    """(panes, side, side) with weights at points (panes, …, 2), shared among the four nearest
    pixels."""
    flat = points.flatten(1, -2)
    low = flat.floor()
    ice = torch.zeros(len(points), SIDE * SIDE)
    weights = weights.expand(points.shape[:-1]).flatten(1)
    for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
        place = (low + torch.tensor(corner)).long().remainder(SIDE)
        near = (1 - (flat - low - torch.tensor(corner)).abs()).prod(-1)
        ice.scatter_add_(1, place[..., 0] * SIDE + place[..., 1], near * weights)
    return ice.view(-1, SIDE, SIDE)
