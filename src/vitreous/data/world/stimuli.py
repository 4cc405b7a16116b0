"""The five tasks of the catalogue, SYN-A to SYN-E: each needs one ability of a model and, as far as can be, no other.

A drawer takes a generator, a number of images and their side, and gives pictures (n, 3, side, side) in uint8 and what
is true of them. All but SYN-E are grey or nearly so: nothing but what the task is about tells the classes apart.
"""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

from vitreous.data.world.fields import falloff, filtered

Drawn = tuple[Tensor, dict[str, Tensor]]

BLOBS = ("disc", "bar", "trefoil", "quatrefoil")  # 0, 2, 3 and 4 lobes
ORIENTATIONS = ("0°", "45°", "90°", "135°")
MOTIFS = (
    ("cross", ".#.###.#."),
    ("saltire", "#.#.#.#.#"),
    ("flag", "#####...."),
    ("bars", "###...##."),
    ("loop", "##.#.##.."),
    ("shield", "#.##.#.#."),
    ("step", "#..###..#"),
    ("boot", "#..##.##."),
)
"""Five of nine pixels lit in each, so that counting bright pixels tells nothing; any two, mirrored or
not, differ in four or more."""
SYMBOLS = (
    ("ring", "#####..##..#####"),
    ("columns", "#.#.#.#.#.#.#.#."),
    ("rows", "####....####...."),
    ("checks", "#.#..#.##.#..#.#"),
)
BETAS = (0.4, 0.7, 1.0, 1.3, 1.6)


def integers(generator: torch.Generator, high: int, count: int) -> Tensor:
    return torch.randint(high, (count,), generator=generator)


def grey_noise(generator: torch.Generator, count: int, side: int, swing: int = 64) -> Tensor:
    """Every pixel drawn on its own: one place is like another, whatever way the image is cut into patches."""
    return torch.randint(
        128 - swing, 128 + swing, (count, 1, side, side), generator=generator, dtype=torch.uint8
    ).repeat(1, 3, 1, 1)


def pattern(text: str) -> Tensor:
    """A square of bright (#) and dark (.) pixels."""
    side = round(len(text) ** 0.5)
    return torch.tensor([240 if mark == "#" else 16 for mark in text], dtype=torch.uint8).view(
        side, side
    )


