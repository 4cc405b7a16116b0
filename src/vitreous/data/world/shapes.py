"""Ten shapes as signed distances: negative inside, positive outside, in units of the object's size.

Each is a function of two planes, x to the right and y upwards, and fits into the circle of radius
one. Only sums, products, roots and comparisons are used, so that scenes are the same on every
machine. Distances are exact near the outline, where anti-aliasing needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sin, sqrt

import torch
from torch import Tensor

Shape = Callable[[Tensor, Tensor], Tensor]


def length(x: Tensor, y: Tensor) -> Tensor:
    """The length of each vector (x, y)."""
    return (x * x).addcmul_(y, y).sqrt_()


def _fold_in_five(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mirror each point into the 36° right of the upward axis: five-fold symmetry."""
    a, b = cos(pi / 5), sin(pi / 5)
    for _ in range(2):
        x = x.abs()
        beyond = (x * (2 * a)).sub_(y, alpha=2 * b).clamp_(min=0)
        x, y = x.sub_(beyond, alpha=a), y.add(beyond, alpha=b)
    return x.abs_(), y


def _line(x: Tensor, y: Tensor, start: tuple[float, float], end: tuple[float, float]) -> Tensor:
    """Distance from the line through two points, positive left of the way from `start` to `end`."""
    (ax, ay), (bx, by) = start, end
    scale = 1 / sqrt((bx - ax) ** 2 + (by - ay) ** 2)
    along_x, along_y = (bx - ax) * scale, (by - ay) * scale
    return (y * along_x).sub_(x, alpha=along_y).add_(ax * along_y - ay * along_x)


def _disc(x: Tensor, y: Tensor) -> Tensor:
    return length(x, y).sub_(0.84)


def _square(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(x.abs(), y.abs()).sub_(0.7)


def _triangle(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(_line(x.abs(), y, (0, 1), (sqrt(3) / 2, -0.5)), -0.5 - y)


def _star(x: Tensor, y: Tensor) -> Tensor:
    inner = 0.45
    return _line(*_fold_in_five(x, y), (0, 1), (inner * sin(pi / 5), inner * cos(pi / 5)))


def _cross(x: Tensor, y: Tensor) -> Tensor:
    x, y = x.abs(), y.abs()
    return torch.maximum(torch.maximum(x, y).sub_(0.93), torch.minimum(x, y).sub_(0.29))


def _ring(x: Tensor, y: Tensor) -> Tensor:
    return length(x, y).sub_(0.69).abs_().sub_(0.23)


def _heart(x: Tensor, y: Tensor) -> Tensor:
    """A square on its corner, and a disc on each of its upper edges."""
    x, a = x.abs(), 0.5
    upper = length(x - a / sqrt(2), y - a / sqrt(2)).sub_(a)
    return torch.minimum(upper, (x + y.abs()).mul_(sqrt(0.5)).sub_(a))


def _crescent(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(length(x, y).sub_(0.95), 0.74 - length(x - 0.46, y))


def _arrow(x: Tensor, y: Tensor) -> Tensor:
    x = x.abs()
    head = torch.maximum(_line(x, y, (0, 0.98), (0.8, 0.1)), 0.1 - y)
    shaft = torch.maximum(x - 0.27, (y + 0.35).abs_().sub_(0.57))
    return torch.minimum(head, shaft)


def _flower(x: Tensor, y: Tensor) -> Tensor:
    """Five petals, which are one disc in five mirrors, round a disc."""
    px, py = _fold_in_five(x, y)
    return torch.minimum(length(px, py - 0.58).sub_(0.36), length(x, y).sub_(0.36))


SHAPES: dict[str, Shape] = {
    "disc": _disc, "square": _square, "triangle": _triangle, "star": _star, "cross": _cross,
    "ring": _ring, "heart": _heart, "crescent": _crescent, "arrow": _arrow, "flower": _flower,
}  # fmt: skip
