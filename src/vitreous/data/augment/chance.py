"""Uniform numbers in [0, 1) turned into what is drawn from them, in batches, without loops that
depend on the numbers.

Everything random about an augmented image is a function of uniform numbers that were drawn
beforehand (`augment.draw`). So the same numbers give the same image on every process, whatever part
of a batch it computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def integer(uniform: Tensor, count: Tensor | int) -> Tensor:
    """One of 0 … count - 1. (The product may round up to `count` itself.)"""
    last = count.long() - 1 if isinstance(count, Tensor) else count - 1
    return (uniform * count).long().clamp(max=last)


def between(uniform: Tensor, low: float, high: float) -> Tensor:
    """Uniform in [low, high]."""
    return low + (high - low) * uniform


def normal(uniform: Tensor) -> Tensor:
    """Standard normal, by the inverse of its distribution function."""
    return math.sqrt(2) * torch.erfinv(2 * uniform - 1)


def beta(first: Tensor, second: Tensor, alpha: float) -> Tensor:
    """Beta(alpha, alpha) from two numbers, for every alpha above 0: no rejection, so nothing waits
    for the device.

    Bailey's polar method gives Student's t with 2 alpha degrees of freedom, and t / sqrt(2 alpha +
    t²) is 2 Beta - 1 (Devroye 1996, Random variate generation in one line of code).
    """
    across = torch.cos(2 * math.pi * second)
    square = (first ** (-1 / alpha) - 1) * across**2
    return 0.5 + 0.5 * across.sign() * (1 + 1 / square).rsqrt()


def first_valid(valid: Tensor, *tries: Tensor) -> tuple[Tensor, ...]:
    """The first valid of several tries (image, try), or the first of all where none is."""
    at = valid.int().argmax(1, keepdim=True)
    return tuple(each.gather(1, at).squeeze(1) for each in tries)


def choose(index: Tensor, values: Sequence[float]) -> Tensor:
    """`values[index]`, as comparisons: a table would have to be copied to the device first."""
    chosen = torch.where(index == 0, values[0], values[-1])
    for at, value in enumerate(values[1:-1], start=1):
        if value != values[-1]:
            chosen = torch.where(index == at, value, chosen)
    return chosen


def noise(seed: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Standard normal numbers (image, *shape), a function of each image's seed in [0, 1) and the
    place alone.

    A hash of the place instead of a generator: nothing has to be drawn or kept for pixels that no
    one looks at. The normal has 2**14 levels, up to 4 standard deviations.
    """
    levels = 1 << 14
    table = normal((torch.arange(levels, device=seed.device) + 0.5) / levels)
    place = torch.arange(math.prod(shape), device=seed.device)
    key = scramble((seed * (1 << 24)).long())
    return table[scramble(key[:, None] + place) >> 18].unflatten(1, shape)


def scramble(value: Tensor) -> Tensor:
    """32 bits to 32 bits, one to one, each bit of the result depending on all of the value's."""
    value = value & 0xFFFFFFFF
    value = (value ^ (value >> 16)) * 0x21F0AAAD & 0xFFFFFFFF
    value = (value ^ (value >> 15)) * 0x735A2D97 & 0xFFFFFFFF
    return value ^ (value >> 15)
