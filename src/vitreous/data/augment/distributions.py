"""Transform uniform numbers in [0, 1) to other distributions, in batches and without branches.

All randomness of an augmented image comes from uniform numbers that are drawn beforehand
(`Augmenter.draw`), so that every process gets the same image from the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def integer(uniform: Tensor, count: Tensor | int) -> Tensor:
    """An integer in 0 … count - 1. It is clamped because the product may round up to `count`."""
    last = count.long() - 1 if isinstance(count, Tensor) else count - 1
    return (uniform * count).long().clamp(max=last)


def between(uniform: Tensor, low: float, high: float) -> Tensor:
    """Uniform in [low, high]."""
    return low + (high - low) * uniform


def standard_normal(uniform: Tensor) -> Tensor:
    """Standard normal, by the inverse of its distribution function."""
    return math.sqrt(2) * torch.erfinv(2 * uniform - 1)


def beta(first: Tensor, second: Tensor, alpha: float) -> Tensor:
    """Beta(alpha, alpha) from two uniform numbers, without rejection, which would wait for a GPU.

    Bailey's polar method gives Student's t with 2 alpha degrees of freedom, and t / sqrt(2 alpha +
    t²) is 2 Beta - 1 (Devroye 1996, Random variate generation in one line of code).
    """
    across = torch.cos(2 * math.pi * second)
    square = (first ** (-1 / alpha) - 1) * across**2
    return 0.5 + 0.5 * across.sign() * (1 + 1 / square).rsqrt()


def first_valid(valid: Tensor, *tries: Tensor) -> tuple[Tensor, ...]:
    """The first valid entry of each row of each of `tries` (image, try); entry 0 if none is."""
    at = valid.int().argmax(1, keepdim=True)
    return tuple(each.gather(1, at).squeeze(1) for each in tries)


def lookup(index: Tensor, values: Sequence[float]) -> Tensor:
    """`values[index]`, computed by comparisons, so that no table is copied to the device."""
    chosen = torch.where(index == 0, values[0], values[-1])
    for at, value in enumerate(values[1:-1], start=1):
        if value != values[-1]:
            chosen = torch.where(index == at, value, chosen)
    return chosen


def hashed_noise(seed: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Standard normal numbers (image, *shape) that depend on each image's seed and the position.

    Seeds are in [0, 1). A hash of the position replaces a generator, so nothing is drawn for pixels
    that are not used. Values have 2**14 levels, up to 4 standard deviations.
    """
    levels = 1 << 14
    table = standard_normal((torch.arange(levels, device=seed.device) + 0.5) / levels)
    place = torch.arange(math.prod(shape), device=seed.device)
    key = scramble((seed * (1 << 24)).long())
    return table[scramble(key[:, None] + place) >> 18].unflatten(1, shape)


def scramble(value: Tensor) -> Tensor:
    """A bijective hash of 32 bits."""
    value = value & 0xFFFFFFFF
    value = (value ^ (value >> 16)) * 0x21F0AAAD & 0xFFFFFFFF
    value = (value ^ (value >> 15)) * 0x735A2D97 & 0xFFFFFFFF
    return value ^ (value >> 15)
