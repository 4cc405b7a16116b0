"""Ten textures of two colours: signed distances from the border between them, in units of the
texture's period.

Eight are functions of the place and, like the shapes, use only sums, products, roots and
comparisons. Two are thresholded noise: `grain` white noise, `marble` a field with a 1/f spectrum.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vitreous.data.world.shapes import length

Texture = Callable[[Tensor, Tensor], Tensor]


def _wave(x: Tensor) -> Tensor:
    """A triangle wave of period one: 1/4 at the integers, -1/4 half-way."""
    return (x - x.round()).abs_().sub_(0.25).neg_()


def _plain(x: Tensor, y: Tensor) -> Tensor:
    return torch.full_like(x, -1)


def _stripes(x: Tensor, y: Tensor) -> Tensor:
    return _wave(x)


def _checks(x: Tensor, y: Tensor) -> Tensor:
    return _wave(x / 2).mul_(_wave(y / 2)).mul_(8)


def _dots(x: Tensor, y: Tensor) -> Tensor:
    return 0.34 - length(x - x.round(), y - y.round())


def _grid(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(_wave(x), _wave(y)).sub_(0.1)


def _waves(x: Tensor, y: Tensor) -> Tensor:
    return _wave(_wave(y / 2).mul_(1.4).add_(x))


def _rings(x: Tensor, y: Tensor) -> Tensor:
    return _wave(length(x, y))


def _bricks(x: Tensor, y: Tensor) -> Tensor:
    """Bricks one high and two long, every other row shifted by half a brick."""
    upright = (x + y.round()).div_(2)
    upright = (upright - upright.round()).abs_().mul_(-2).add_(0.25)
    return torch.maximum(_wave(y - 0.5), upright).sub_(0.11)


TEXTURES: dict[str, Texture] = {
    "plain": _plain, "stripes": _stripes, "checks": _checks, "dots": _dots, "grid": _grid,
    "waves": _waves, "rings": _rings, "bricks": _bricks,
}  # fmt: skip

NOISES: dict[str, float] = {"grain": 0.0, "marble": 1.0}
"""Textures that are noise, and the exponent of their amplitude over frequency."""
