"""The way of the weights through training: how far from the end, in which direction, and in two principal components.

    Δ_t = w_t - w_end        r_t = |Δ_t| / |Δ_0|        θ_t = arccos ⟨Δ_t, Δ_0⟩ / (|Δ_t| |Δ_0|)        (A4.06)

over all parameters; buffers, such as the running statistics of batch normalisation, are not counted. The principal
components are those of the moments themselves, w_t minus their mean, and come from the products ⟨Δ_s, Δ_t⟩ alone.

Park and Kim had drawn r and θ and found a ViT's way smooth and a ResNet's erratic (HDV-12). **They have withdrawn that
figure**, because it could not be reproduced, and the final version of the paper does not have it (X-05): what is
computed here is the definition, and no evidence for the finding.

Moments are given side by side, as models called `NAME@moment` in the order of training, `NAME` alone being the end; or
a run is named by itself (`nano:vit`, `run:folder`), and all moments that its folder holds are taken. So one question
compares several trainings, and reads weights that nobody has to open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.curvature.loss import PREFIX
from vitreous.measure.partial import Numbers
from vitreous.measure.section import Section
from vitreous.measure.subject import Subject
from vitreous.results import Column, Reference, Result, View
from vitreous.storage.run_folder import Run

__all__ = ["Trajectory"]

Array = NDArray[np.float64]
Weights = Mapping[str, Tensor]
END = "final"
KEPT = 1 << 30
"""Bytes of weights to keep in memory; beyond that, files are read again."""
COMPONENTS = 6
"""Principal components whose share is listed."""
WITHDRAWN = (
    "Of the figure that r and θ come from, its authors say that it could not be reproduced (X-05)."
)


@dataclass(frozen=True)
class Moment:
    """Weights at one time of a training."""

    name: str
    read: Callable[[], Weights]
    whose: str
    """The model among those asked that brings it in."""


def run_of(name: str) -> Run | None:
    """The run that a model's name stands for, at its end; None if it is something else."""
    source, _, rest = name.partition(":")
    folder = (
        Path(str(files("vitreous"))) / "nano" / rest
        if source == "nano"
        else Path(rest if source == "run" else name)
    )
    folder = folder.expanduser()
    return Run(folder) if (folder / "recipe.json").is_file() else None


def kept_moments(run: Run) -> list[str]:
    """In the order of training. Where every epoch was kept, the others are copies of some of them."""
    found = run.checkpoints()
    epochs = sorted(name for name in found if name.startswith("epoch-"))
    return [*(name for name in found if name == "initial"), *epochs] if epochs else found


def trainings(subjects: Sequence[Subject]) -> dict[str, list[Moment]]:
    """Moments of every training, in order."""
    groups: dict[str, list[tuple[str, Subject]]] = {}
    for subject in subjects:
        name, _, moment = (
            subject.name.rpartition("@") if "@" in subject.name else (subject.name, "", END)
        )
        groups.setdefault(name, []).append((moment, subject))
    found = {}
    for name, members in groups.items():
        (moment, alone), run = members[0], run_of(name)
        if len(members) == 1 and moment == END and run is not None and alone.model is not None:
            found[name] = [_of_file(run, each, alone) for each in kept_moments(run)]
        else:
            ordered = sorted(members, key=lambda member: member[0] == END)
            found[name] = [
                Moment(when, partial(_of_subject, each), each.name) for when, each in ordered
            ]
    return found


def _of_file(run: Run, moment: str, subject: Subject) -> Moment:
    assert subject.model is not None
    names = [name for name, _ in subject.model.named_parameters()]

    def read() -> Weights:
        tensors, _ = run.read_weights(moment)
        if missing := [name for name in names if name not in tensors]:
            raise VitreousError(
                f"The weights {str(run.weights(moment))!r} lack {missing[0]!r}, which the model has."
            )
        return {name: tensors[name] for name in names}

    return Moment(moment, read, subject.name)


def _of_subject(subject: Subject) -> Weights:
    return {
        name.removeprefix(PREFIX): value.detach()
        for name, value in subject.specimen.named_parameters()
    }


