"""How the loss changes around the trained weights (A4.05).

    NLL(x, y) = mean over images of  -log softmax(f(image; w'))[label]        L2(x, y) = ½ · weight_decay · |w'|²

at w' = w + x·d₁ + y·d₂, on a grid around the weights w, along two random directions, each filter of which is as long as
the same filter of w (see `directions`). The two terms are kept apart, and so is Σ‖W‖, the sum of norms that Park and
Kim plot instead of L2 (X-32). The centre is the trained model itself, to the last bit. They find a ViT's landscape
flatter than a ResNet's (HDV-11), farther out at least: in their own numbers (C5) the ViT is steeper near the centre.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.curvature import relief
from vitreous.measure.curvature.copies import Statistics, lean, scores, stackable, with_statistics
from vitreous.measure.curvature.directions import (
    Kind,
    Plane,
    direction,
    eigenvectors,
    still,
)
from vitreous.measure.curvature.loss import Batches, Stream, Weights, require_finite, weights
from vitreous.measure.memory import halving
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import times
from vitreous.measure.section import Section
from vitreous.measure.subject import Subject
from vitreous.results import Result
from vitreous.results.comparing import mean_by_model, rank_models
from vitreous.results.words import format_number
from vitreous.storage.fingerprints import fingerprint, labelled

__all__ = ["Landscape"]

GROUP = 16
"""Points of a piece."""
MOST = 128
"""Copies in one pass; more do not keep a GPU busier."""
FEW = 32
"""Images that pass a CPU at a time."""
SHARD = 128
"""Images that are augmented together, whatever fits into memory."""
KEPT = 1 << 30
"""Bytes of prepared images to keep from one point to the next."""
SMALL = 1 << 16
"""Parameters up to which directions are stored with the result; of longer ones there is a fingerprint."""


@dataclass
class Landscape(Analysis):
    """How the loss changes around the trained weights."""

    directions: Kind = "random"
    """`random`: filter-wise normalised; `official`: as the code of How Do Vision Transformers Work? does it;
    `eigenvectors`: of length one, along which the loss of the first 128 images is curved most."""
    points: int = 21
    """Along each direction; odd, so that the trained weights are one of them."""
    reach: float = 1.0
    """How far the grid goes; at 1 every filter has moved by its own length."""
    dimensions: int = 2
    """1 for a line along the first direction only."""
    vectors: bool = False
    """Whether biases, norms, positions and tokens move too; each is then one filter (a table: one for each row)."""
    stream: Stream = "clean"
    """The images alone, or `augmented`, as training shows them."""
    recipe: str = "hdv_cifar"
    """Whose augmentation."""
    weight_decay: float = 0.05
    """Of the L2 term."""
    statistics: Statistics = "running"
    """Of batch normalisation: those of the training, or, at every point anew, those of each `batch` of 128 images."""
    copies: int = 0
    """Points in one pass; 0 for as many as fit on a GPU, at most 128, and one on a CPU."""

    name = "landscape"
    ids = ("A4.05", "HDV-11", "HDV-51", "X-04", "X-32")
    section = Section(
        "curvature",
        "How fast does the loss rise around the trained weights?",
        "The loss on a plane through the trained weights, along two random directions in which "
        "each filter moves in proportion to its norm. What weight decay adds is shown separately.",
        "A ViT's landscape is flatter than a ResNet's towards the border and steeper at the "
        "centre: at a tenth of the filters' norms the loss of ViT-Ti rises by 0.30 and that of "
        "ResNet-50 by 0.21, at a half by 2.18 and 3.38 (Park & Kim 2022, Fig. 1a, and the numbers "
        "released with it).",
        order=2,
        headline=11,
    )
    split = "train"

    def __post_init__(self) -> None:
        for value, kind in (
            (self.directions, Kind),
            (self.stream, Stream),
            (self.statistics, Statistics),
        ):
            if value not in get_args(kind):
                raise UnknownName("option of landscape", str(value), get_args(kind))
        if self.points < 3 or self.points % 2 == 0:
            raise VitreousError(
                f"A landscape of {self.points} points has no middle; take an odd number, 3 or more."
            )
        if self.dimensions not in (1, 2) or not 0 < self.reach < math.inf or self.copies < 0:
            raise VitreousError(
                f"A landscape has 1 or 2 dimensions, a positive reach and no negative number of copies, and not "
                f"{self.dimensions}, {self.reach:g} and {self.copies}."
            )
        if self.vectors and self.directions != "random":
            raise VitreousError(
                "vectors=True is for random directions; the others know which parameters they move."
            )

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if not any(True for _ in subject.specimen.parameters()):
            return "It has no parameters, so its loss has no landscape."
        return super().unsuited(subject, bench)

    @property
    def where(self) -> Tensor:
        """(points, dimensions) places on the grid, row by row; the middle one is exactly zero."""
        half = self.points // 2
        line = torch.arange(-half, half + 1, dtype=torch.float64) / half * self.reach
        if self.dimensions == 1:
            return line[:, None]
        y, x = torch.meshgrid(line, line, indexing="ij")
        return torch.stack([x.flatten(), y.flatten()], 1)

    def plane(self, subject: Subject, bench: Bench) -> Plane:
        """What the grid lies in."""
        origin = weights(subject.specimen)
        axes: Iterable[Weights]
        if self.directions == "eigenvectors":
            shown = self.batches(subject, bench)(torch.arange(min(SHARD, len(bench.data))))
            axes = eigenvectors(
                subject.specimen, origin, *shown, bench.batch, self.dimensions, bench.seed
            )
        else:
            left = set() if self.vectors else still(subject.model or subject.specimen)
            axes = (
                direction(self.directions, origin, left, bench.seed, axis)
                for axis in range(self.dimensions)
            )
        plane = Plane(origin, tuple(axes))
        if not plane.moving:
            raise VitreousError(
                f"{subject.name} has no weight with filters to move; take vectors=True."
            )
        return plane

    def batches(self, subject: Subject, bench: Bench) -> Batches:
        """Images as the loss sees them."""
        return Batches(subject, bench.data, self.stream, self.recipe, bench.seed)

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [
            f"{int(part[0])} to {int(part[-1])}"
            for part in torch.arange(len(self.where)).split(GROUP)
        ]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        yield _Grid(self, subject, bench)

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        classes, where = len(bench.data.classes), self.where.numpy()
        rows, arrays, drawn, statistics = [], {}, {}, {}
        for subject in asked:
            parts = [found[subject.name][piece] for piece in self.pieces(subject, bench)]
            heights = relief.heights(parts, len(bench.data), self.weight_decay)
            mine = [{"model": subject.name, **row} for row in relief.rows(where, heights, classes)]
            rows += mine
            statistics[subject.name] = {
                row["measure"]: _plain(row["value"]) for row in mine if row["part"] == "whole"
            }
            prints = {
                bytes(each.flatten().tolist()).hex()
                for each in (part["directions"] for part in parts)
            }
            if len(prints) > 1:
                raise VitreousError(
                    f"The pieces of {subject.name} are of different directions; begin in a new folder."
                )
            long = prints.pop()
            drawn[subject.name] = [long[i : i + 16] for i in range(0, len(long), 16)]
            if sum(value.numel() for value in weights(subject.specimen).values()) <= SMALL:
                for i, axis in enumerate(self.plane(subject, bench).axes):
                    flat = torch.cat([axis[name].flatten() for name in axis])
                    arrays[f"direction {i + 1} of {subject.name}"] = flat.cpu().numpy()
        about = {
            "directions": {"kind": self.directions, "seed": bench.seed, "fingerprints": drawn},
            "statistics": statistics,
        }
        step = (
            "is a distance of 1 in the space of weights"
            if self.directions == "eigenvectors"
            else relief.FILTERS
        )
        views = relief.views(self.dimensions, classes, step)
        table = pd.DataFrame(rows, columns=[column.name for column in relief.COLUMNS])
        table["direction"] = pd.Categorical(table["direction"], ["first", "second"])
        return Result(self.name, table, relief.COLUMNS, views, arrays, about)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rings = result.table[result.table["part"] == "ring"]
        radii = {rings["radius"].max(): "Far from", rings["radius"].min(): "Close to"}
        for radius, distance in sorted(radii.items()):
            rows = rings[rings["radius"] == radius].dropna(subset="value")
            at = f"{distance} the trained weights (radius {format_number(radius)})"
            yield rank_models(
                mean_by_model(rows),
                f"{at} the loss of {{model}} rises most, by {{}}",
                "that of {model} least, by {}",
                f"{at} the rises of the loss are tied: {{}} to {{}}",
            )


def _plain(value: float) -> float | None:
    return value if np.isfinite(value) else None


class _Grid:
    """Losses of one model at the points of a grid."""

    def __init__(self, asked: Landscape, subject: Subject, bench: Bench) -> None:
        self.bench, self.name, self.where = bench, subject.name, asked.where
        self.asked, self.subject = asked, subject
        self.batches = asked.batches(subject, bench)
        self.whole = asked.statistics == "batch"
        self.itself = with_statistics(subject.specimen, asked.statistics)
        self.batch = asked.copies or (1 if subject.device.type == "cpu" else MOST)
        self.moved = stackable(self.itself) if self.batch > 1 else lean(self.itself)
        drawn = np.stack([times(row, bench.seed) for row in range(len(bench.data))], 1)
        self.weights = torch.cat(
            [torch.ones(1, len(bench.data), dtype=torch.float64), torch.from_numpy(drawn)]
        )
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}
        self.middle = len(self.where) // 2
        self.found: dict[int, Tensor] = {}
        """Losses of the middle, and of points that were done beside those of a piece that was asked for."""

    @cached_property
    def plane(self) -> Plane:
        """Made with the first piece, which can be begun again where memory does not suffice."""
        return self.asked.plane(self.subject, self.bench)

    @cached_property
    def prints(self) -> Tensor:
        return torch.tensor(
            [list(bytes.fromhex(fingerprint(*labelled(axis)))) for axis in self.plane.axes]
        )

    @torch.no_grad()
    def __call__(self, piece: str) -> Numbers:
        first, last = map(int, piece.split(" to "))
        if (
            self.middle not in self.found
        ):  # before anything else, because without it there is nothing to compare with
            self.found[self.middle] = require_finite(self.centre(), self.name)
        waiting = [point for point in range(first, len(self.where)) if point not in self.found]
        while waiting and waiting[0] <= last:
            found = halving(self, len(waiting), lambda: self.losses(waiting[: self.batch]))
            self.found.update(zip(waiting[: len(found)], found, strict=True))
            del waiting[: len(found)]
        losses = torch.stack([self.found[point] for point in range(first, last + 1)])
        self.found = {
            point: each
            for point, each in self.found.items()
            if point > last or point == self.middle
        }
        nll, right = losses.unbind(-1)
        squares = self.plane.squares(self.where[first : last + 1])
        return {
            "nll": self.summed(nll), "right": self.summed(right), "count": self.weights.sum(1),
            "square": squares.sum(1), "norms": squares.clamp_min(0).sqrt().sum(1), "directions": self.prints,
        }  # fmt: skip

    def summed(self, values: Tensor) -> Tensor:
        """(points, draws); what was measured, the first, is a plain sum, as one has it of the model alone: a product
        adds in an order that depends on the processor."""
        return torch.cat([values.contiguous().sum(1, keepdim=True), values @ self.weights[1:].T], 1)

    def centre(self) -> Tensor:
        """Losses of the model itself; on a GPU they also show how many copies there is memory for."""
        device = self.subject.device
        if device.type != "cuda":
            return self.losses([self.middle])[0]
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        found = self.losses([self.middle])[0]
        own = torch.cuda.max_memory_allocated(device) - before
        moved = 2 * sum(value.nbytes for value in self.plane.origin.values())
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        room = torch.cuda.mem_get_info(device)[0] + cached
        self.batch = max(1, min(self.batch, room // (2 * (own + moved))))
        return found

    def losses(self, group: list[int]) -> Tensor:
        """(points, images, 2) NLL and whether the answer was right."""
        stacked = self.batch > 1 and len(group) > 1
        centre = group == [self.middle]
        specimen, moved = (
            (self.itself, {}) if centre else (self.moved, self.plane.at(self.where[group]))
        )
        if not stacked:
            moved = {name: value[0] for name, value in moved.items()}
        few = 0 if centre or self.whole or self.subject.device.type != "cpu" else FEW
        found = []
        for images, targets in self.images():
            given = scores(specimen, moved, images, len(group) if stacked else 0, few).double()
            given = given if stacked else given[None]
            wanted = targets.expand(len(group), *targets.shape)
            nll = F.cross_entropy(given.flatten(0, 1), wanted.flatten(0, 1), reduction="none")
            best = targets if targets.ndim == 1 else targets.argmax(1)
            found.append(
                torch.stack([nll.view(len(group), -1), (given.argmax(2) == best).double()], -1)
            )
        return torch.cat(found, 1).cpu()

    def images(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Images and targets, as many at a time as fit."""
        size = SHARD if self.whole else self.bench.batch
        for rows in torch.arange(len(self.bench.data)).split(SHARD):
            first = int(rows[0])
            images, targets = self.kept.get(first) or self.batches(rows)
            if images[0].nbytes * len(self.bench.data) <= KEPT:
                self.kept[first] = images, targets
            yield from zip(images.split(size), targets.split(size), strict=True)
