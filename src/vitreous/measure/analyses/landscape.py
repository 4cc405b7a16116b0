"""How the loss changes around the trained weights.

    NLL(x, y) = mean over images of  -log softmax(f(image; w'))[label]
    L2(x, y) = ½ · weight_decay · |w'|²

at w' = w + x·d₁ + y·d₂, on a grid around the weights w, along two random directions. Each filter of
a direction has the norm of the same filter of w (see `curvature/directions.py`). The two terms are
reported separately, and so is Σ‖W‖, the sum of norms that Park & Kim 2022 plot instead of L2. At
the centre the weights are exactly those of the trained model. Park & Kim find a ViT's landscape
flatter than a ResNet's (Fig. 1a), at least far from the centre: in their own numbers the ViT is
steeper near it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.curvature import relief
from vitreous.measure.curvature.directions import (
    Kind,
    Plane,
    eigenvectors,
    parameters_without_filters,
    random_direction,
)
from vitreous.measure.curvature.loss import Batches, Stream, Weights, require_finite, weights
from vitreous.measure.curvature.parameter_points import (
    Statistics,
    scores_at,
    with_fused_linear,
    with_stackable_attention,
    with_statistics,
)
from vitreous.measure.memory import halving
from vitreous.measure.partial import Numbers
from vitreous.measure.report_section import Section
from vitreous.measure.resampling import bootstrap_weights
from vitreous.measure.subject import Subject
from vitreous.results import Result, tabulate
from vitreous.results.comparing import mean_by_model, rank_models
from vitreous.results.words import format_number
from vitreous.storage.fingerprints import fingerprint, labelled

__all__ = ["Landscape"]

GROUP = 16
"""Number of points per piece."""
MAX_COPIES = 128
"""Maximum number of copies in one pass; more do not use a GPU better."""
CPU_BATCH = 32
"""Images per pass on a CPU."""
SHARD = 128
"""Number of images that are augmented together, independent of memory."""
CACHE_SIZE = 1 << 30
"""Maximum size in bytes of prepared images that are kept from one point to the next."""
SMALL = 1 << 16
"""Maximum number of parameters whose directions are stored with the result."""


@dataclass
class Landscape(Analysis):
    """Loss on a grid around the trained weights."""

    directions: Kind = "random"
    """`random`: filter-wise normalised; `official`: as in the code of Park & Kim 2022;
    `eigenvectors`: leading unit eigenvectors of the Hessian on the first 128 images."""
    points: int = 21
    """Points along each direction: an odd number, so that the trained weights are one of them."""
    reach: float = 1.0
    """Extent of the grid on either side; at 1 every filter has moved by its own norm."""
    dimensions: int = 2
    """2 for a plane, 1 for a line along the first direction."""
    vectors: bool = False
    """Also move biases, norms, positions and tokens, each (or each row) as one filter."""
    stream: Stream = "clean"
    """`clean` images, or `augmented` images, as in training."""
    recipe: str = "hdv_cifar"
    """Recipe whose augmentation `stream="augmented"` uses."""
    weight_decay: float = 0.05
    """Factor of the L2 term."""
    statistics: Statistics = "running"
    """Statistics of batch norm: `running` (of the training) or `batch` (of each 128 images)."""
    copies: int = 0
    """Points per pass; 0 takes one on a CPU and as many as fit on a GPU, at most 128."""

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
                f"A landscape of {self.points} points has no middle; use an odd number, 3 or more."
            )
        if self.dimensions not in (1, 2) or not 0 < self.reach < math.inf or self.copies < 0:
            raise VitreousError(
                "A landscape has 1 or 2 dimensions, a positive reach and no negative number of "
                f"copies, not {self.dimensions}, {self.reach:g} and {self.copies}."
            )
        if self.vectors and self.directions != "random":
            raise VitreousError(
                "vectors=True is for random directions; the others define which parameters move."
            )

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if not any(True for _ in subject.specimen.parameters()):
            return "It has no parameters, so its loss has no landscape."
        return super().unsuited(subject, bench)

    @property
    def where(self) -> Tensor:
        """Points of the grid, row by row, (points, dimensions); the centre is exactly zero."""
        half = self.points // 2
        line = torch.arange(-half, half + 1, dtype=torch.float64) / half * self.reach
        if self.dimensions == 1:
            return line[:, None]
        y, x = torch.meshgrid(line, line, indexing="ij")
        return torch.stack([x.flatten(), y.flatten()], 1)

    def plane(self, subject: Subject, bench: Bench) -> Plane:
        """Return the line or plane that the grid lies in."""
        origin = weights(subject.specimen)
        axes: Iterable[Weights]
        if self.directions == "eigenvectors":
            images, targets = self.batches(subject, bench)(
                torch.arange(min(SHARD, len(bench.data)))
            )
            axes = eigenvectors(
                subject.specimen, origin, images, targets, bench.batch, self.dimensions, bench.seed
            )
        else:
            fixed: set[str] = set()
            if not self.vectors:
                network = subject.network
                fixed = parameters_without_filters(subject.specimen if network is None else network)
            axes = (
                random_direction(self.directions, origin, fixed, bench.seed, axis)
                for axis in range(self.dimensions)
            )
        plane = Plane(origin, tuple(axes))
        if not plane.moving:
            raise VitreousError(
                f"{subject.name} has no weight with filters to move; use vectors=True."
            )
        return plane

    def batches(self, subject: Subject, bench: Bench) -> Batches:
        """Return the batches of the loss."""
        return Batches(subject, bench.data, self.stream, self.recipe, bench.seed)

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [
            f"{int(part[0])} to {int(part[-1])}"
            for part in torch.arange(len(self.where)).split(GROUP)
        ]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        yield _Grid(self, subject, bench)

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        classes = len(bench.data.classes)
        rows: list[dict[str, Any]] = []
        arrays: dict[str, np.ndarray] = {}
        fingerprints: dict[str, list[str]] = {}
        for subject in subjects:
            parts = [computed[subject.name][piece] for piece in self.pieces(subject, bench)]
            heights = relief.join_heights(parts, len(bench.data), self.weight_decay)
            points = relief.landscape_rows(self.where.numpy(), heights, classes)
            rows += [{"model": subject.name, **row} for row in points]
            fingerprints[subject.name] = _fingerprints(parts, subject.name)
            if sum(value.numel() for value in weights(subject.specimen).values()) <= SMALL:
                for i, axis in enumerate(self.plane(subject, bench).axes):
                    flat = torch.cat([axis[name].flatten() for name in axis])
                    arrays[f"direction {i + 1} of {subject.name}"] = flat.cpu().numpy()
        table, replicates = tabulate(rows, relief.COLUMNS)
        table["direction"] = pd.Categorical(table["direction"], ["first", "second"])
        whole = table[table["part"] == "whole"]
        statistics: dict[str, dict[str, float | None]] = {s.name: {} for s in subjects}
        for model, measure, value in zip(
            whole["model"], whole["measure"], whole["value"], strict=True
        ):
            statistics[model][measure] = float(value) if math.isfinite(value) else None
        about = {
            "directions": {
                "kind": self.directions, "seed": bench.seed, "fingerprints": fingerprints,
            },
            "statistics": statistics,
        }  # fmt: skip
        step = relief.FILTERS
        if self.directions == "eigenvectors":
            step = "is a distance of 1 in parameter space"
        views = relief.landscape_views(self.dimensions, classes, step)
        return Result(self.name, table, relief.COLUMNS, views, arrays, about, replicates)

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
                alone=f"{at} the loss of {{model}} rises by {{}}",
            )


def _fingerprints(parts: Sequence[Numbers], model: str) -> list[str]:
    """Return the fingerprint of each direction; raise if pieces have different ones."""
    digests = {bytes(part["directions"].flatten().tolist()).hex() for part in parts}
    if len(digests) > 1:
        raise VitreousError(
            f"The pieces of {model} are of different directions; start in a new folder."
        )
    joined = digests.pop()
    return [joined[i : i + 16] for i in range(0, len(joined), 16)]


class _Grid:
    """Losses of one model at the points of a grid."""

    def __init__(self, analysis: Landscape, subject: Subject, bench: Bench) -> None:
        self.analysis, self.subject, self.bench = analysis, subject, bench
        self.points = analysis.where
        self.centre = len(self.points) // 2
        self.batches = analysis.batches(subject, bench)
        self.by_batch = analysis.statistics == "batch"
        self.trained = with_statistics(subject.specimen, analysis.statistics)
        self.batch = analysis.copies or (1 if subject.device.type == "cpu" else MAX_COPIES)
        """Points in one pass; halved when memory runs out."""
        rewrite = with_stackable_attention if self.batch > 1 else with_fused_linear
        self.movable = rewrite(self.trained)
        self.weights = torch.from_numpy(bootstrap_weights(range(len(bench.data)), bench.seed))
        self.prepared: dict[int, tuple[Tensor, Tensor]] = {}
        self.known: dict[int, Tensor] = {}
        """Losses of the centre, and of further points that were computed with an earlier piece."""

    @cached_property
    def plane(self) -> Plane:
        """Computed with the first piece, so that the engine can retry it if memory runs out."""
        return self.analysis.plane(self.subject, self.bench)

    @cached_property
    def fingerprints(self) -> Tensor:
        digests = [bytes.fromhex(fingerprint(*labelled(axis))) for axis in self.plane.axes]
        return torch.tensor([list(digest) for digest in digests])

    @torch.no_grad()
    def __call__(self, piece: str) -> Numbers:
        first, last = map(int, piece.split(" to "))
        if self.centre not in self.known:  # the result is relative to the centre
            self.known[self.centre] = require_finite(self.losses_of_centre(), self.subject.name)
        remaining = [point for point in range(first, len(self.points)) if point not in self.known]
        while remaining and remaining[0] <= last:
            losses = halving(self, len(remaining), lambda: self.losses(remaining[: self.batch]))
            self.known.update(zip(remaining[: len(losses)], losses, strict=True))
            del remaining[: len(losses)]
        nll, right = torch.stack([self.known[i] for i in range(first, last + 1)]).unbind(-1)
        for point in [p for p in self.known if p <= last and p != self.centre]:
            del self.known[point]
        squares = self.plane.squares(self.points[first : last + 1])
        return {
            "nll": self.resample(nll),
            "right": self.resample(right),
            "count": self.weights.sum(1),
            "square": squares.sum(1),
            "norms": squares.clamp_min(0).sqrt().sum(1),
            "directions": self.fingerprints,
        }

    def resample(self, values: Tensor) -> Tensor:
        """Sum over images, as measured and in each resample, (points, 1 + REPEATS)."""
        # The first is a plain sum, as for the model alone, because the order of additions in a
        # matrix product depends on the processor.
        measured = values.contiguous().sum(1, keepdim=True)
        return torch.cat([measured, values @ self.weights[1:].T], 1)

    def losses_of_centre(self) -> Tensor:
        """Return the losses of the trained model; on a GPU, also find how many copies fit."""
        device = self.subject.device
        if device.type != "cuda":
            return self.losses([self.centre])[0]
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        losses = self.losses([self.centre])[0]
        activations = torch.cuda.max_memory_allocated(device) - before
        parameters = 2 * sum(value.nbytes for value in self.plane.origin.values())
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + cached
        self.batch = max(1, min(self.batch, free // (2 * (activations + parameters))))
        return losses

    def losses(self, group: list[int]) -> Tensor:
        """Return NLL and correctness of every image at some points, (points, images, 2)."""
        stacked = self.batch > 1 and len(group) > 1
        specimen, moved = self.trained, {}
        at_a_time = 0
        if group != [self.centre]:
            specimen, moved = self.movable, self.plane.at(self.points[group])
            if not self.by_batch and self.subject.device.type == "cpu":
                at_a_time = CPU_BATCH
        if not stacked:
            moved = {name: value[0] for name, value in moved.items()}
        parts = []
        for images, targets in self.images():
            copies = len(group) if stacked else 0
            scores = scores_at(specimen, moved, images, copies, at_a_time).double()
            scores = scores if stacked else scores[None]
            expanded = targets.expand(len(group), *targets.shape)
            nll = F.cross_entropy(scores.flatten(0, 1), expanded.flatten(0, 1), reduction="none")
            labels = targets if targets.ndim == 1 else targets.argmax(1)
            right = (scores.argmax(2) == labels).double()
            parts.append(torch.stack([nll.view(len(group), -1), right], -1))
        return torch.cat(parts, 1).cpu()

    def images(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield prepared images and targets in batches."""
        size = SHARD if self.by_batch else self.bench.batch
        for rows in torch.arange(len(self.bench.data)).split(SHARD):
            first = int(rows[0])
            images, targets = self.prepared.get(first) or self.batches(rows)
            if images[0].nbytes * len(self.bench.data) <= CACHE_SIZE:
                self.prepared[first] = images, targets
            yield from zip(images.split(size), targets.split(size), strict=True)
