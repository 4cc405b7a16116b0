"""The path of the weights through training: distance from the end, direction, principal components.

    Δ_t = w_t - w_end        r_t = |Δ_t| / |Δ_0|        θ_t = arccos ⟨Δ_t, Δ_0⟩ / (|Δ_t| |Δ_0|)

over all parameters; buffers, such as the running statistics of batch norm, are not included. The
principal components are those of the checkpoints, w_t minus their mean, and come from the products
⟨Δ_s, Δ_t⟩ alone.

A first version of Park & Kim 2022 drew r and θ and found a ViT's path smooth and a ResNet's
erratic. **The authors have withdrawn that figure**, because it could not be reproduced, and the
final version does not have it: what is computed here is the definition, and no evidence for the
finding.

Give checkpoints as models called `NAME@checkpoint` in the order of training, with `NAME` alone as
the end. Or give only a run (`nano:vit`, `run:folder`) for all checkpoints in its folder, which are
read without opening them as models. So one analysis can compare several trainings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.curvature.loss import PREFIX
from vitreous.measure.partial import Numbers
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.model_names import BUNDLED, zoo_folder
from vitreous.results import Column, Reference, Result, View
from vitreous.results.comparing import bold, code
from vitreous.results.words import format_number, join_words
from vitreous.storage.run_folder import Run

__all__ = ["Trajectory"]

Array = NDArray[np.float64]
Weights = Mapping[str, Tensor]
END = "final"
CACHE_SIZE = 1 << 30
"""Maximum size in bytes of weights to keep in memory; if larger, files are read again."""
COMPONENTS = 6
"""Number of principal components whose share is listed."""
WITHDRAWN = "The authors of the figure with r and θ withdrew it: it could not be reproduced."


@dataclass(frozen=True)
class StoredWeights:
    """Weights at one checkpoint of a training."""

    checkpoint: str
    read: Callable[[], Weights]
    model: str
    """The model of the analysis that they belong to."""


def find_run(name: str) -> Run | None:
    """Return the run of a model's name, or None."""
    source, _, rest = name.partition(":")
    if source == "nano":
        folder = BUNDLED / rest
    elif source == "zoo":
        folder = zoo_folder() / rest
    else:
        folder = Path(rest if source == "run" else name).expanduser()
    return Run(folder) if (folder / "recipe.json").is_file() else None


def ordered_checkpoints(run: Run) -> list[str]:
    """Return the checkpoints in the order of training; if every epoch was kept, only those."""
    names = run.checkpoints()
    epochs = sorted(name for name in names if name.startswith("epoch-"))
    if not epochs:
        return names  # with epochs, the other checkpoints are copies of them
    return [*(name for name in names if name == "initial"), *epochs]


def trainings(subjects: Sequence[Subject]) -> dict[str, list[StoredWeights]]:
    """Return the weights of every training, by its name, in order."""
    groups: dict[str, list[tuple[str, Subject]]] = {}
    for subject in subjects:
        name, at, checkpoint = subject.name.rpartition("@")
        if not at:
            name, checkpoint = subject.name, END
        groups.setdefault(name, []).append((checkpoint, subject))
    every: dict[str, list[StoredWeights]] = {}
    for name, members in groups.items():
        (checkpoint, first), run = members[0], find_run(name)
        if len(members) == 1 and checkpoint == END and run is not None and first.model is not None:
            every[name] = [_from_file(run, each, first) for each in ordered_checkpoints(run)]
        else:
            members.sort(key=lambda member: member[0] == END)
            every[name] = [
                StoredWeights(checkpoint, partial(_parameters, subject), subject.name)
                for checkpoint, subject in members
            ]
    return every


def _from_file(run: Run, checkpoint: str, subject: Subject) -> StoredWeights:
    assert subject.network is not None
    names = [name for name, _ in subject.network.named_parameters()]

    def read() -> Weights:
        tensors, _ = run.read_weights(checkpoint)
        if missing := [name for name in names if name not in tensors]:
            raise VitreousError(
                f"The weights {str(run.weights(checkpoint)[0])!r} lack {missing[0]!r}, which the "
                "model has."
            )
        return {name: tensors[name] for name in names}

    return StoredWeights(checkpoint, read, subject.name)


def _parameters(subject: Subject) -> Weights:
    return {
        name.removeprefix(PREFIX): value.detach()
        for name, value in subject.specimen.named_parameters()
    }


