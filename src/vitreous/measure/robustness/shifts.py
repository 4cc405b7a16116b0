"""What it costs to change images: what corruptions, noise, filters, masks and attacks have in common.

Each way to change images is a piece, and so are the clean images. A piece keeps four numbers of every image (whether
the answer is right, how sure the model is, Brier and NLL), so that everything said of it afterwards is paired: the same
resamplings of the same images, clean and changed.

    accuracy   Wilson's interval, which has a width even where every image is right; of means over changes with as many
               independent cases as the images' spread leaves
    change     accuracy less that of the clean images, paired; Bonett and Price's interval
    ECE, NLL   as the probe `calibration` defines them; of means over changes and of NLL the bootstrap's interval
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Batch, interval
from vitreous.measure.probes.calibration import SURE, binned, debiased, measures, per_image
from vitreous.measure.subject import Subject, logits
from vitreous.results import (
    Column,
    Interval,
    Reference,
    clustered_share,
    estimate,
    paired_change,
    wilson,
)

CLEAN = "clean"
BINS = 10
KEPT = ("right", "confidence", "brier", "nll")
"""Of each image."""

Replicates = Mapping[str, np.ndarray]
"""Measure: (1 + REPEATS,) its value, and its value in every resampling of the images."""


class Shifted(Analysis):
    """A question that changes images one way after another."""

    @abstractmethod
    def shifts(self, subject: Subject, bench: Bench) -> Sequence[str]:
        """Names of the changes, in order."""

    @abstractmethod
    def shifted(self, subject: Subject, batch: Batch, shift: str) -> Tensor:
        """Images as the model takes them, changed."""

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [CLEAN, *self.shifts(subject, bench)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        def one(piece: str) -> Numbers:
            if piece == CLEAN:
                return marked(subject, bench, lambda batch: subject.prepare(batch.images))
            return marked(subject, bench, lambda batch: self.shifted(subject, batch, piece))

        yield one


@torch.no_grad()
def marked(subject: Subject, bench: Bench, ready: Callable[[Batch], Tensor]) -> Numbers:
    """What every image adds, (n,) each, if `ready` makes the images that the model is shown."""
    parts: dict[str, list[Tensor]] = {part: [] for part in KEPT}
    for batch in bench.batches():
        scores = logits(subject.specimen(ready(batch)))
        assert scores is not None
        found = per_image(scores, batch.labels.to(scores.device))
        for part in KEPT:
            parts[part].append(found[part].float().cpu())
    return {part: torch.cat(values) for part, values in parts.items()}


@dataclass(frozen=True, eq=False)
class Marks:
    """What a model made of the images, under every change."""

    found: Mapping[str, Numbers]
    bench: Bench

    @cached_property
    def weights(self) -> np.ndarray:
        """(1 + REPEATS, n) how often each image counts in each resampling."""
        data = self.bench.data
        return Batch(
            torch.arange(len(data)), data.images, data.labels, self.bench.seed
        ).weights.numpy()

    @cached_property
    def _known(self) -> dict[str, tuple[dict[str, np.ndarray], Interval]]:
        return {}

    def replicates(self, piece: str) -> dict[str, np.ndarray]:
        """Accuracy, its change, ECE, plain and debiased, Brier and NLL."""
        return self._measured(piece)[0]

    def _measured(self, piece: str) -> tuple[dict[str, np.ndarray], Interval]:
        """The same, and the interval of ECE."""
        if piece not in self._known:
            self._known[piece] = self._replicates(piece)
        return self._known[piece]

    def _replicates(self, piece: str) -> tuple[dict[str, np.ndarray], Interval]:
        of = {part: self.found[piece][part].double() for part in KEPT}
        of["count"], of["sure"] = torch.ones_like(of["right"]), (of["confidence"] > SURE).double()
        of["sure_right"], of["square"] = of["sure"] * of["right"], of["confidence"].square()
        member = torch.nn.functional.one_hot(binned(of["confidence"].nan_to_num(0.0), BINS), BINS)
        sums = {
            part: self.weights @ (values[:, None] * member).numpy() for part, values in of.items()
        }
        found = {name.lower(): values for name, values in measures(sums).items()}
        ends, ece = debiased(sums)
        found |= {
            "value": self.mean(piece),
            "change": self.change(piece),
            "ece": ece,
            "plain_ece": found["plain ece"],
        }
        return {
            name: found[name] for name in ("value", "change", "ece", "plain_ece", "brier", "nll")
        }, ends

    def average(self, values: Tensor) -> np.ndarray:
        """(1 + REPEATS,) of a number (n,) for each image."""
        with np.errstate(invalid="ignore"):
            mean: np.ndarray = self.weights @ values.double().numpy() / self.weights.sum(1)
        return mean

    def mean(self, piece: str) -> np.ndarray:
        """(1 + REPEATS,) accuracy."""
        return self.average(self.found[piece]["right"])

    def change(self, piece: str) -> np.ndarray:
        """(1 + REPEATS,) accuracy less that of the clean images, in each resampling of both."""
        return self.mean(piece) - self.mean(CLEAN)

    def row(self, piece: str) -> dict[str, float]:
        """The columns of one change."""
        right, clean = (self.found[which]["right"].double().numpy() for which in (piece, CLEAN))
        replicates, ece = self._measured(piece)
        same = (
            self.found[piece] is self.found[CLEAN]
        )  # which differ by nothing, whatever the images
        change = Interval(0.0, 0.0, 0.0) if same else paired_change(right - clean)
        exact = {"value": wilson(right.sum(), len(right)), "change": change, "ece": ece}
        return measured(replicates, len(right)) | ended(exact)

    def mean_row(self, pieces: Sequence[str]) -> dict[str, float]:
        """The columns of the mean over several changes."""
        every = [self.replicates(piece) for piece in pieces]
        together = {name: np.mean([each[name] for each in every], axis=0) for name in every[0]}
        row = measured(together, len(self.bench.data))
        right = np.mean([self.found[piece]["right"].double().numpy() for piece in pieces], axis=0)
        clean = self.found[CLEAN]["right"].double().numpy()
        shares = {
            "value": clustered_share(right, len(pieces)),
            "change": paired_change(right - clean),
        }
        return row | {"ece_low": max(row["ece_low"], 0.0)} | ended(shares)


def marks(found: Found, subject: Subject, bench: Bench) -> Marks:
    """Of one model."""
    return Marks(found[subject.name], bench)


def measured(replicates: Replicates, count: int) -> dict[str, float]:
    """Value, low and high of each measure, and the number of images."""
    found = {
        name: interval(np.where(np.isfinite(each), each, np.nan), count)
        for name, each in replicates.items()
    }
    return ended(found) | {"n": count}


def ended(found: Mapping[str, Interval]) -> dict[str, float]:
    """Value, low and high of each measure as columns; those of `value` have no name of their own before them."""
    row: dict[str, float] = {}
    for name, interval_ in found.items():
        ends = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
        row |= dict(zip((name, *ends), map(float, interval_), strict=True))
    return row


def with_ends(name: str, says: str, label: str) -> tuple[Column, Column, Column]:
    """A measure and its interval."""
    words = {"low": "Lower", "high": "Upper"}
    low, high = (
        Column(f"{name}_{end}", "quantity", f"{word} end of its 95 % interval.")
        for end, word in words.items()
    )
    return Column(name, "quantity", says, label=label), low, high


ECE = (
    *with_ends(
        "ece",
        "Expected calibration error: mean gap between confidence and accuracy, debiased.",
        "ECE",
    ),
    Column(
        "plain_ece",
        "quantity",
        "The same as papers report it, with what noise adds.",
        label="plain ECE",
    ),
)
MEASURES = (
    *with_ends("change", "Accuracy less that of the clean images.", "change of accuracy"),
    *ECE,
    *with_ends("nll", "Mean of −log probability of the label.", "NLL"),
    *estimate("Share of the images that the model has right.", label="accuracy"),
)
"""The last columns of every such table."""


def guessing(bench: Bench) -> tuple[Reference, ...]:
    """The line of a model that has learnt nothing."""
    return (Reference(1 / len(bench.data.classes), "guessing"),)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> Any:
    """Rows as the columns are declared."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=[column.name for column in columns])


def levels(subject: Subject, like: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (c, 1, 1) by which the model's images are normalised: x = (level − mean) / std."""
    channels = subject.specimen.anatomy.image[0]
    mean, std = (
        like.new_tensor(given)[:channels].view(-1, 1, 1) for given in (subject.mean, subject.std)
    )
    return mean, std


def check_shares(name: str, values: Sequence[float], low: float, high: float) -> None:
    """At least one number, each above `low` and at most `high`, none twice."""
    wrong = [value for value in values if not low < value <= high]
    if not values or wrong or len(set(values)) < len(values):
        found = (
            f"{wrong[0]:g} is not" if wrong else "one is there twice" if values else "there is none"
        )
        raise VitreousError(
            f"{name} have to be different numbers above {low:g}, at most {high:g}; {found}."
        )
