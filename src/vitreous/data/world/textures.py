"""Ten textures of two colours: signed distances from the border between them, in units of the texture's period.

Eight are functions of place and, like the shapes, use only sums, products, roots and comparisons. The other two are cut
out of noise: `grain` out of white noise, `marble` out of a field with a natural spectrum.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vitreous.data.world.shapes import length

Texture = Callable[[Tensor, Tensor], Tensor]


def wave(x: Tensor) -> Tensor:
    """A triangle wave of period one: 1/4 at the integers, -1/4 half-way."""
    return (x - x.round()).abs_().sub_(0.25).neg_()


def plain(x: Tensor, y: Tensor) -> Tensor:
    return torch.full_like(x, -1)


def stripes(x: Tensor, y: Tensor) -> Tensor:
    return wave(x)


def checks(x: Tensor, y: Tensor) -> Tensor:
    return wave(x / 2).mul_(wave(y / 2)).mul_(8)


def dots(x: Tensor, y: Tensor) -> Tensor:
    return 0.34 - length(x - x.round(), y - y.round())


def grid(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(wave(x), wave(y)).sub_(0.1)


def waves(x: Tensor, y: Tensor) -> Tensor:
    return wave(wave(y / 2).mul_(1.4).add_(x))


def rings(x: Tensor, y: Tensor) -> Tensor:
    return wave(length(x, y))


def bricks(x: Tensor, y: Tensor) -> Tensor:
    """Courses one high and two long, every other one shifted by half a brick."""
    upright = (x + y.round()).div_(2)
    upright = (upright - upright.round()).abs_().mul_(-2).add_(0.25)
    return torch.maximum(wave(y - 0.5), upright).sub_(0.11)


TEXTURES: dict[str, Texture] = {
    each.__name__: each for each in (plain, stripes, checks, dots, grid, waves, rings, bricks)
}

NOISES: dict[str, float] = {"grain": 0.0, "marble": 1.0}
"""Textures that are noise, and the exponent of their amplitude over frequency."""