@dataclass
class Trajectory(Analysis):
    """Distance and direction of the weights at every checkpoint, seen from the end of training."""

    name = "trajectory"
    ids = ("A4.06", "HDV-12", "X-05")
    section = Section(
        "curvature",
        "Which path did the weights take?",
        "How far the weights were from their final values at the stored checkpoints of a "
        "training, and in which direction as seen from the end.",
        "A smooth path was shown for ViT and an erratic one for ResNet in a first version of Park "
        "& Kim 2022; the authors have withdrawn the figure, which could not be reproduced.",
        order=3,
    )
    limit = 4
    marked = False

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = result.table[result.table["angled"]].dropna(subset="angle")
        last = rows.groupby("model", sort=False, observed=True).tail(1)
        angles = [
            f"{format_number(angle)}° in {bold(model)} (checkpoint {code(checkpoint)})"
            for model, checkpoint, angle in last[["model", "checkpoint", "angle"]].values
            if angle > 0
        ]
        if angles:
            yield (
                "Seen from the final weights, the angle between the first checkpoint and the last "
                f"one before the end is {join_words(angles)}; a straight path has 0°."
            )

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if not any(True for _ in subject.specimen.parameters()):
            return "It has no parameters, so nothing moves in training."
        if len(_training(subject, bench)) == 1 and find_run(subject.name) is not None:
            return (
                "Its run holds the final weights only; train with keep='checkpoints' or "
                "keep='epochs' to see the path."
            )
        return ""

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        training = _training(subject, bench)
        return [each.checkpoint for each in training if each.model == subject.name]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        training = _training(subject, bench)
        keys = [(each.model, each.checkpoint) for each in training]
        vector = _Vectors(training)

        def compute(piece: str) -> Numbers:
            end = vector(len(training) - 1)
            current = vector(keys.index((subject.name, piece)))
            products = [(current - end) @ (vector(i) - end) for i in range(len(training))]
            return {"products": torch.stack(products), "length": current.norm()}

        yield compute

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        names = {each.name for each in subjects}
        rows: list[dict[str, Any]] = []
        paths: dict[str, Any] = {}
        for name, training in trainings(bench.setting.subjects).items():
            if not {each.model for each in training} <= names:
                continue
            numbers = [computed[each.model][each.checkpoint] for each in training]
            products = np.stack([each["products"].numpy() for each in numbers])
            lengths = [float(each["length"]) for each in numbers]
            checkpoints = [each.checkpoint for each in training]
            rows += [{"model": name, **row} for row in _rows(products, checkpoints, lengths)]
            paths[name] = path_summary(products)
        table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS])
        order = dict.fromkeys(row["checkpoint"] for row in rows if row["checkpoint"])
        table["checkpoint"] = pd.Categorical(table["checkpoint"], list(order))
        components = [str(i + 1) for i in range(COMPONENTS)]
        table["component"] = pd.Categorical(table["component"], components)
        return Result(self.name, table, COLUMNS, VIEWS, about={"ways": paths, "note": WITHDRAWN})


def _training(subject: Subject, bench: Bench) -> list[StoredWeights]:
    """Return the weights of the training that a model belongs to."""
    every = trainings(bench.setting.subjects).values()
    return next(training for training in every if subject.name in [w.model for w in training])


class _Vectors:
    """All parameters of a checkpoint as one vector in float64; keeps them if memory suffices."""

    def __init__(self, training: Sequence[StoredWeights]) -> None:
        self.training = training
        self.kept: dict[int, Tensor] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.first = ""

    def __call__(self, i: int) -> Tensor:
        if i in self.kept:
            return self.kept[i]
        weights = self.training[i].read()
        self._check(self.training[i].checkpoint, weights)
        flat = torch.cat([weights[name].cpu().double().flatten() for name in sorted(weights)])
        if flat.nbytes * len(self.training) <= CACHE_SIZE:
            self.kept[i] = flat
        return flat

    def _check(self, checkpoint: str, weights: Weights) -> None:
        """Raise unless names and shapes are those of the first checkpoint."""
        shapes = {name: tuple(value.shape) for name, value in weights.items()}
        if not self.shapes:
            self.first, self.shapes = checkpoint, shapes
        for name in {**shapes, **self.shapes}:
            shape, first_shape = (s.get(name, "missing") for s in (shapes, self.shapes))
            if shape != first_shape:
                raise VitreousError(
                    f"{checkpoint!r} and {self.first!r} are not of one training: {name!r} is "
                    f"{shape} in one and {first_shape} in the other."
                )


