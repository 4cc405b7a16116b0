"""The synthetic tasks, and datasets of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from vitreous.data.dataset import Dataset, Triple
from vitreous.data.world import scene
from vitreous.data.world.stimuli import (
    BETAS,
    BLOBS,
    MOTIFS,
    ORIENTATIONS,
    Drawn,
    draw_clouds,
    draw_gratings,
    draw_motifs,
    draw_pairs,
    draw_places,
)
from vitreous.errors import UnknownName, VitreousError
from vitreous.random_numbers import hash_bits

BLOCK = 512  # images that are drawn together, from one generator
SIZES = {"train": 20_000, "val": 2_000, "test": 2_000}
PASS = 2**20  # pixels of scenes that are painted at once: the planes of one pass stay in the cache
SAMPLE = 2_048  # training images behind the mean and standard deviation of the channels
KEPT = 64  # largest side in pixels of images whose first block is kept, at most 6 MB


@dataclass(frozen=True)
class _Task:
    about: str  # what the label is
    draw: Callable[[torch.Generator, int, int], Drawn]
    stream: str  # tasks of one stream have the same images
    label: str  # a key of the truth
    classes: tuple[str, ...]
    normalised_like: str = ""  # another task whose mean and standard deviation it shares


def draw_scenes(
    generator: torch.Generator, count: int, side: int, cues: str = "independent"
) -> Drawn:
    """Objects on natural backgrounds; `cues` relates texture to shape as in
    `stimuli.draw_gratings`."""
    dice = scene.roll(generator, count)
    truth = scene.truth_of(dice, side)
    if cues != "independent":
        kinds = len(scene.SHAPE_NAMES)
        others = 1 + (dice["texture"] * (kinds - 1)).long()
        truth["texture"] = truth["shape"] if cues == "agree" else (truth["shape"] + others) % kinds
    painted, boxes = [], []
    step = max(1, PASS // side**2)
    for start in range(0, count, step):
        rows = slice(start, start + step)
        some, box = scene.paint(_take(dice, rows), _take(truth, rows), side)
        painted.append(some)
        boxes.append(box)
    return torch.cat(painted), truth | {"box": torch.cat(boxes)}


def _take(table: dict[str, Tensor], rows: slice) -> dict[str, Tensor]:
    return {key: value[rows] for key, value in table.items()}


def _pairs(words: tuple[str, ...], between: str, others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{a} {between} {b}" for a, b in zip(words, others, strict=True))


_SHAPES, _TEXTURES = scene.SHAPE_NAMES, scene.TEXTURE_NAMES
_CUES, _BLOB_CUES = _pairs(_SHAPES, "of", _TEXTURES), _pairs(BLOBS, "at", ORIENTATIONS)
_MOTIFS, _LINES = tuple(dict(MOTIFS)), ("1", "2", "3", "4")
_CORNERS = ("upper left", "upper right", "lower left", "lower right")

_TASKS = {
    "shapes": _Task("which of ten shapes the object has", draw_scenes, "scenes", "shape", _SHAPES),
    "textures": _Task(
        "which of ten textures; the images of shapes",
        draw_scenes, "scenes", "texture", _TEXTURES),
    "colours": _Task(
        "which of eight colours; the images of shapes",
        draw_scenes, "scenes", "colour", tuple(scene.COLOURS)),
    "cues": _Task(
        "shape and texture agree on the class",
        partial(draw_scenes, cues="agree"), "cues", "shape", _CUES, "shapes"),
    "conflict": _Task(
        "shape of one class of cues, texture of another",
        partial(draw_scenes, cues="conflict"), "conflict", "shape", _CUES, "shapes"),
    "syn-a:shape": _Task(
        "the blob around a random grating", draw_gratings, "syn-a", "shape", BLOBS),
    "syn-a:texture": _Task(
        "the grating in a random blob", draw_gratings, "syn-a", "texture", ORIENTATIONS),
    "syn-a:cues": _Task(
        "blob and grating agree on the class",
        partial(draw_gratings, cues="agree"), "syn-a:cues", "shape", _BLOB_CUES, "syn-a:shape"),
    "syn-a:conflict": _Task(
        "blob of one class of syn-a:cues, grating of another",
        partial(draw_gratings, cues="conflict"),
        "syn-a:conflict", "shape", _BLOB_CUES, "syn-a:shape"),
    "syn-b": _Task(
        "which 3 × 3 motif occurs once on noise", draw_motifs, "syn-b", "motif", _MOTIFS),
    "syn-b:four": _Task(
        "which of four motifs occurs once on faint noise",
        partial(draw_motifs, kinds=4, swing=32), "syn-b:four", "motif", _MOTIFS[:4]),
    "syn-c": _Task(
        "the quadrant in which an object sits", draw_places, "syn-c", "quadrant", _CORNERS),
    "syn-c:row": _Task("its row, out of four", draw_places, "syn-c", "row", _LINES),
    "syn-c:column": _Task("its column, out of four", draw_places, "syn-c", "column", _LINES),
    "syn-d": _Task(
        "whether two symbols far apart agree",
        draw_pairs, "syn-d", "same", ("different", "same")),
    "syn-e": _Task(
        "beta of noise with a spectrum 1/f^beta",
        draw_clouds, "syn-e", "beta", tuple(map(str, BETAS))),
}  # fmt: skip
TASKS: dict[str, str] = {name: task.about for name, task in _TASKS.items()}
"""Every task and what its label is."""


def load_task(
    task: str = "shapes",
    *,
    split: str = "train",
    size: int | None = None,
    image: int = 32,
    seed: int = 0,
) -> Dataset:
    """`size` images of a task; `truth` has the ground truth: factors, boxes, both cues.

    Image i depends on (task, split, seed, i) and `image` alone; a larger set begins with the
    smaller one.
    """
    if task not in _TASKS:
        raise UnknownName("synthetic dataset", task, _TASKS, f"There are {', '.join(_TASKS)}.")
    if split not in SIZES:
        raise UnknownName(
            "split of a synthetic dataset", split, SIZES, f"There are {', '.join(SIZES)}."
        )
    count = SIZES[split] if size is None else size
    if count < 1:
        raise VitreousError(f"{count} images were asked for; size has to be at least 1.")
    if image < 16 or image % 8:
        raise VitreousError(
            f"Synthetic images of {image} pixels were asked for; the side has to be a multiple "
            "of 8, from 16 on."
        )
    drawn = _TASKS[task]
    images, truth = _draw(drawn, split, count, image, seed)
    mean, std = _mean_and_std(drawn.normalised_like or task, image)
    labels = truth[drawn.label]
    return Dataset(images, labels, drawn.classes, f"world:{task}", split, mean, std, truth)


def _draw(task: _Task, split: str, count: int, image: int, seed: int) -> Drawn:
    """Draw the first `count` images, in full blocks, so that images do not depend on `count`."""
    images = torch.empty(count, 3, image, image, dtype=torch.uint8)
    parts: list[dict[str, Tensor]] = []
    for start in range(0, count, BLOCK):
        draw = _draw_kept if start == 0 and image <= KEPT else _draw_block
        drawn, truth = draw(task, f"{task.stream}/{split}/{seed}/{start // BLOCK}", image)
        rest = min(BLOCK, count - start)
        images[start : start + rest] = drawn[:rest]
        parts.append(_take(truth, slice(rest)))
    return images, {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def _draw_block(task: _Task, block: str, image: int) -> Drawn:
    """The images of a block, which its name determines."""
    generator = torch.Generator().manual_seed(hash_bits(block, 63))
    return task.draw(generator, BLOCK, image)


_draw_kept = lru_cache(maxsize=8)(_draw_block)  # a few images are often loaded again


@lru_cache(maxsize=64)
def _mean_and_std(task: str, image: int) -> tuple[Triple, Triple]:
    """Mean and std of the channels, in [0, 1], over the first training images; for all splits."""
    images, _ = _draw(_TASKS[task], "train", SAMPLE, image, 0)
    pixels = images.transpose(0, 1).flatten(1).double() / 255
    (r, g, b), (rs, gs, bs) = (
        [round(value, 3) for value in values.tolist()] for values in (pixels.mean(1), pixels.std(1))
    )
    return (r, g, b), (rs, gs, bs)
