"""Random numbers for images, which depend on an image's index but not on the batch or the device.

Every image has its own SplitMix64 stream (Steele, Lea and Flood 2014). SplitMix64 hashes a key and
a counter with ten integer operations, so whole arrays are drawn at once, with equal results on a
CPU and on a GPU, and faster than with numpy's generators.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitreous.random_numbers import hash_bits

_INCREMENT = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
"""Shift and factor of each round of SplitMix64's finaliser."""
_CACHED = 1 << 17
"""Counters that are computed once: as many as an image of usual size needs."""

Numbers = npt.NDArray[np.uint64]


class RandomStreams:
    """One random stream per image, from index `first` on; each call continues the streams.

    Parameters
    ----------
    name : str
        Purpose of the numbers, including the seed; each name has independent streams.
    first, images : int
        Index of the first image in its dataset, and the number of images.
    device : torch.device
        Device on which the numbers are drawn.
    """

    def __init__(self, name: str, first: int, images: int, device: torch.device) -> None:
        rows = np.arange(first, first + images, dtype=np.uint64) * np.uint64(_INCREMENT)
        keys = scramble_(scramble_(rows) + np.uint64(hash_bits(name, 64)))
        self.keys = torch.from_numpy(keys.view(np.int64)).to(device)
        self.used = 0

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Float32 (images, *shape) in [low, high), of 24 random bits each."""
        hashes = self._next_hashes(shape, 2)
        if hashes.device.type == "cpu":  # numpy starts sooner, and most requests are small
            halves = hashes.numpy().view(np.uint32) >> np.uint32(8)
            numbers = torch.from_numpy(halves.view(np.int32).astype(np.float32))
        else:
            numbers = (hashes.view(torch.int32) >> 8).bitwise_and_(0xFFFFFF).float()
        numbers = numbers[:, : math.prod(shape)].mul_((high - low) * 2**-24)
        return (numbers.add_(low) if low else numbers).view(-1, *shape)

    def coarse(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Float32 (images, *shape) between low and high, of 16 random bits each: twice as fast."""
        step = (high - low) * 2**-16
        return self.words(*shape).float().mul_(step).add_((low + high + step) / 2)

    def normal(self, *shape: int, mean: float = 0.0, std: float = 1.0) -> Tensor:
        """Normal float32 (images, *shape), from 2 ** 16 equally likely quantiles up to 4.3 std."""
        chosen = self.words(*shape).flatten().int().bitwise_and_(0xFFFF)
        return _quantiles(mean, std, self.keys.device).index_select(0, chosen).view(-1, *shape)

    def words(self, *shape: int) -> Tensor:
        """Int16 (images, *shape), -32768 … 32767: 16 random bits each."""
        hashes = self._next_hashes(shape, 4).view(torch.int16)
        return hashes[:, : math.prod(shape)].reshape(-1, *shape)

    def _next_hashes(self, shape: tuple[int, ...], parts: int) -> Tensor:
        """Int64 (images, count) with enough hashes for `shape`, if each is split into `parts`."""
        count = -(-math.prod(shape) // parts)
        start = self.used * _INCREMENT % 2**64
        self.used += count
        if self.keys.device.type != "cpu":
            counters = torch.arange(1, count + 1, device=self.keys.device) * _signed(_INCREMENT)
            return _scramble_tensor_((self.keys + _signed(start))[:, None] + counters)
        steps = _cached_counters()[:count] if count <= _CACHED else _counters(count)
        keys = self.keys.numpy().view(np.uint64) + np.uint64(start)
        return torch.from_numpy(scramble_(np.add.outer(keys, steps)).view(np.int64))


@lru_cache(maxsize=8)
def _quantiles(mean: float, std: float, device: torch.device) -> Tensor:
    """Float32 (65536,) medians of equally likely intervals of a normal distribution."""
    middles = torch.special.ndtri((torch.arange(2**16, dtype=torch.float64) + 0.5) / 2**16)
    return (middles * (std / middles.std(correction=0)) + mean).float().to(device)


def _counters(count: int) -> Numbers:
    return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_INCREMENT)


@lru_cache(maxsize=1)
def _cached_counters() -> Numbers:
    return _counters(_CACHED)


def scramble_(x: Numbers) -> Numbers:
    """SplitMix64's finaliser, in place."""
    shifted = np.empty_like(x)
    for places, factor in _ROUNDS:
        np.bitwise_xor(x, np.right_shift(x, np.uint64(places), out=shifted), out=x)
        if factor != 1:
            np.multiply(x, np.uint64(factor), out=x)
    return x


def _scramble_tensor_(x: Tensor) -> Tensor:
    """`scramble_` for tensors: torch has only signed integers, so a mask makes shifts logical."""
    for places, factor in _ROUNDS:
        x.bitwise_xor_((x >> places).bitwise_and_((1 << (64 - places)) - 1))
        if factor != 1:
            x.mul_(_signed(factor))
    return x


def _signed(value: int) -> int:
    """The signed 64-bit integer with the same bits."""
    return value - (1 << 64) if value >> 63 else value
