"""Five synthetic tasks, SYN-A to SYN-E, each of which needs, as far as possible, a single ability.

Each function takes a generator, a number of images and their side, and returns uint8 images
(n, 3, side, side) and their ground truth. All but SYN-E are nearly grey, so that classes differ
only in what the task is about.
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
"""Each has five of nine pixels lit, so that counting bright pixels does not help; any two, mirrored
or not, differ in four or more."""
SYMBOLS = (
    ("ring", "#####..##..#####"),
    ("columns", "#.#.#.#.#.#.#.#."),
    ("rows", "####....####...."),
    ("checks", "#.#..#.##.#..#.#"),
)
BETAS = (0.4, 0.7, 1.0, 1.3, 1.6)


def _integers(generator: torch.Generator, high: int, count: int) -> Tensor:
    return torch.randint(high, (count,), generator=generator)


def _grey_noise(generator: torch.Generator, count: int, side: int, swing: int = 64) -> Tensor:
    """Uniform noise, each pixel drawn alone: all places are alike, for any patch size."""
    return torch.randint(
        128 - swing, 128 + swing, (count, 1, side, side), generator=generator, dtype=torch.uint8
    ).repeat(1, 3, 1, 1)


def bitmap(text: str) -> Tensor:
    """A square of bright (#) and dark (.) pixels."""
    side = round(len(text) ** 0.5)
    levels = [240 if mark == "#" else 16 for mark in text]
    return torch.tensor(levels, dtype=torch.uint8).view(side, side)


def _paste(images: Tensor, stamps: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Put one stamp (n, h, w) or (n, 3, h, w) on each image, its corner at (x, y); return the
    boxes."""
    height, width = stamps.shape[-2:]
    rows = (y[:, None] + torch.arange(height))[:, :, None]
    columns = (x[:, None] + torch.arange(width))[:, None, :]
    each = torch.arange(len(images))[:, None, None]
    coloured = stamps if stamps.ndim == 4 else stamps[:, None].expand(-1, 3, -1, -1)
    images[each, :, rows, columns] = coloured.permute(0, 2, 3, 1)
    return torch.stack([x, y, x + width, y + height], 1)


def draw_gratings(
    generator: torch.Generator, count: int, side: int, cues: str = "independent"
) -> Drawn:
    """SYN-A: a fine grating inside a coarse blob. Either may be the label: texture or shape.

    `cues` relates the two: "independent", "agree" (class k of both) or "conflict" (never the same
    class). Low frequencies carry the blob and high ones the grating.
    """
    kinds = len(BLOBS)
    shape, texture = _integers(generator, kinds, count), _integers(generator, kinds, count)
    if cues != "independent":
        others = 0 if cues == "agree" else 1 + _integers(generator, kinds - 1, count)
        texture = (shape + others) % kinds
    dice = torch.rand(6, count, 1, 1, generator=generator)
    steps = torch.arange(side) + 0.5
    cx, cy = (side * (0.5 + 0.1 * (2 * die - 1)) for die in dice[:2])
    radius, turn, period = side * (0.24 + 0.06 * dice[2]), 2 * pi * dice[3], 3 + 0.6 * dice[4]
    x, y = steps - cx, steps[:, None] - cy
    angle = (pi / kinds * texture)[:, None, None]
    phase = (x * angle.cos() + y * angle.sin()) / period + dice[5]
    wave = (phase - phase.round()).abs_().mul_(4).sub_(1)
    cover = (0.5 - _blob_distance(x, y, shape, radius, turn)).clamp_(0, 1)
    noise = torch.rand(count, side, side, generator=generator)
    light = 90 + cover * (60 + 45 * wave) + 20 * (noise - 0.5)
    images = light.clamp_(0, 255).to(torch.uint8)[:, None].repeat(1, 3, 1, 1)
    return images, {"shape": shape, "texture": texture, "cx": cx.flatten(), "cy": cy.flatten()}


def _blob_distance(x: Tensor, y: Tensor, shape: Tensor, radius: Tensor, turn: Tensor) -> Tensor:
    """Approximate distance from the outline radius · (1 + depth · cos(lobes · angle))."""
    lobes = torch.tensor([0, 2, 3, 4])[shape][:, None, None]
    depth = torch.tensor([0.0, 0.45, 0.35, 0.3])[shape][:, None, None]
    swing = (lobes * torch.atan2(y, x) + turn).cos()
    return (x * x + y * y).sqrt() - radius * (1 + depth * swing)


def draw_motifs(
    generator: torch.Generator, count: int, side: int, kinds: int = len(MOTIFS), swing: int = 64
) -> Drawn:
    """SYN-B: which 3 × 3 motif occurs once, anywhere, on noise. Local, and the same everywhere.

    Fewer motifs on fainter noise are the same task for small datasets: with eight motifs in noise
    of half their contrast a transformer needs many thousand images to leave chance.
    """
    motif = _integers(generator, kinds, count)
    stamps = torch.stack([bitmap(text) for _, text in MOTIFS])[motif]
    x, y = _integers(generator, side - 2, count), _integers(generator, side - 2, count)
    images = _grey_noise(generator, count, side, swing)
    return images, {"motif": motif, "box": _paste(images, stamps, x, y)}


def draw_places(generator: torch.Generator, count: int, side: int) -> Drawn:
    """SYN-C: where a fixed object sits: in which quadrant, row or column of a 4 × 4 board of cells.

    The place within the cell does not depend on the cell, nor does the noise. Images of two classes
    are therefore the same up to exchanging cells: for any patch size that divides a cell, the set
    of patches has no information about the label, and a model without positions stays at chance.
    The noise is faint, because in strong noise a transformer takes long to notice the object at
    all.
    """
    cell = side // 4
    stamp = _bullseye(cell * 3 // 4)
    row, column = _integers(generator, 4, count), _integers(generator, 4, count)
    room = cell - len(stamp[0]) + 1
    x, y = (cell * line + _integers(generator, room, count) for line in (column, row))
    images = _grey_noise(generator, count, side, swing=16)
    box = _paste(images, stamp.expand(count, -1, -1, -1), x, y)
    quadrant = row // 2 * 2 + column // 2
    return images, {"quadrant": quadrant, "row": row, "column": column, "box": box}


def _bullseye(side: int) -> Tensor:
    """A yellow target (3, side, side) with a dark ring."""
    steps = torch.arange(side) - (side - 1) / 2
    far = (steps**2 + steps[:, None] ** 2).sqrt() / (side / 2)
    dark = (far > 0.4) & (far < 0.85)
    colours = torch.tensor([[250, 210, 50], [40, 30, 70]], dtype=torch.uint8)
    return colours[dark.long()].permute(2, 0, 1)


def draw_pairs(generator: torch.Generator, count: int, side: int) -> Drawn:
    """SYN-D: whether two symbols at a distance of at least half the image are equal (half are)."""
    kinds, cells = len(SYMBOLS), side // 4
    same = _integers(generator, 2, count)
    first = _integers(generator, kinds, count)
    second = (first + (1 - same) * (1 + _integers(generator, kinds - 1, count))) % kinds
    # Row and column of one cell, row and column of the other.
    lines = torch.cartesian_prod(*[torch.arange(cells)] * 4)
    apart = (lines[:, :2] - lines[:, 2:]).abs().amax(1) >= cells // 2
    y1, x1, y2, x2 = (4 * lines[apart][_integers(generator, int(apart.sum()), count)]).unbind(1)
    stamps = torch.stack([bitmap(text) for _, text in SYMBOLS])
    images = _grey_noise(generator, count, side)
    boxes = [_paste(images, stamps[first], x1, y1), _paste(images, stamps[second], x2, y2)]
    symbols = torch.stack([first, second], 1)
    return images, {"same": same, "symbols": symbols, "boxes": torch.stack(boxes, 1)}


def draw_clouds(generator: torch.Generator, count: int, side: int) -> Drawn:
    """SYN-E: noise with amplitude 1/f^beta; beta is the label. Mean and contrast are the same
    for all."""
    beta = _integers(generator, len(BETAS), count)
    gain = torch.stack([falloff(side, exponent) for exponent in BETAS])[beta]
    fields = filtered(torch.rand(count, 3, side, side, generator=generator), gain[:, None])
    # Mostly brightness, a little colour.
    mix = torch.tensor([[1.0, 0.4, 0.1], [1.0, 0.0, -0.2], [1.0, -0.4, 0.1]])
    mixed = torch.bmm(mix.expand(count, 3, 3), fields.flatten(2))
    mixed *= 42 / mixed.std(dim=(1, 2), keepdim=True)
    images = mixed.add_(128.5).clamp_(0, 255).to(torch.uint8).view(count, 3, side, side)
    return images, {"beta": beta, "exponent": torch.tensor(BETAS)[beta]}
