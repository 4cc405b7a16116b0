"""Random numbers that belong to an image: a function of its place in the data set, never of what was drawn before.

Torch's generators hand out one stream, so that what an image gets depends on the batch it came in and on the device.
Here every image owns a stream of SplitMix64 (Steele, Lea and Flood 2014), which is a hash of a key and a counter: ten
integer operations on whole arrays, the same on a CPU and on a GPU, and cheaper than numpy's generators.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitreous.random_numbers import hash_bits

STEP, ROUNDS = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
KEPT = 1 << 17
"""As many steps as images of usual sizes need; they are computed once."""

Numbers = npt.NDArray[np.uint64]


class Draws:
    """Streams of the images `first`, `first + 1`, … under a name; each call goes on where the last one ended."""

    def __init__(self, name: str, first: int, images: int, device: torch.device) -> None:
        key = hash_bits(name, 64)
        rows = np.arange(first, first + images, dtype=np.uint64) * np.uint64(STEP)
        keys = scrambled(scrambled(rows) + np.uint64(key))
        self.keys = torch.from_numpy(keys.view(np.int64)).to(device)
        self.used = 0

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Float32 (images, *shape) in [low, high), of 24 random bits each."""
        hashes = self._hashes(shape, 2)
        if hashes.device.type == "cpu":  # numpy begins sooner, and most uniform numbers are few
            halves = (
                (hashes.numpy().view(np.uint32) >> np.uint32(8)).view(np.int32).astype(np.float32)
            )
            numbers = torch.from_numpy(halves)
        else:
            numbers = (hashes.view(torch.int32) >> 8).bitwise_and_(0xFFFFFF).float()
        numbers = numbers[:, : math.prod(shape)].mul_((high - low) * 2**-24)
        return (numbers.add_(low) if low else numbers).view(-1, *shape)

    def coarse(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Float32 (images, *shape) between low and high, of 16 random bits each: at half the price."""
        step = (high - low) * 2**-16
        return self.words(*shape).float().mul_(step).add_((low + high + step) / 2)

    def normal(self, *shape: int, mean: float = 0.0, std: float = 1.0) -> Tensor:
        """Float32 (images, *shape): one of 2 ** 16 equally likely values each, 4.3 standard deviations off at most."""
        chosen = self.words(*shape).flatten().int().bitwise_and_(0xFFFF)
        return _quantiles(mean, std, self.keys.device).index_select(0, chosen).view(-1, *shape)

    def words(self, *shape: int) -> Tensor:
        """Int16 (images, *shape), -32768 … 32767: 16 random bits each."""
        return self._hashes(shape, 4).view(torch.int16)[:, : math.prod(shape)].reshape(-1, *shape)

    def _hashes(self, shape: tuple[int, ...], parts: int) -> Tensor:
        """The next of the stream, int64 (images, as many as are needed if each has so many parts)."""
        count = -(-math.prod(shape) // parts)
        start = self.used * STEP % 2**64
        self.used += count
        if self.keys.device.type != "cpu":
            steps_there = torch.arange(1, count + 1, device=self.keys.device) * _signed(STEP)
            return _scrambled_there((self.keys + _signed(start))[:, None] + steps_there)
        steps = (
            _kept()[:count]
            if count <= KEPT
            else np.arange(1, count + 1, dtype=np.uint64) * np.uint64(STEP)
        )
        keys = self.keys.numpy().view(np.uint64) + np.uint64(start)
        return torch.from_numpy(scrambled(np.add.outer(keys, steps)).view(np.int64))


@lru_cache(maxsize=8)
def _quantiles(mean: float, std: float, device: torch.device) -> Tensor:
    """The middles, by probability, of 2 ** 16 equal parts of a normal distribution, float32."""
    middles = torch.special.ndtri((torch.arange(2**16, dtype=torch.float64) + 0.5) / 2**16)
    return (middles * (std / middles.std(correction=0)) + mean).float().to(device)


def scrambled(x: Numbers) -> Numbers:
    """SplitMix64's finaliser, in place."""
    shifted = np.empty_like(x)
    for places, factor in ROUNDS:
        np.bitwise_xor(x, np.right_shift(x, np.uint64(places), out=shifted), out=x)
        if factor != 1:
            np.multiply(x, np.uint64(factor), out=x)
    return x


@lru_cache(maxsize=1)
def _kept() -> Numbers:
    return np.arange(1, KEPT + 1, dtype=np.uint64) * np.uint64(STEP)


def _scrambled_there(x: Tensor) -> Tensor:
    """The same on another device, in torch's signed numbers: a mask makes their shift a logical one."""
    for places, factor in ROUNDS:
        x.bitwise_xor_((x >> places).bitwise_and_((1 << (64 - places)) - 1))
        if factor != 1:
            x.mul_(_signed(factor))
    return x


def _signed(value: int) -> int:
    """The 64 bits of a number as torch writes them."""
    return value - (1 << 64) if value >> 63 else value