@dataclass
class Trajectory(Analysis):
    """The way of the weights through training."""

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

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if not any(True for _ in subject.specimen.parameters()):
            return "It has no parameters, so nothing moves while it is trained."
        own = _training(subject, bench)
        if len(own) == 1 and run_of(subject.name) is not None:
            return "Its run holds the final weights only; train with keep='moments' or keep='epochs' to see the way."
        return ""

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [moment.name for moment in _training(subject, bench) if moment.whose == subject.name]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        moments = _training(subject, bench)
        vector = _Vectors(moments)

        def one(piece: str) -> Numbers:
            here = next(
                i
                for i, each in enumerate(moments)
                if each.name == piece and each.whose == subject.name
            )
            end = vector(len(moments) - 1)
            own = vector(here)
            products = [(own - end) @ (vector(i) - end) for i in range(len(moments))]
            return {"products": torch.stack(products), "length": own.norm()}

        yield one

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        names = {each.name for each in asked}
        rows: list[dict[str, Any]] = []
        about: dict[str, Any] = {}
        for name, moments in trainings(bench.setting.subjects).items():
            if not {moment.whose for moment in moments} <= names:
                continue
            numbers = [found[moment.whose][moment.name] for moment in moments]
            products = np.stack([each["products"].numpy() for each in numbers])
            mine = list(
                _rows(
                    products,
                    [moment.name for moment in moments],
                    [float(n["length"]) for n in numbers],
                )
            )
            rows += [{"model": name, **row} for row in mine]
            about[name] = summary(products)
        table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS])
        order = dict.fromkeys(row["moment"] for row in rows if row["moment"])
        table["moment"] = pd.Categorical(table["moment"], list(order))
        table["component"] = pd.Categorical(
            table["component"], [str(i + 1) for i in range(COMPONENTS)]
        )
        return Result(self.name, table, COLUMNS, VIEWS, about={"ways": about, "note": WITHDRAWN})


def _training(subject: Subject, bench: Bench) -> list[Moment]:
    """That of a model among those asked."""
    every = trainings(bench.setting.subjects).values()
    return next(
        moments for moments in every if subject.name in [moment.whose for moment in moments]
    )


