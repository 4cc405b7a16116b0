"""Shapes against plain geometry in float64: polygons by counting crossings, discs by Pythagoras."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sin, sqrt

import numpy as np
import numpy.typing as npt
import pytest
import torch

from vitreous.data import world
from vitreous.data.world.shapes import SHAPES

Plane = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def polygon(*corners: tuple[float, float]) -> Callable[[Plane, Plane], Mask]:
    def inside(x: Plane, y: Plane) -> Mask:
        found = np.zeros(x.shape, dtype=bool)
        for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
            if ay != by:
                found ^= ((ay > y) != (by > y)) & (x < ax + (y - ay) * (bx - ax) / (by - ay))
        return found

    return inside


def disc(cx: float, cy: float, radius: float) -> Callable[[Plane, Plane], Mask]:
    return lambda x, y: (x - cx) ** 2 + (y - cy) ** 2 < radius**2


def around(radius: float, turn: float) -> tuple[float, float]:
    """A point on a circle, so many turns clockwise from the top."""
    return radius * sin(2 * pi * turn), radius * cos(2 * pi * turn)


SQUARE = polygon((0.7, 0.7), (-0.7, 0.7), (-0.7, -0.7), (0.7, -0.7))
STAR = polygon(*[around(0.45 if k % 2 else 1, k / 10) for k in range(10)])
ARROW = polygon(
    (0, 0.98), (0.8, 0.1), (0.27, 0.1), (0.27, -0.92), (-0.27, -0.92), (-0.27, 0.1), (-0.8, 0.1)
)
TALL = polygon((0.29, 0.93), (-0.29, 0.93), (-0.29, -0.93), (0.29, -0.93))
LOZENGE = polygon((0, sqrt(0.5)), (sqrt(0.5), 0), (0, -sqrt(0.5)), (-sqrt(0.5), 0))
LOBES = [disc(side * sqrt(0.125), sqrt(0.125), 0.5) for side in (-1, 1)]
PETALS = [disc(*around(0.58, k / 5), 0.36) for k in range(5)]

INSIDE: dict[str, Callable[[Plane, Plane], Mask]] = {
    "disc": disc(0, 0, 0.84),
    "square": SQUARE,
    "triangle": polygon(*[around(1, k / 3) for k in range(3)]),
    "star": STAR,
    "cross": lambda x, y: TALL(x, y) | TALL(y, x),
    "ring": lambda x, y: disc(0, 0, 0.92)(x, y) & ~disc(0, 0, 0.46)(x, y),
    "heart": lambda x, y: LOZENGE(x, y) | LOBES[0](x, y) | LOBES[1](x, y),
    "crescent": lambda x, y: disc(0, 0, 0.95)(x, y) & ~disc(0.46, 0, 0.74)(x, y),
    "arrow": ARROW,
    "flower": lambda x, y: np.any([petal(x, y) for petal in (*PETALS, disc(0, 0, 0.36))], axis=0),
}


def plane(side: int = 241) -> tuple[Plane, Plane]:
    x, y = np.meshgrid(np.linspace(-1.2, 1.2, side) + 1e-4, np.linspace(-1.2, 1.2, side) + 2e-4)
    return x, y


@pytest.mark.parametrize("name", SHAPES)
def test_signs_are_those_of_plain_geometry(name: str) -> None:
    x, y = plane()
    distance = SHAPES[name](torch.tensor(x), torch.tensor(y)).numpy()
    assert np.array_equal(distance < 0, INSIDE[name](x, y))
    assert (x[distance < 0] ** 2 + y[distance < 0] ** 2).max() <= 1


@pytest.mark.parametrize("name", SHAPES)
def test_distances_near_the_outline(name: str) -> None:
    """How far the nearest point on the other side is, by brute force; corners, which are mitred,
    are a small part."""
    x, y = plane()
    step = x[0, 1] - x[0, 0]
    distance = SHAPES[name](torch.tensor(x), torch.tensor(y)).numpy()
    near = (abs(distance) < 0.06) & (abs(distance) > 0.02)
    points = np.stack([x, y], -1)
    picked = np.flatnonzero(near)[:: max(1, int(near.sum()) // 150)]
    errors = []
    for place in picked:
        other = points[(distance < 0) != (distance.flat[place] < 0)]
        brute = np.sqrt(((other - points.reshape(-1, 2)[place]) ** 2).sum(1).min())
        errors.append(abs(brute - abs(distance.flat[place])))
    assert np.mean(np.array(errors) < step) > 0.75


def test_boxes_are_the_extent_of_the_object_in_pixels() -> None:
    """From the truth alone: each pixel's centre brought into the object's frame and asked of
    plain geometry."""
    for image in (32, 64):
        data = world.load(size=300, image=image)
        truth = {key: value.double().numpy() for key, value in data.truth.items()}
        names, exact = list(SHAPES), 0
        columns, lines = np.meshgrid(np.arange(image) + 0.5, np.arange(image) + 0.5)
        for i in range(300):
            dx, dy = columns - truth["cx"][i], lines - truth["cy"][i]
            c, s = cos(truth["angle"][i]), sin(truth["angle"][i])
            unit = truth["size"][i] / 2
            mask = INSIDE[names[int(truth["shape"][i])]](
                (c * dx + s * dy) / unit, (s * dx - c * dy) / unit
            )
            ys, xs = np.nonzero(mask)
            box = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
            assert abs(truth["box"][i] - box).max() <= 1
            exact += int((truth["box"][i] == box).all())
        assert exact >= 298  # a centre may lie on the outline to within float32
