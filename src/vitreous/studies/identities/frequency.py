"""What nonlinear layers do to the frequencies of smooth maps, before they have learned anything (Park and Kim)."""

from __future__ import annotations

from collections.abc import Callable
from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.frequency import high_pass
from vitreous.models.vit import Mlp
from vitreous.results.intervals import Interval
from vitreous.studies.identities.measure import measure, share


def smooth(maps: int, channels: int, side: int, numbers: torch.Generator) -> Tensor:
    """White noise whose spectrum is divided by |f| (the mean's by the lowest frequency, 1 / side), of standard
    deviation 1: about what photographs have."""
    noise = torch.randn(maps, channels, side, side, generator=numbers, dtype=torch.float64)
    along = torch.fft.fftfreq(side, dtype=torch.float64)
    frequency = torch.hypot(along[:, None], along)
    frequency[0, 0] = 1 / side
    found = torch.fft.ifft2(torch.fft.fft2(noise) / frequency).real
    return found / found.std()


def high_share(maps: Tensor) -> Tensor:
    """Energy of the waves above π/2 along an axis, over that of all but the mean: of each map, and the mean of those
    that are not constant."""
    high, all_ = (
        each.square().sum((-2, -1))
        for each in (high_pass(maps, pi / 2), maps - maps.mean((-2, -1), True))
    )
    return (high / all_)[all_ > 0].mean()


def raised(
    seed: int,
    draws: int,
    size: tuple[int, int, int],
    layer: Callable[[Tensor, torch.Generator], Tensor],
) -> Interval:
    """In how many draws a random layer raises the share of high frequencies of smooth maps of a size."""
    numbers = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(draws):
        maps = smooth(*size, numbers)
        found.append(high_share(layer(maps, numbers)) > high_share(maps))
    return share(torch.stack(found))


def mlp(maps: Tensor, numbers: torch.Generator) -> Tensor:
    """The ViT's own, without biases; its weights have variance 1 / inputs."""
    layer = Mlp(maps.shape[1], 4 * maps.shape[1], dropout=0.0).double()
    for linear in (layer.fc1, layer.fc2):
        linear.weight.normal_(std=linear.in_features**-0.5, generator=numbers)
        linear.bias.zero_()
    after: Tensor = layer(maps.movedim(1, -1))
    return after.movedim(-1, 1)


def convolutions(maps: Tensor, numbers: torch.Generator) -> Tensor:
    """Four of 3 × 3 with ReLU, padded in a circle; their weights have variance 2 / inputs."""
    channels = maps.shape[1]
    for _ in range(4):
        kernel = torch.randn(channels, channels, 3, 3, generator=numbers, dtype=torch.float64)
        kernel *= (2 / (9 * channels)) ** 0.5
        maps = F.relu(F.conv2d(F.pad(maps, (1, 1, 1, 1), mode="circular"), kernel))
    return maps


@measure
def random_mlp_raises_high_share(seed: int) -> Interval:
    """Share of 200 random MLPs that raise the share of high frequencies (HDV-28)."""
    return raised(seed, 200, (8, 32, 16), mlp)


@measure
def random_convolutions_raise_high_share(seed: int) -> Interval:
    """Share of 100 random stacks of convolutions that raise the share of high frequencies (HDV-29)."""
    return raised(seed, 100, (4, 16, 32), convolutions)
