"""The effect of untrained nonlinear layers on the frequencies of smooth maps (Park and Kim)."""

from __future__ import annotations

from collections.abc import Callable
from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.data.frequency import high_pass
from vitreous.models.vit import Mlp
from vitreous.results.intervals import Interval
from vitreous.studies.identities.properties import exact_property, wilson_share


def _smooth_maps(maps: int, channels: int, side: int, numbers: torch.Generator) -> Tensor:
    """Noise with standard deviation 1 and a 1/|f| spectrum, similar to that of photographs.

    The mean, whose frequency is zero, is divided by the lowest other frequency, 1 / side.
    """
    noise = torch.randn(maps, channels, side, side, generator=numbers, dtype=torch.float64)
    along = torch.fft.fftfreq(side, dtype=torch.float64)
    frequency = torch.hypot(along[:, None], along)
    frequency[0, 0] = 1 / side
    smooth = torch.fft.ifft2(torch.fft.fft2(noise) / frequency).real
    return smooth / smooth.std()


def _high_share(maps: Tensor) -> Tensor:
    """Share of the energy, without the mean, that lies above π/2 along an axis; averaged over the
    maps that are not constant."""
    high, all_ = (
        each.square().sum((-2, -1))
        for each in (high_pass(maps, pi / 2), maps - maps.mean((-2, -1), True))
    )
    return (high / all_)[all_ > 0].mean()


def _share_raised(
    seed: int,
    draws: int,
    size: tuple[int, int, int],
    layer: Callable[[Tensor, torch.Generator], Tensor],
) -> Interval:
    """Share of draws in which a random layer raises the share of high frequencies."""
    numbers = torch.Generator().manual_seed(seed)
    raised = []
    for _ in range(draws):
        maps = _smooth_maps(*size, numbers)
        raised.append(_high_share(layer(maps, numbers)) > _high_share(maps))
    return wilson_share(torch.stack(raised))


def _mlp(maps: Tensor, numbers: torch.Generator) -> Tensor:
    """The MLP of the ViT without biases; its weights have variance 1 / inputs."""
    layer = Mlp(maps.shape[1], 4 * maps.shape[1], dropout=0.0).double()
    for linear in (layer.fc1, layer.fc2):
        linear.weight.normal_(std=linear.in_features**-0.5, generator=numbers)
        linear.bias.zero_()
    after: Tensor = layer(maps.movedim(1, -1))
    return after.movedim(-1, 1)


def _convolutions(maps: Tensor, numbers: torch.Generator) -> Tensor:
    """Four 3 × 3 convolutions with ReLU and circular padding; weights have variance 2 / inputs."""
    channels = maps.shape[1]
    for _ in range(4):
        kernel = torch.randn(channels, channels, 3, 3, generator=numbers, dtype=torch.float64)
        kernel *= (2 / (9 * channels)) ** 0.5
        maps = F.relu(F.conv2d(F.pad(maps, (1, 1, 1, 1), mode="circular"), kernel))
    return maps


@exact_property
def random_mlp_raises_high_share(seed: int) -> Interval:
    """Share of 200 random MLPs that raise the share of high frequencies (HDV-28)."""
    return _share_raised(seed, 200, (8, 32, 16), _mlp)


@exact_property
def random_convolutions_raise_high_share(seed: int) -> Interval:
    """Share of 100 random convolution stacks that raise the share of high frequencies (HDV-29)."""
    return _share_raised(seed, 100, (4, 16, 32), _convolutions)