def polar(products: Array) -> tuple[Array, Array]:
    """Return r and θ (degrees) of every checkpoint, from ⟨Δ_s, Δ_t⟩; θ is NaN where Δ is zero."""
    length = np.sqrt(np.maximum(np.diag(products), 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        angle = np.degrees(np.arccos(np.clip(products[0] / (length * length[0]), -1, 1)))
        angle[0] *= 0  # rounding gives about 1e-6; stays NaN where it is NaN
        return length / length[0], angle


def principal(products: Array) -> tuple[Array, Array]:
    """Return coordinates (checkpoints, k) and shares of variance (k,), the strongest first.

    A component points from the first checkpoint to the last.
    """
    centred = products - products.mean(0)
    centred = centred - centred.mean(1, keepdims=True)
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    count = max(len(products) - 1, 0)
    places = vectors[:, :count] * np.sqrt(values[:count])
    places = places * np.where(places[-1] < places[0], -1.0, 1.0)
    return places, values[:count] / max(values.sum(), np.finfo(np.float64).tiny)


def path_summary(products: Array) -> dict[str, Any]:
    """Return the largest r, the sum of turns in degrees, and the number of checkpoints."""
    distance, angle = polar(products)
    finite = angle[np.isfinite(angle)]
    farthest = float(np.nanmax(distance)) if np.isfinite(distance).any() else None
    return {
        "farthest": farthest,
        "turning": float(np.abs(np.diff(finite)).sum()),
        "checkpoints": len(products),
    }


def _rows(
    products: Array, checkpoints: Sequence[str], lengths: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each checkpoint, and for each of the first principal components."""
    distance, angle = polar(products)
    places, shares = principal(products)
    blank: dict[str, Any] = {c.name: np.nan for c in COLUMNS if c.kind == "quantity"}
    for i, checkpoint in enumerate(checkpoints):
        first, second = [*places[i], 0.0, 0.0][:2]
        angled = bool(np.isfinite(angle[i]))
        turned = np.radians(angle[i]) if angled else 0.0
        yield {
            **blank,
            "part": "checkpoint",
            "checkpoint": checkpoint,
            "component": None,
            "drawn": True,
            "angled": angled,
            "listed": False,
            "distance": distance[i],
            "angle": angle[i],
            "length": lengths[i],
            "value": distance[i],
            "towards": distance[i] * np.cos(turned),
            "aside": distance[i] * np.sin(turned),
            "first": first,
            "second": second,
        }
    for i, share in enumerate(shares[:COMPONENTS]):
        flags = {"drawn": False, "angled": False, "listed": True}
        component = {"part": "component", "checkpoint": None, "component": str(i + 1)}
        yield {**blank, **component, **flags, "value": share}


COLUMNS = (
    Column("model", "category", "The training, by the name of its model."),
    Column("part", "category", "A checkpoint, or a principal component of all of them."),
    Column("checkpoint", "order", "Name of the checkpoint."),
    Column("component", "order", "Number of the component, 1 for the strongest."),
    Column(
        "distance",
        "quantity",
        "Distance r from the final weights, relative to that of the first checkpoint.",
        label="distance r",
    ),
    Column(
        "angle",
        "quantity",
        "Angle θ between the checkpoint and the first one, seen from the final weights.",
        "°",
        "angle θ",
    ),
    Column(
        "towards", "quantity", "r cos θ: the part of r along the line from the end to the start."
    ),
    Column("aside", "quantity", "r sin θ: the part of r at right angles to it."),
    Column("first", "quantity", "Coordinate on the first component.", label="first component"),
    Column("second", "quantity", "Coordinate on the second component.", label="second component"),
    Column("length", "quantity", "Norm of all parameters.", label="|w|"),
    Column("drawn", "category", "Whether the row is a checkpoint."),
    Column(
        "angled", "category", "Whether the row is a checkpoint with an angle: all but the last."
    ),
    Column("listed", "category", "Whether the row is a component."),
    Column(
        "value",
        "quantity",
        "r of a checkpoint; share of the variance of a component.",
        label="value",
    ),
)
VIEWS = (
    View(
        "line", x="checkpoint", y="distance", colour="model", where="drawn",
        references=(Reference(1.0, "as far as at the beginning"),),
        title="Distance of the weights from the end",
        how_to_read="Each point is a checkpoint: its distance from the final weights, relative to "
        "that of the first one. A line that rises above one moves away first. The authors withdrew "
        "the figure this comes from, so it is a description and no evidence.",
    ),
    View(
        "line", x="checkpoint", y="angle", colour="model", where="angled",
        title="Direction of the weights, seen from the end",
        how_to_read="Each point is the angle between a checkpoint and the first one, seen from the "
        "final weights. A straight path to the end has 0°; at 90° the position has nothing to do "
        "with the beginning.",
    ),
    View(
        "scatter", x="first", y="second", colour="checkpoint", facet="model", where="drawn",
        title="The path in two principal components",
        how_to_read="Each point is a checkpoint, from pale (early) to dark (late). With few "
        "checkpoints any path looks simple: check the shares of variance, and expect an arc even "
        "for a random walk.",
    ),
    View(
        "bar", x="component", y="value", colour="model", where="listed", limits=(0.0, 1.0),
        title="Share of variance per component",
        how_to_read="Each bar is a component's share of the variance of the checkpoints around "
        "their mean. If the first two have nearly all, the picture of the path is complete.",
    ),
)  # fmt: skip
