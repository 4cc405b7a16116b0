"""RandAugment as in timm: in each layer one of fifteen operations or none, with a noisy strength.

Every image has its own operation. The five geometric ones are one affine map with different
numbers; the ten others are in `colour`. Images are uint8 after every layer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from vitreous.data.augment.colour import (
    adjust_brightness,
    adjust_contrast,
    adjust_saturation,
    adjust_sharpness,
    auto_contrast,
    equalise,
    invert,
    posterise,
    solarise,
    solarise_add,
)
from vitreous.data.augment.distributions import integer, lookup, standard_normal
from vitreous.data.augment.geometry import affine
from vitreous.data.augment.stage import apply_where
from vitreous.errors import VitreousError


class Op(NamedTuple):
    """An operation: its argument is `start + slope * level` for a level of 0 to 10."""

    name: str
    # Of images and arguments; None for an affine map.
    change: Callable[[Tensor, Tensor], Tensor] | None
    start: float = 0.0
    slope: float = 0.0
    signed: bool = False  # the slope is negated for half of the images
    truncated: bool = False  # slope * level is truncated to an integer


PLAIN = (
    Op("AutoContrast", auto_contrast),
    Op("Equalize", equalise),
    Op("Invert", invert),
    Op("Rotate", None, slope=3.0, signed=True),
    Op("Posterize", posterise, slope=0.4, truncated=True),
    Op("Solarize", solarise, slope=25.6, truncated=True),
    Op("SolarizeAdd", solarise_add, slope=11.0, truncated=True),
    Op("Color", adjust_saturation, start=0.1, slope=0.18),
    Op("Contrast", adjust_contrast, start=0.1, slope=0.18),
    Op("Brightness", adjust_brightness, start=0.1, slope=0.18),
    Op("Sharpness", adjust_sharpness, start=0.1, slope=0.18),
    Op("ShearX", None, slope=0.03, signed=True),
    Op("ShearY", None, slope=0.03, signed=True),
    Op("TranslateXRel", None, slope=0.045, signed=True),
    Op("TranslateYRel", None, slope=0.045, signed=True),
)


def _increasing(op: Op) -> Op:
    """The version of an operation whose effect increases with the level, for `inc1`."""
    if op.name in ("Posterize", "Solarize"):
        return op._replace(start={"Posterize": 4.0, "Solarize": 256.0}[op.name], slope=-op.slope)
    if op.name in ("Color", "Contrast", "Brightness", "Sharpness"):
        return op._replace(start=1.0, slope=0.09, signed=True)
    return op


INCREASING = tuple(map(_increasing, PLAIN))
NONE = len(PLAIN)
NAMES = {op.name: code for code, op in enumerate(PLAIN)}
SECTION = re.compile(r"(mstd|inc|m|n|p)(\d+(?:\.\d*)?)")
KNOWN = "m (level), n (layers), p (probability of each), mstd (noise of the level) and inc (0 or 1)"


@dataclass(frozen=True)
class RandAugmentOptions:
    """The options in "rand-m9-n2-mstd1.0"."""

    level: float = 10.0
    layers: int = 2
    probability: float = 0.5
    noise: float = 0.0  # standard deviation; above 100 the level is uniform from 0 up
    increasing: bool = False  # use versions of operations whose effect increases with the level


def parse_randaugment(text: str) -> RandAugmentOptions:
    """Parse timm's spelling of RandAugment; parts that only timm knows are an error."""
    start, *sections = text.split("-")
    matches = [SECTION.fullmatch(section) for section in sections]
    wrong = [section for section, match in zip(sections, matches, strict=True) if match is None]
    if start != "rand" or wrong:
        raise VitreousError(
            f"RandAugment was asked for as {text!r}, of which {wrong[0] if wrong else start!r} is "
            "not known; "
            f"write it as 'rand-m9-n2-mstd1.0', with {KNOWN}."
        )
    values = {match[1]: float(match[2]) for match in matches if match}
    return RandAugmentOptions(
        level=values.get("m", 10.0),
        layers=int(values.get("n", 2)),
        probability=values.get("p", 0.5),
        noise=values.get("mstd", 0.0),
        increasing=bool(values.get("inc", 0)),
    )


class RandAugment:
    """RandAugment as a stage; `fill` is the colour, in levels, of positions outside the image."""

    def __init__(
        self, spelling: str, image: tuple[int, int], fill: tuple[float, float, float]
    ) -> None:
        self.options = parse_randaugment(spelling)
        self.ops = INCREASING if self.options.increasing else PLAIN
        self.height, self.width = image
        self.fill = fill
        self.numbers = 5 * self.options.layers

    def settle(self, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Operation of each image and layer, its argument, and its bilinear and bicubic maps."""
        which, happens, strength, sign, interpolation = uniform.unflatten(1, (-1, 5)).unbind(2)
        code = torch.where(happens <= self.options.probability, integer(which, len(self.ops)), NONE)
        change = lookup(code, [*(op.slope for op in self.ops), 0.0]) * self.level(strength)
        change = torch.where(
            lookup(code, [*(op.truncated for op in self.ops), False]), change.trunc(), change
        )
        negated = lookup(code, [*(op.signed for op in self.ops), False]) & (sign > 0.5)
        argument = lookup(code, [*(op.start for op in self.ops), 0.0]) + torch.where(
            negated, -change, change
        )
        smooth = interpolation < 0.5
        linear = self.matrix(torch.where(smooth, NONE, code), argument)
        return code, argument, linear, self.matrix(torch.where(smooth, code, NONE), argument)

    def level(self, uniform: Tensor) -> Tensor:
        """The level of each operation, from 0 to 10."""
        if self.options.noise == 0:
            level = torch.full_like(uniform, self.options.level)
        elif self.options.noise > 100:
            level = uniform * self.options.level
        else:
            level = self.options.level + self.options.noise * standard_normal(uniform)
        return level.clamp(0, 10)

    def matrix(self, code: Tensor, argument: Tensor) -> Tensor:
        """The affine maps (image, layer, 6); the identity for other operations."""

        def where(name: str) -> Tensor:
            return torch.where(code == NAMES[name], argument, 0.0)

        turn = where("Rotate") * (math.pi / 180)
        cos, sin = turn.cos(), turn.sin()
        x, y = self.width / 2, self.height / 2
        along = x - cos * x + sin * y + where("TranslateXRel") * self.width
        down = y - sin * x - cos * y + where("TranslateYRel") * self.height
        return torch.stack(
            [cos, where("ShearX") - sin, along, where("ShearY") + sin, cos, down], -1
        )

    def __call__(self, images: Tensor, *settings: Tensor) -> Tensor:
        for layer in zip(*(each.unbind(1) for each in settings), strict=True):
            images = self.layer(images, *layer)
        return images

    def layer(
        self, images: Tensor, code: Tensor, argument: Tensor, linear: Tensor, cubic: Tensor
    ) -> Tensor:
        """Apply one operation to each image, or none."""
        before = images
        images = before.clone()
        share = self.options.probability / len(self.ops)
        moving = share / 2 * sum(op.change is None for op in self.ops)
        for matrix, smooth in ((linear, False), (cubic, True)):
            change = partial(affine, fill=self.fill, cubic=smooth)
            images = apply_where(_moves(matrix), change, before, images, matrix, share=moving)
        for at, op in enumerate(self.ops):
            if op.change is not None:
                images = apply_where(code == at, op.change, before, images, argument, share=share)
        return images


def _moves(matrix: Tensor) -> Tensor:
    """Which affine maps are not the identity."""
    return (matrix != torch.eye(2, 3, device=matrix.device).flatten()).any(1)
