"""Textures against their description in words: which of the two colours is where."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from vitreous.data.world import scene
from vitreous.data.world.textures import NOISES, TEXTURES

Plane = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def near(x: Plane, every: float, within: float) -> Mask:
    """Closer than `within` to a multiple of `every`."""
    rest = np.mod(x, every)
    return np.minimum(rest, every - rest) < within


def zigzag(y: Plane) -> Plane:
    """From 0.35 at even numbers down to -0.35 at odd ones and up again."""
    return 0.35 - 0.7 * np.abs(np.mod(y + 1, 2) - 1)


INKED: dict[str, Callable[[Plane, Plane], Mask]] = {
    "plain": lambda x, y: np.zeros(x.shape, dtype=bool),
    "stripes": lambda x, y: near(x, 1, 0.25),
    "checks": lambda x, y: (np.floor(x + 0.5) + np.floor(y + 0.5)) % 2 == 0,
    "dots": lambda x, y: (x - np.floor(x + 0.5)) ** 2 + (y - np.floor(y + 0.5)) ** 2 < 0.34**2,
    "grid": lambda x, y: near(x, 1, 0.15) | near(y, 1, 0.15),
    "waves": lambda x, y: near(x + zigzag(y), 1, 0.25),
    "rings": lambda x, y: near(np.sqrt(x * x + y * y), 1, 0.25),
    "bricks": lambda x, y: near(y - 0.5, 1, 0.14) | near(x + np.floor(y + 0.5), 2, 0.14),
}


@pytest.mark.parametrize("name", TEXTURES)
def test_ink_is_where_the_description_says(name: str) -> None:
    x, y = np.random.default_rng(0).uniform(-6, 6, (2, 20_000))
    distance = TEXTURES[name](torch.tensor(x), torch.tensor(y)).numpy()
    assert np.array_equal(distance > 0, INKED[name](x, y))


def test_every_texture_is_drawn_on_objects() -> None:
    """On the same objects in the same places any two textures make different pictures."""
    dice = scene.roll(torch.Generator().manual_seed(0), 64)
    truth = scene.truth_of(dice, 32)
    drawn = []
    for number in range(len(TEXTURES) + len(NOISES)):
        images, _ = scene.paint(dice, truth | {"texture": torch.full((64,), number)}, 32)
        drawn.append(images.double())
    for one, other in combinations(drawn, 2):
        differs = (one - other).abs().amax(1) > 20
        assert (
            0.05 < differs.double().mean() < 0.3
        )  # of the image; an object fills a fifth to a third
