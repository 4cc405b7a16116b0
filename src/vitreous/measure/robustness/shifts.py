"""Base of analyses of accuracy on changed images: corruptions, noise, filters, masks, attacks.

Each way to change the images (a shift) is one piece, and so are the clean images. A piece keeps
four numbers per image: whether the answer is right, the confidence, the Brier score and the NLL. So
everything is paired: clean and shifted accuracies are resampled together.

    accuracy   Wilson's interval; for means over shifts, with the effective number of cases
    change     accuracy minus clean accuracy; Bonett and Price's interval for paired shares
    ECE, NLL   as in the probe `calibration`; for NLL and means over shifts, the bootstrap's

Every estimate keeps its bootstrap replicates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitreous.errors import VitreousError
from vitreous.measure.analysis import Analysis, Bench, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import Batch, estimated
from vitreous.measure.probes.calibration import SURE, bin_index, debiased, measures, score_images
from vitreous.measure.resampling import Array, bootstrap_weights
from vitreous.measure.subject import Subject, logits
from vitreous.results import (
    Column,
    Estimate,
    Interval,
    Reference,
    Result,
    clustered_share,
    estimate,
    paired_change,
    wilson,
)
from vitreous.results.comparing import mean_by_model, pair_models, rank_models
from vitreous.results.words import format_percent

CLEAN = "clean"
BINS = 10
"""Bins of confidence for the ECE."""
PER_IMAGE = ("right", "confidence", "brier", "nll")
"""Numbers kept for each image."""


class ShiftAnalysis(Analysis):
    """An analysis that measures accuracy on images changed in one way after another."""

    @abstractmethod
    def shifts(self, subject: Subject, bench: Bench) -> Sequence[str]:
        """Return the names of the shifts, in order."""

    @abstractmethod
    def shift_images(self, subject: Subject, batch: Batch, shift: str) -> Tensor:
        """Return the changed images, prepared for the model."""

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [CLEAN, *self.shifts(subject, bench)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        def one(piece: str) -> Numbers:
            if piece == CLEAN:
                return evaluate_images(subject, bench, lambda batch: subject.prepare(batch.images))
            return evaluate_images(
                subject, bench, lambda batch: self.shift_images(subject, batch, piece)
            )

        yield one


@torch.no_grad()
def evaluate_images(
    subject: Subject, bench: Bench, prepare: Callable[[Batch], Tensor]
) -> dict[str, Tensor]:
    """Return the numbers of `PER_IMAGE`, (n,) each, for images made by `prepare`."""
    parts: dict[str, list[Tensor]] = {part: [] for part in PER_IMAGE}
    for batch in bench.batches():
        scores = logits(subject.specimen(prepare(batch)))
        assert scores is not None
        numbers = score_images(scores, batch.labels.to(scores.device))
        for part in PER_IMAGE:
            parts[part].append(numbers[part].float().cpu())
    return {part: torch.cat(values) for part, values in parts.items()}


@dataclass(frozen=True, eq=False)
class ShiftScores:
    """How well one model does under every shift, computed from numbers per image."""

    per_image: Mapping[str, Numbers]
    """Shift, or `CLEAN`: the numbers of `PER_IMAGE`, (n,) each."""
    bench: Bench
    columns: tuple[str, ...] = ("value", "change", "ece", "plain_ece", "nll")
    """The measures of a row."""
    _replicates: dict[str, dict[str, Array]] = field(default_factory=dict, init=False)
    _ece: dict[str, Interval] = field(default_factory=dict, init=False)

    @cached_property
    def weights(self) -> Array:
        """(1 + REPEATS, n) how often each image counts in each resample."""
        return bootstrap_weights(range(len(self.bench.data)), self.bench.seed)

    def mean(self, values: Tensor) -> Array:
        """Average one number per image, (1 + REPEATS,)."""
        with np.errstate(invalid="ignore"):
            means: Array = self.weights @ values.double().numpy() / self.weights.sum(1)
        return means

    def accuracy(self, shift: str) -> Array:
        """Return the accuracy, (1 + REPEATS,)."""
        return self.mean(self.per_image[shift]["right"])

    def replicates(self, shift: str) -> dict[str, Array]:
        """Return accuracy (`value`), its change, ECE, Brier and NLL, (1 + REPEATS,) each."""
        if shift not in self._replicates:
            self._replicates[shift], self._ece[shift] = self._resample(shift)
        return self._replicates[shift]

    def _resample(self, shift: str) -> tuple[dict[str, Array], Interval]:
        """Compute `replicates`, and the interval of the ECE."""
        numbers = {part: self.per_image[shift][part].double() for part in PER_IMAGE}
        right, confidence = numbers["right"], numbers["confidence"]
        sure = (confidence > SURE).double()
        numbers |= {
            "count": torch.ones_like(right),
            "sure": sure,
            "sure_right": sure * right,
            "square": confidence.square(),
        }
        member = F.one_hot(bin_index(confidence.nan_to_num(0.0), BINS), BINS)
        sums = {
            part: self.weights @ (values[:, None] * member).numpy()
            for part, values in numbers.items()
        }
        ece_interval, ece = debiased(sums)
        calibration = measures(sums)
        return {
            "value": self.accuracy(shift),
            "change": self.accuracy(shift) - self.accuracy(CLEAN),
            "ece": ece,
            "plain_ece": calibration["plain ECE"],
            "brier": calibration["Brier"],
            "nll": calibration["NLL"],
        }, ece_interval

    def row(self, shift: str) -> dict[str, Any]:
        """Return the entries of `columns`, as estimates, and `n`, for one shift."""
        right, clean = (self.per_image[each]["right"].double().numpy() for each in (shift, CLEAN))
        replicates = {name: self.replicates(shift)[name] for name in self.columns}
        estimates = bootstrap_estimates(replicates, len(right))
        unshifted = self.per_image[shift] is self.per_image[CLEAN]
        exact = {
            "value": wilson(right.sum(), len(right)),
            "change": Interval(0.0, 0.0, 0.0) if unshifted else paired_change(right - clean),
            "ece": self._ece[shift],
        }
        return with_intervals(estimates, exact) | {"n": len(right)}

    def mean_row(self, shifts: Sequence[str]) -> dict[str, Any]:
        """Return the same entries for the mean over several shifts."""
        each = [self.replicates(shift) for shift in shifts]
        means = {name: np.mean([one[name] for one in each], axis=0) for name in self.columns}
        count = len(self.bench.data)
        estimates = bootstrap_estimates(means, count)
        right = np.mean(
            [self.per_image[shift]["right"].double().numpy() for shift in shifts], axis=0
        )
        clean = self.per_image[CLEAN]["right"].double().numpy()
        exact = {
            "value": clustered_share(right, len(shifts)),
            "change": paired_change(right - clean),
        }
        ece = estimates["ece"]
        estimates["ece"] = replace(ece, low=max(float(ece.low), 0.0))
        return with_intervals(estimates, exact) | {"n": count}


def rank_by_mean_accuracy(result: Result, shifts: str) -> str:
    """A sentence on which model keeps the highest accuracy, averaged over all shifts."""
    rows = result.table[result.table["overall"]]
    return rank_models(
        mean_by_model(rows),
        f"{{model}} [withstands|withstand] {shifts} best, with {{}} right on average",
        "{model} worst, with {}",
        f"{{models}} are tied on {shifts}, with {{}} to {{}} right on average",
        format_percent,
        alone=f"Under {shifts}, {{model}} has {{}} right on average",
        paired=pair_models(result, rows),
    )


def bootstrap_estimates(replicates: Mapping[str, Array], count: int) -> dict[str, Estimate]:
    """Turn replicates (1 + REPEATS,) into estimates; what is not finite has no value."""
    return {
        name: estimated(np.where(np.isfinite(each), each, np.nan), count)
        for name, each in replicates.items()
    }


def with_intervals(
    estimates: Mapping[str, Estimate], exact: Mapping[str, Interval]
) -> dict[str, Estimate]:
    """Replace some bootstrap intervals by ones made for the statistic; replicates stay."""
    return {**estimates} | {
        name: Estimate(*interval, estimates[name].replicates) for name, interval in exact.items()
    }


def interval_columns(name: str, meaning: str, label: str) -> tuple[Column, Column, Column]:
    """Declare a measure and the two ends of its interval."""
    return (
        Column(name, "quantity", meaning, label=label),
        Column(f"{name}_low", "quantity", "Lower end of its 95 % interval."),
        Column(f"{name}_high", "quantity", "Upper end of its 95 % interval."),
    )


ECE_COLUMNS = (
    *interval_columns("ece", "Expected calibration error, corrected for its bias.", "ECE"),
    Column("plain_ece", "quantity", "ECE as papers report it, uncorrected.", label="plain ECE"),
)
MEASURES = (
    *interval_columns("change", "Accuracy minus clean accuracy.", "change of accuracy"),
    *ECE_COLUMNS,
    *interval_columns("nll", "Mean negative log-likelihood of the label.", "NLL"),
    *estimate("Share of images classified correctly.", label="accuracy"),
)
"""The last columns of every such table."""


def chance_level(bench: Bench) -> tuple[Reference, ...]:
    """Return the reference line of a model that guesses."""
    return (Reference(1 / len(bench.data.classes), "guessing"),)


def channel_statistics(subject: Subject, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and std of the model's normalisation, (c, 1, 1): x = (pixel - mean) / std."""
    channels = subject.specimen.anatomy.image[0]
    mean, std = (
        like.new_tensor(given)[:channels].view(-1, 1, 1) for given in (subject.mean, subject.std)
    )
    return mean, std


def check_options(name: str, values: Sequence[float], low: float, high: float) -> None:
    """Raise unless there is at least one value, all lie in (low, high] and none is repeated."""
    outside = [value for value in values if not low < value <= high]
    if outside:
        problem = f"{outside[0]:g} is not"
    elif not values:
        problem = "none was given"
    elif len(set(values)) < len(values):
        problem = "one is repeated"
    else:
        return
    raise VitreousError(
        f"{name} must be different numbers above {low:g} and at most {high:g}; {problem}."
    )
