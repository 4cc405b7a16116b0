"""Noise: of the sensor (gaussian), of few photons (shot), dead pixels (impulse), coherent light
(speckle)."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from vitreous.data.corruptions.numpy_or_torch import native, true_places
from vitreous.data.corruptions.published import EPSILON, published
from vitreous.data.random_streams import RandomStreams


@published(cifar=[0.04, 0.06, 0.08, 0.09, 0.10], imagenet=[0.08, 0.12, 0.18, 0.26, 0.38])
def gaussian_noise(images: Tensor, rng: RandomStreams, scale: float) -> Tensor:
    """Add normal noise with this standard deviation."""
    return rng.normal(*images.shape[1:], std=255 * scale).add_(images)


@published(cifar=[500, 250, 100, 75, 50], imagenet=[60, 25, 12, 5, 3], uint8=True)
def shot_noise(images: Tensor, rng: RandomStreams, photons: int) -> Tensor:
    """Count photons: Poisson, with this many for full brightness.

    An image has 256 levels, so there are 256 Poisson distributions, which are sampled by inverting
    their cumulative sums. A table of buckets gives the result if a bucket contains one level only.
    Otherwise the sums are searched; adding its level to each makes all of them one sorted list.
    """
    sums, shades, buckets = _poisson(photons, images.device)
    levels = images.flatten()
    drawn = rng.words(*images.shape[1:]).flatten()
    bucket = (drawn >> 5).add_(BUCKETS // 2).int()
    shade = buckets.index_select(0, bucket.add_(levels.int(), alpha=BUCKETS))
    rest = torch.as_tensor(true_places(native(shade) < 0))
    drawn, levels = drawn[rest].double().add_(2**15 + 0.5).mul_(2**-16), levels[rest].int()
    counts = (
        torch.searchsorted(sums.flatten(), drawn.add_(levels), right=True) - levels * sums.shape[1]
    )
    return shade.index_copy_(0, rest, shades[counts]).byte().view(images.shape)


BUCKETS = 2048


@lru_cache(maxsize=10)
def _poisson(photons: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Tables of the Poisson distributions of all levels.

    Returns
    -------
    Float64 (256, counts), the level plus the probability of at most that many photons; int16, the
    level of each count; int16 (256 * BUCKETS,), the common level of all draws in
    [i, i + 1) / BUCKETS, or -1 if they differ.
    """
    most = int(photons + 8 * photons**0.5 + 8)  # the chance of more is below 1e-9
    levels, counts = (torch.arange(many, dtype=torch.float64)[:, None] for many in (256, most))
    sums = torch.special.gammaincc(counts.mT + 1, levels * (photons / 255))
    sums[:, -1] = 1
    shades = (counts.flatten() * (255 / photons) + EPSILON).clamp_(max=255).short()
    starts = (torch.arange(BUCKETS, dtype=torch.float64) / BUCKETS).repeat(256, 1)
    low = shades[torch.searchsorted(sums, starts, right=True)]
    high = shades[torch.searchsorted(sums, starts + 1 / BUCKETS, right=False)]
    buckets = torch.where(low == high, low, -1).flatten()
    return (sums + levels).to(device), shades.to(device), buckets.to(device)


@published(
    cifar=[0.01, 0.02, 0.03, 0.05, 0.07], imagenet=[0.03, 0.06, 0.09, 0.17, 0.27], uint8=True
)
def impulse_noise(images: Tensor, rng: RandomStreams, share: float) -> Tensor:
    """Replace this share of the values, independently per channel, half of them by black and half
    by white."""
    drawn = rng.words(*images.shape[1:])
    kept, white = (drawn >= round((part - 0.5) * 2**16) for part in (share, share / 2))
    return (
        kept.view(torch.uint8).mul_(images).add_(white.logical_not_().view(torch.uint8), alpha=255)
    )


@published(cifar=[0.06, 0.1, 0.12, 0.16, 0.2], imagenet=[0.15, 0.2, 0.35, 0.45, 0.6])
def speckle_noise(images: Tensor, rng: RandomStreams, scale: float) -> Tensor:
    """Add normal noise in proportion to the brightness, with this standard deviation at full
    brightness."""
    return rng.normal(*images.shape[1:], mean=1.0, std=scale).mul_(images)