def paste(images: Tensor, stamps: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Put one stamp (n, h, w) or (n, 3, h, w) on each image, its corner at (x, y); gives the boxes."""
    height, width = stamps.shape[-2:]
    rows = (y[:, None] + torch.arange(height))[:, :, None]
    columns = (x[:, None] + torch.arange(width))[:, None, :]
    each = torch.arange(len(images))[:, None, None]
    coloured = stamps if stamps.ndim == 4 else stamps[:, None].expand(-1, 3, -1, -1)
    images[each, :, rows, columns] = coloured.permute(0, 2, 3, 1)
    return torch.stack([x, y, x + width, y + height], 1)


def gratings(generator: torch.Generator, count: int, side: int, cues: str = "independent") -> Drawn:
    """SYN-A: a fine grating inside a coarse blob. Either may be the label: texture or shape.

    `cues` says how the two go together: "independent", "agree" (class k of both) or "conflict" (never the same class).
    Low frequencies carry the blob and high ones the grating, which is what HDV-33 and A4.34 ask about.
    """
    kinds = len(BLOBS)
    shape, texture = integers(generator, kinds, count), integers(generator, kinds, count)
    if cues != "independent":
        texture = (
            shape
            if cues == "agree"
            else (shape + 1 + integers(generator, kinds - 1, count)) % kinds
        )
    dice = torch.rand(6, count, 1, 1, generator=generator)
    steps = torch.arange(side) + 0.5
    cx, cy = (side * (0.5 + 0.1 * (2 * die - 1)) for die in dice[:2])
    radius, turn, period = side * (0.24 + 0.06 * dice[2]), 2 * pi * dice[3], 3 + 0.6 * dice[4]
    x, y = steps - cx, steps[:, None] - cy
    angle = (pi / kinds * texture)[:, None, None]
    phase = (x * angle.cos() + y * angle.sin()) / period + dice[5]
    wave = (phase - phase.round()).abs_().mul_(4).sub_(1)
    cover = (0.5 - blob_distance(x, y, shape, radius, turn)).clamp_(0, 1)
    light = (
        90
        + cover * (60 + 45 * wave)
        + 20 * (torch.rand(count, side, side, generator=generator) - 0.5)
    )
    images = light.clamp_(0, 255).to(torch.uint8)[:, None].repeat(1, 3, 1, 1)
    return images, {"shape": shape, "texture": texture, "cx": cx.flatten(), "cy": cy.flatten()}


def blob_distance(x: Tensor, y: Tensor, shape: Tensor, radius: Tensor, turn: Tensor) -> Tensor:
    """Distance, about, from an outline whose radius swings by lobes: radius · (1 + depth · cos(lobes · angle))."""
    lobes = torch.tensor([0, 2, 3, 4])[shape][:, None, None]
    depth = torch.tensor([0.0, 0.45, 0.35, 0.3])[shape][:, None, None]
    swing = (lobes * torch.atan2(y, x) + turn).cos()
    return (x * x + y * y).sqrt() - radius * (1 + depth * swing)


def motifs(
    generator: torch.Generator, count: int, side: int, kinds: int = len(MOTIFS), swing: int = 64
) -> Drawn:
    """SYN-B: which of so many 3 × 3 motifs occurs once, anywhere, on noise. Local, and the same everywhere.

    Fewer motifs on fainter noise are the same task for those who see only some thousand images: a transformer needs
    many more to notice eight of them in noise of half their contrast, and stays at chance until then.
    """
    motif = integers(generator, kinds, count)
    stamps = torch.stack([pattern(text) for _, text in MOTIFS])[motif]
    x, y = integers(generator, side - 2, count), integers(generator, side - 2, count)
    images = grey_noise(generator, count, side, swing)
    return images, {"motif": motif, "box": paste(images, stamps, x, y)}


def places(generator: torch.Generator, count: int, side: int) -> Drawn:
    """SYN-C: where a fixed object sits: in which quadrant, row or column of a 4 × 4 board of cells.

    The place within the cell is drawn without regard to the cell and every pixel of the noise on its own, so that
    images of two classes are the same up to exchanging cells: the set of patches, for any patch that divides a cell,
    tells nothing about the label, and a model that does not know positions stays at chance (VIT-01). The noise is
    faint: what is asked is where the object is, and in strong noise a transformer takes long to notice it at all.
    """
    cell = side // 4
    stamp = bullseye(cell * 3 // 4)
    row, column = integers(generator, 4, count), integers(generator, 4, count)
    room = cell - len(stamp[0]) + 1
    x, y = (cell * line + integers(generator, room, count) for line in (column, row))
    images = grey_noise(generator, count, side, swing=16)
    box = paste(images, stamp.expand(count, -1, -1, -1), x, y)
    return images, {
        "quadrant": row // 2 * 2 + column // 2,
        "row": row,
        "column": column,
        "box": box,
    }


def bullseye(side: int) -> Tensor:
    """A yellow target (3, side, side) with a dark ring."""
    steps = torch.arange(side) - (side - 1) / 2
    far = (steps**2 + steps[:, None] ** 2).sqrt() / (side / 2)
    dark = (far > 0.4) & (far < 0.85)
    colours = torch.tensor([[250, 210, 50], [40, 30, 70]], dtype=torch.uint8)
    return colours[dark.long()].permute(2, 0, 1)


def pairs(generator: torch.Generator, count: int, side: int) -> Drawn:
    """SYN-D: do two symbols, at least half the image apart, agree? Each alone tells nothing; half the time they do."""
    kinds, cells = len(SYMBOLS), side // 4
    same = integers(generator, 2, count)
    first = integers(generator, kinds, count)
    second = (first + (1 - same) * (1 + integers(generator, kinds - 1, count))) % kinds
    lines = torch.cartesian_prod(
        *[torch.arange(cells)] * 4
    )  # row and column of one cell, row and column of the other
    apart = (lines[:, :2] - lines[:, 2:]).abs().amax(1) >= cells // 2
    y1, x1, y2, x2 = (4 * lines[apart][integers(generator, int(apart.sum()), count)]).unbind(1)
    stamps = torch.stack([pattern(text) for _, text in SYMBOLS])
    images = grey_noise(generator, count, side)
    boxes = [paste(images, stamps[first], x1, y1), paste(images, stamps[second], x2, y2)]
    return images, {
        "same": same,
        "symbols": torch.stack([first, second], 1),
        "boxes": torch.stack(boxes, 1),
    }


def clouds(generator: torch.Generator, count: int, side: int) -> Drawn:
    """SYN-E: noise whose amplitude falls as 1/f^beta; beta is the label. All have one mean and one contrast."""
    beta = integers(generator, len(BETAS), count)
    gain = torch.stack([falloff(side, exponent) for exponent in BETAS])[beta]
    fields = filtered(torch.rand(count, 3, side, side, generator=generator), gain[:, None])
    mix = torch.tensor(
        [[1.0, 0.4, 0.1], [1.0, 0.0, -0.2], [1.0, -0.4, 0.1]]
    )  # mostly brightness, a little colour
    mixed = torch.bmm(mix.expand(count, 3, 3), fields.flatten(2))
    mixed *= 42 / mixed.std(dim=(1, 2), keepdim=True)
    images = mixed.add_(128.5).clamp_(0, 255).to(torch.uint8).view(count, 3, side, side)
    return images, {"beta": beta, "exponent": torch.tensor(BETAS)[beta]}
