"""Random numbers that belong to an image: a function of its place in the data set, never of what was drawn before.

Torch's generators hand out one stream, so that what an image gets depends on the batch it came in and on the device.
Here every image owns a stream of SplitMix64 (Steele, Lea and Flood 2014), which is a hash of a key and a counter: ten
integer operations on whole tensors, the same on a CPU and on a GPU, and as cheap as numpy's generator.
"""

from __future__ import annotations

import math
from hashlib import sha256

import torch
from torch import Tensor


def _signed(value: int) -> int:
    """The 64 bits of a number as torch writes them."""
    return value - (1 << 64) if value >> 63 else value


STEP = _signed(0x9E3779B97F4A7C15)
ROUNDS = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)), (31, 1))


class Draws:
    """Streams of the images `first`, `first + 1`, … under a name; each call goes on where the last one ended."""

    def __init__(self, name: str, first: int, images: int, device: torch.device) -> None:
        key = int.from_bytes(sha256(name.encode()).digest()[:8], "big", signed=True)
        rows = torch.arange(first, first + images, device=device)
        self.keys = _scramble(_scramble(rows * STEP) + key)
        self.used = 0

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Float32 (images, *shape) in [low, high), of 24 random bits each."""
        numbers = self._bits(math.prod(shape)).bitwise_right_shift_(8).bitwise_and_(0xFFFFFF).float()
        return numbers.mul_((high - low) * 2**-24).add_(low).view(-1, *shape)

    def normal(self, *shape: int, mean: float = 0.0, std: float = 1.0) -> Tensor:
        """Float32 (images, *shape), by Box and Muller."""
        count = math.prod(shape)
        radius, angle = self.uniform(2, (count + 1) // 2).unbind(1)
        radius = radius.add(2**-25).log_().mul_(-2 * std**2).sqrt_()
        angle = angle * (2 * math.pi)
        both = torch.cat([angle.cos().mul_(radius), angle.sin_().mul_(radius)], 1)
        return (both.add_(mean) if mean else both)[:, :count].reshape(-1, *shape)

    def integers(self, *shape: int, low: int, high: int) -> Tensor:
        """Int64 (images, *shape) in low … high - 1."""
        return self.uniform(*shape).mul_(high - low).long().add_(low)

    def _bits(self, count: int) -> Tensor:
        """32 random bits each, int32 (images, count): the halves of the next hashes."""
        hashes = (count + 1) // 2
        counter = torch.arange(self.used + 1, self.used + 1 + hashes, device=self.keys.device)
        self.used += hashes
        return _scramble(self.keys[:, None] + counter * STEP).view(torch.int32)[:, :count]


def _scramble(x: Tensor) -> Tensor:
    """SplitMix64's finaliser, in place; the mask makes torch's shift of signed numbers a logical one."""
    shifted = torch.empty_like(x)
    for places, factor in ROUNDS:
        torch.bitwise_right_shift(x, places, out=shifted)
        x.bitwise_xor_(shifted.bitwise_and_((1 << (64 - places)) - 1))
        if factor != 1:
            x.mul_(factor)
    return x
