"""The embedded world: small pictures drawn by the package itself, without a download, with all that is true of them.

`load("shapes")` gives objects whose shape, texture, colour, place and background are independent of each other;
`load("syn-a:shape")` to `load("syn-e")` the five tasks of the catalogue (SYN-A to SYN-E); `load("cues")` and
`load("conflict")` a training and a test set for shape against texture (A4.34, HDV-33). Image number i of a split is the
same whatever else was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from vitreous.data.dataset import Dataset, Triple
from vitreous.data.world import scene, stimuli
from vitreous.data.world.stimuli import Drawn
from vitreous.errors import UnknownName, VitreousError
from vitreous.random_numbers import hash_bits

BLOCK = 512  # images that are drawn together, from one generator
SIZES = {"train": 20_000, "val": 2_000, "test": 2_000}
PASS = 2**20  # pixels of scenes that are painted at once: the planes of one pass stay in the cache
SAMPLE = 2_048  # training images behind the mean and standard deviation of the channels


@dataclass(frozen=True)
class Task:
    """Pictures, and which of the things that are true of them is the label."""

    about: str
    draw: Callable[[torch.Generator, int, int], Drawn]
    stream: str  # tasks of one stream have the same images
    label: str  # a key of the truth
    classes: tuple[str, ...]
    normalised_like: str = (
        ""  # the task whose mean and standard deviation it shares, where that is another
    )


def scenes(generator: torch.Generator, count: int, side: int, cues: str = "independent") -> Drawn:
    """Objects on natural backgrounds; `cues` says how texture goes with shape, as in `stimuli.gratings`."""
    dice = scene.roll(generator, count)
    truth = scene.truth_of(dice, side)
    if cues != "independent":
        kinds = len(scene.SHAPE_NAMES)
        others = 1 + (dice["texture"] * (kinds - 1)).long()
        truth["texture"] = truth["shape"] if cues == "agree" else (truth["shape"] + others) % kinds
    parts = [
        scene.paint(_part(dice, rows), _part(truth, rows), side) for rows in _passes(count, side)
    ]
    images, boxes = (torch.cat(each) for each in zip(*parts, strict=True))
    return images, truth | {"box": boxes}


def _passes(count: int, side: int) -> list[slice]:
    step = max(1, PASS // side**2)
    return [slice(start, start + step) for start in range(0, count, step)]


def _part(table: dict[str, Tensor], rows: slice) -> dict[str, Tensor]:
    return {key: value[rows] for key, value in table.items()}


def _tasks() -> dict[str, Task]:
    shapes, textures, lines = scene.SHAPE_NAMES, scene.TEXTURE_NAMES, ("1", "2", "3", "4")
    both = tuple(f"{shape} of {texture}" for shape, texture in zip(shapes, textures, strict=True))
    gratings = tuple(
        f"{blob} at {angle}"
        for blob, angle in zip(stimuli.BLOBS, stimuli.ORIENTATIONS, strict=True)
    )
    corners = ("upper left", "upper right", "lower left", "lower right")
    agree, conflict = partial(scenes, cues="agree"), partial(scenes, cues="conflict")
    a, a_agree, a_conflict = (
        partial(stimuli.gratings, cues=cues) for cues in ("independent", "agree", "conflict")
    )
    return {
        "shapes": Task("which of ten shapes the object has", scenes, "scenes", "shape", shapes),
        "textures": Task(
            "which of ten textures; the images of shapes", scenes, "scenes", "texture", textures
        ),
        "colours": Task(
            "which of eight colours; the images of shapes",
            scenes,
            "scenes",
            "colour",
            tuple(scene.COLOURS),
        ),
        "cues": Task(
            "shape and texture agree on the class", agree, "cues", "shape", both, "shapes"
        ),
        "conflict": Task(
            "shape of one class of cues, texture of another",
            conflict,
            "conflict",
            "shape",
            both,
            "shapes",
        ),
        "syn-a:shape": Task("the blob around a random grating", a, "syn-a", "shape", stimuli.BLOBS),
        "syn-a:texture": Task(
            "the grating in a random blob", a, "syn-a", "texture", stimuli.ORIENTATIONS
        ),
        "syn-a:cues": Task(
            "blob and grating agree on the class",
            a_agree,
            "syn-a:cues",
            "shape",
            gratings,
            "syn-a:shape",
        ),
        "syn-a:conflict": Task(
            "blob of one class of syn-a:cues, grating of another",
            *(a_conflict, "syn-a:conflict", "shape", gratings, "syn-a:shape"),
        ),
        "syn-b": Task(
            "which 3 × 3 motif occurs once on noise",
            stimuli.motifs,
            "syn-b",
            "motif",
            tuple(dict(stimuli.MOTIFS)),
        ),
        "syn-b:four": Task(
            "which of four motifs occurs once on faint noise",
            *(
                partial(stimuli.motifs, kinds=4, swing=32),
                "syn-b:four",
                "motif",
                tuple(dict(stimuli.MOTIFS))[:4],
            ),
        ),
        "syn-c": Task(
            "the quadrant in which an object sits", stimuli.places, "syn-c", "quadrant", corners
        ),
        "syn-c:row": Task("its row, out of four", stimuli.places, "syn-c", "row", lines),
        "syn-c:column": Task("its column, out of four", stimuli.places, "syn-c", "column", lines),
        "syn-d": Task(
            "whether two symbols far apart agree",
            stimuli.pairs,
            "syn-d",
            "same",
            ("different", "same"),
        ),
        "syn-e": Task(
            "beta of noise with a spectrum 1/f^beta",
            stimuli.clouds,
            "syn-e",
            "beta",
            tuple(map(str, stimuli.BETAS)),
        ),
    }


_TASKS = _tasks()
TASKS: dict[str, str] = {name: task.about for name, task in _TASKS.items()}
"""Every task and what its label is."""


def load(
    task: str = "shapes",
    *,
    split: str = "train",
    size: int | None = None,
    image: int = 32,
    seed: int = 0,
) -> Dataset:
    """`size` images of a task, with the whole truth about each: factors, boxes, both cues.

    Image i depends on (task, split, seed, i) and `image` alone; a larger set begins with the smaller one.
    """
    found = _known(task, split)
    count = SIZES[split] if size is None else size
    if count < 1:
        raise VitreousError(f"A world of {count} images was asked for; size has to be at least 1.")
    if image < 16 or image % 8:
        raise VitreousError(
            f"World images of {image} pixels were asked for; the side has to be a multiple of 8 from 16."
        )
    images, truth = _draw(found, split, count, image, seed)
    mean, std = _moments(found.normalised_like or task, image)
    return Dataset(
        images, truth[found.label], found.classes, f"world:{task}", split, mean, std, truth
    )


def _known(task: str, split: str) -> Task:
    if task not in _TASKS:
        raise UnknownName("task of the world", task, _TASKS, f"There are {', '.join(_TASKS)}.")
    if split not in SIZES:
        raise UnknownName("split of the world", split, SIZES, f"There are {', '.join(SIZES)}.")
    return _TASKS[task]


def _draw(task: Task, split: str, count: int, image: int, seed: int) -> Drawn:
    """The first `count` images, block by block; a block is drawn whole, so that its images do not depend on `count`."""
    images = torch.empty(count, 3, image, image, dtype=torch.uint8)
    parts: list[dict[str, Tensor]] = []
    for start in range(0, count, BLOCK):
        drawn, truth = task.draw(_generator(task.stream, split, seed, start // BLOCK), BLOCK, image)
        rest = min(BLOCK, count - start)
        images[start : start + rest] = drawn[:rest]
        parts.append(_part(truth, slice(rest)))
    return images, {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def _generator(stream: str, split: str, seed: int, block: int) -> torch.Generator:
    """One generator for each block: no two blocks of any stream or split share their numbers."""
    return torch.Generator().manual_seed(hash_bits(f"{stream}/{split}/{seed}/{block}", 63))


@lru_cache(maxsize=64)
def _moments(task: str, image: int) -> tuple[Triple, Triple]:
    """Mean and standard deviation of the channels, in [0, 1], of the first training images: one for all splits."""
    images, _ = _draw(_TASKS[task], "train", SAMPLE, image, 0)
    pixels = images.transpose(0, 1).flatten(1).double() / 255
    mean, std = (
        [round(value, 3) for value in values.tolist()] for values in (pixels.mean(1), pixels.std(1))
    )
    return (mean[0], mean[1], mean[2]), (std[0], std[1], std[2])