class _Vectors:
    """All parameters of a moment in one row, in float64; those of the same training have the same names and shapes."""

    def __init__(self, moments: Sequence[Moment]) -> None:
        self.moments = moments
        self.kept: dict[int, Tensor] = {}
        self.shapes: dict[str, dict[str, tuple[int, ...]]] = {}

    def __call__(self, i: int) -> Tensor:
        if i in self.kept:
            return self.kept[i]
        found = self.moments[i].read()
        self._check(
            self.moments[i].name, {name: tuple(value.shape) for name, value in found.items()}
        )
        flat = torch.cat([found[name].cpu().double().flatten() for name in sorted(found)])
        if flat.nbytes * len(self.moments) <= KEPT:
            self.kept[i] = flat
        return flat

    def _check(self, moment: str, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = self.shapes or {moment: shapes}
        ((other, known),) = self.shapes.items()
        for name in {**shapes, **known}:
            if shapes.get(name) != known.get(name):
                here, there = (each.get(name, "not there") for each in (shapes, known))
                raise VitreousError(
                    f"{moment!r} and {other!r} are no moments of one training: {name!r} is {here} in one and {there} "
                    "in the other."
                )


def polar(products: Array) -> tuple[Array, Array]:
    """r and θ (degrees) of every moment, from ⟨Δ_s, Δ_t⟩; NaN where Δ is zero, so that there is no direction."""
    length = np.sqrt(np.maximum(np.diag(products), 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        angle = np.degrees(np.arccos(np.clip(products[0] / (length * length[0]), -1, 1)))
        angle[0] *= 0  # arccos would make a millionth of rounding
        return length / length[0], angle


def principal(products: Array) -> tuple[Array, Array]:
    """Coordinates (moments, k) and shares of variance (k,), strongest first, of moments that are known by products.

    A component points from the first moment to the last."""
    centred = products - products.mean(0)
    centred = centred - centred.mean(1, keepdims=True)
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    values, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
    count = max(len(products) - 1, 0)
    places = vectors[:, :count] * np.sqrt(values[:count])
    places = places * np.where(places[-1] < places[0], -1.0, 1.0)
    return places, values[:count] / max(values.sum(), np.finfo(np.float64).tiny)


def summary(products: Array) -> dict[str, Any]:
    """What HDV-12 is judged by: the farthest the weights get, and how much they turn, in degrees."""
    distance, angle = polar(products)
    known = angle[np.isfinite(angle)]
    farthest = float(np.nanmax(distance)) if np.isfinite(distance).any() else None
    return {
        "farthest": farthest,
        "turning": float(np.abs(np.diff(known)).sum()),
        "moments": len(products),
    }


def _rows(
    products: Array, moments: Sequence[str], lengths: Sequence[float]
) -> Iterator[dict[str, Any]]:
    distance, angle = polar(products)
    places, shares = principal(products)
    blank = {column.name: np.nan for column in COLUMNS if column.kind == "quantity"}
    for i, moment in enumerate(moments):
        two = [*places[i], 0.0, 0.0][:2]
        row = {
            "part": "moment",
            "moment": moment,
            "component": None,
            "drawn": True,
            "angled": np.isfinite(angle[i]),
        }
        turned = np.radians(angle[i]) if np.isfinite(angle[i]) else 0.0
        row |= {
            "distance": distance[i],
            "angle": angle[i],
            "length": lengths[i],
            "value": distance[i],
        }
        row |= {"towards": distance[i] * np.cos(turned), "aside": distance[i] * np.sin(turned)}
        yield {**blank, **row, "first": two[0], "second": two[1], "listed": False}
    for i, share in enumerate(shares[:COMPONENTS]):
        row = {
            "part": "component",
            "moment": None,
            "component": str(i + 1),
            "drawn": False,
            "angled": False,
        }
        yield {**blank, **row, "listed": True, "value": share}


COLUMNS = (
    Column("model", "category", "The training, by the name of its model."),
    Column(
        "part", "category", "A moment of the training, or a principal component of all its moments."
    ),
    Column("moment", "order", "The moment."),
    Column("component", "order", "Number of the component, 1 for the strongest."),
    Column(
        "distance",
        "quantity",
        "Distance from the final weights, relative to that of the first moment.",
        label="distance r",
    ),
    Column(
        "angle",
        "quantity",
        "Between where the weights are and where they began, seen from the end.",
        "°",
        "angle θ",
    ),
    Column(
        "towards",
        "quantity",
        "r cos θ: the part of r that lies along the way from the end to the beginning.",
    ),
    Column("aside", "quantity", "r sin θ: the part of r that lies beside it."),
    Column(
        "first", "quantity", "Place along the first principal component.", label="first component"
    ),
    Column(
        "second",
        "quantity",
        "Place along the second principal component.",
        label="second component",
    ),
    Column("length", "quantity", "Norm of all parameters.", label="|w|"),
    Column("drawn", "category", "Whether the row is a moment."),
    Column(
        "angled", "category", "Whether the row is a moment that has an angle, as the end has not."
    ),
    Column("listed", "category", "Whether the row is a component."),
    Column(
        "value", "quantity", "r of a moment; share of the variance of a component.", label="value"
    ),
)
VIEWS = (
    View(
        "line", x="moment", y="distance", colour="model", where="drawn",
        references=(Reference(1.0, "as far as at the beginning"),), title="How far the weights are from the end",
        how_to_read="Each point is a moment of a training: its distance from the final weights, relative to that of "
        "the first moment. A line that rises above one has moved away first. The figure this comes from was withdrawn "
        "by its authors, so it is a description and no evidence.",
    ),
    View(
        "line", x="moment", y="angle", colour="model", where="angled", title="Where they are, seen from the end",
        how_to_read="Each point is the angle between a moment and the first one, seen from the final weights. Straight "
        "towards the end is 0°; 90° is a place that the beginning says nothing about.",
    ),
    View(
        "scatter", x="first", y="second", colour="moment", facet="model", where="drawn",
        title="The way in two principal components",
        how_to_read="Each point is a moment, from pale (early) to dark (late). With few moments any way looks simple: "
        "look at the shares of variance, and expect an arc even of a random walk.",
    ),
    View(
        "bar", x="component", y="value", colour="model", where="listed", limits=(0.0, 1.0),
        title="How much of the way a component explains",
        how_to_read="Each bar is a component's share of the variance of the moments around their mean. Where the first "
        "two have nearly all, the picture of the way leaves nothing out.",
    ),
)  # fmt: skip
