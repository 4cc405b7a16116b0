"""The scene: one object with shape, texture and colour on a natural background, lit from one side.

A scene consists of six planes and a colour table. The planes are the weights at each pixel of
background, its two natural fields, object, its texture and its light; their product with the table
is the image. All randomness comes from one table of uniform numbers, so that all factors are
independent, on which measurements of shape against texture rely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from math import pi
from typing import TypeVar

import torch
from torch import Tensor

from vitreous.data.world.fields import windows
from vitreous.data.world.shapes import SHAPES
from vitreous.data.world.textures import NOISES, TEXTURES

SHAPE_NAMES = tuple(SHAPES)
TEXTURE_NAMES = (*TEXTURES, *NOISES)

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (219, 50, 54),
    "orange": (240, 134, 40),
    "yellow": (247, 206, 70),
    "green": (70, 160, 73),
    "teal": (30, 160, 160),
    "blue": (48, 110, 212),
    "violet": (126, 74, 190),
    "pink": (236, 108, 160),
}

BACKGROUNDS: dict[str, tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int, int]]] = {
    "dawn": ((206, 172, 164), (24, 22, 16), (-10, 2, 18)),
    "meadow": ((142, 158, 112), (26, 26, 18), (16, -2, -14)),
    "sea": ((118, 158, 178), (26, 24, 22), (-14, 4, 8)),
    "sand": ((204, 186, 152), (22, 22, 22), (8, -2, -12)),
    "dusk": ((112, 102, 138), (26, 22, 24), (18, -2, -8)),
    "stone": ((150, 150, 152), (28, 28, 28), (10, 2, -10)),
}
"""Mean colour, and what one standard deviation of the first and of the second natural field adds
to it."""

DICE = (
    *("shape", "texture", "colour", "background", "cx", "cy", "size", "angle"),
    *("turn", "period", "phase_x", "phase_y", "bright", "hue", "second", "depth"),
    *("field_1", "across_1", "down_1", "field_2", "across_2", "down_2"),
    *("field_3", "across_3", "down_3"),
)
"""Uniform numbers of each scene. The first eight determine the ground truth."""

SMALLEST, LARGEST = 0.52, 0.74  # diameter of the circle round an object, as a share of the image
WANDER = 0.13  # largest offset of its centre on either axis: no object leaves the image
TILT = pi / 6  # largest turn
SHADOW = 1 / 16  # offset of the shadow, to the right and down, as a share of the image

Thing = TypeVar("Thing")
Dice = dict[str, Tensor]
Truth = dict[str, Tensor]


def roll(generator: torch.Generator, count: int) -> Dice:
    """Uniform numbers (count,) for each of `DICE`."""
    return dict(zip(DICE, torch.rand(len(DICE), count, generator=generator), strict=True))


def truth_of(dice: Dice, image: int) -> Truth:
    """The factors as classes, pixels and radians."""
    kinds: dict[str, Sized] = {"shape": SHAPES, "texture": TEXTURE_NAMES}
    kinds |= {"colour": COLOURS, "background": BACKGROUNDS}
    truth = {name: (dice[name] * len(known)).long() for name, known in kinds.items()}
    for axis in ("cx", "cy"):
        truth[axis] = image * (0.5 + WANDER * (2 * dice[axis] - 1))
    truth["size"] = image * (SMALLEST + (LARGEST - SMALLEST) * dice["size"])
    truth["angle"] = TILT * (2 * dice["angle"] - 1)
    return truth


def paint(dice: Dice, truth: Truth, image: int) -> tuple[Tensor, Tensor]:
    """Images (n, 3, image, image) in uint8, and the boxes (n, 4) of their objects."""
    distance = signed_distances(truth, image)
    drop = round(image * SHADOW)
    here, shifted = distance[:, drop:, drop:], distance[:, :-drop, :-drop]
    planes = torch.empty(len(here), 6, image, image)
    ground, first, second, cover, pattern, light = planes.unbind(1)
    torch.sub(0.5, here, out=cover).clamp_(0, 1)
    soft = image / 32
    shadow = torch.mul(shifted, -0.25 / soft, out=ground).add_(0.6).clamp_(0, 1)
    shadow.mul_(-0.45).add_(1).mul_(1 - cover)  # in place: `ground` is this plane
    for plane, n in ((first, 1), (second, 2)):
        where = (dice[f"{name}_{n}"] for name in ("field", "across", "down"))
        torch.mul(windows(image, 1.0, *where), ground, out=plane)
    torch.mul(_texture_planes(dice, truth, image), cover, out=pattern)
    rim = (here * (0.35 / soft)).add_(1).clamp_(0, 1)  # 0 inside, 1 at the edge
    torch.mul(shifted - here, rim, out=light).mul_(0.6 / drop).add_(_glow(truth, image)).mul_(cover)
    pixels = torch.bmm(_colour_table(dice, truth), planes.flatten(2))
    return pixels.clamp_(0, 255).to(torch.uint8).view(-1, 3, image, image), boxes(here)


def signed_distances(truth: Truth, image: int) -> Tensor:
    """Signed distance of every pixel from the outline, in pixels, with a margin for the shadow."""
    drop = round(image * SHADOW)
    steps = torch.arange(-drop, image) + 0.5
    out = torch.empty(len(truth["shape"]), len(steps), len(steps))
    for rows, shape in _rows_by_class(truth["shape"], SHAPES.values()):
        radius = truth["size"][rows] / 2
        x, y = _turned(steps, truth["cx"][rows], truth["cy"][rows], truth["angle"][rows], radius)
        out.index_copy_(0, rows, shape(x, y).mul_(radius[:, None, None]))
    return out


def _texture_planes(dice: Dice, truth: Truth, image: int) -> Tensor:
    """(n, image, image) from -1, the first colour of the texture, to 1, the second."""
    steps = torch.arange(image) + 0.5
    out = torch.empty(len(truth["texture"]), image, image)
    for rows, name in _rows_by_class(truth["texture"], TEXTURE_NAMES):
        if name in NOISES:
            where = (dice[f"{number}_3"][rows] for number in ("field", "across", "down"))
            plane = windows(image, NOISES[name], *where).mul_(0.8)
        else:
            period = (0.14 + 0.05 * dice["period"][rows]) * image
            x = truth["cx"][rows] + (dice["phase_x"][rows] - 0.5) * period
            y = truth["cy"][rows] + (dice["phase_y"][rows] - 0.5) * period
            plane = TEXTURES[name](*_turned(steps, x, y, pi * dice["turn"][rows], period))
            plane.mul_(2 * period[:, None, None])  # so that the border is a pixel wide
        out.index_copy_(0, rows, plane.clamp_(-1, 1))
    return out


def _turned(
    steps: Tensor, cx: Tensor, cy: Tensor, angle: Tensor, unit: Tensor
) -> tuple[Tensor, Tensor]:
    """Pixels in the frame of (cx, cy), x right and y up, turned clockwise by `angle`, in
    `unit`s."""
    right, up = (steps - cx[:, None])[:, None, :], (cy[:, None] - steps)[:, :, None]
    c, s = (angle.cos() / unit)[:, None, None], (angle.sin() / unit)[:, None, None]
    return c * right - s * up, s * right + c * up


def _glow(truth: Truth, image: int) -> Tensor:
    """Brighter towards the light, upper left: a slope over the object."""
    steps = torch.arange(image) + 0.5
    x, y = (
        (truth[axis][:, None] - steps) * (0.35 / truth["size"][:, None]) for axis in ("cx", "cy")
    )
    return x[:, None, :] + y[:, :, None]


def _colour_table(dice: Dice, truth: Truth) -> Tensor:
    """(n, 3, 6): what each plane adds to red, green and blue."""
    backgrounds = torch.tensor(list(BACKGROUNDS.values()), dtype=torch.float32)
    base = backgrounds[truth["background"]].transpose(1, 2)
    palette = torch.tensor(list(COLOURS.values()), dtype=torch.float32)
    neighbour = palette[(truth["colour"] + 1) % len(COLOURS)]
    colour = palette[truth["colour"]].lerp(neighbour, 0.3 * dice["hue"][:, None])
    colour = colour * (0.85 + 0.2 * dice["bright"])[:, None]
    # The second colour of a texture is between the first and nearly black or nearly white.
    ends = torch.tensor([[28.0, 24.0, 48.0], [255.0, 250.0, 235.0]])
    other = colour.lerp(ends[(dice["second"] * 2).long()], (0.4 + 0.25 * dice["depth"])[:, None])
    half = (other - colour) / 2
    rest = torch.stack([colour + half, half, torch.full_like(half, 110)], 2)
    table = torch.cat([base, rest], 2)
    table[:, :, [0, 3]] += 0.5  # so that cutting off fractions rounds
    return table


def boxes(distance: Tensor) -> Tensor:
    """Bounding boxes (n, 4), x0, y0, x1, y1, of pixels with centres in the object; x1 and y1 are
    exclusive."""
    sides = []
    for axis in (1, 2):
        inside = (distance.amin(axis) < 0).byte()
        sides.append((inside.argmax(1), inside.shape[1] - inside.flip(1).argmax(1)))
    (x0, x1), (y0, y1) = sides
    return torch.stack([x0, y0, x1, y1], 1)


def _rows_by_class(classes: Tensor, things: Iterable[Thing]) -> Iterator[tuple[Tensor, Thing]]:
    """Yield the rows of each class that occurs with its entry of `things`, to draw them at once."""
    for number, thing in enumerate(things):
        rows = (classes == number).nonzero().flatten()
        if len(rows):
            yield rows, thing
