"""Calibration: expected calibration error, reliability, Brier score and NLL.

    confidence    the largest probability of softmax(scores)
    reliability   accuracy of the images whose confidence lies in a bin: [0, 0.1), …, [0.9, 1]
    plain ECE     Σ_bins  share of the images · |accuracy − mean confidence|
    ECE           the same without what noise adds to it, `vitreous.results.calibration_error`
    signed ECE    Σ_bins  share of the images · (mean confidence − accuracy), above 0 over-confident
    Brier         mean of Σ_classes (probability − [is the label])²
    NLL           mean of −log probability of the label
    Acc-90        accuracy of the images with a confidence above 0.9
    Unc-90        share of the mistakes that are made with less confidence
    Freq-90       share of the images with more

The last bin is closed, so that it contains a confidence of exactly 1. Bins hold sums, so that the
ECE over many batches is that of all images and not the mean over batches.

Intervals: of ECE an inverted test of its value; of shares Wilson's; of the signed ECE, a mean of
numbers between -1 and 1, Bonett and Price's; of Brier and NLL the bootstrap's. The plain ECE has
none, because its expectation depends on the number of images.

Only rows about all images have replicates. The replicates of ECE are those of the plain ECE,
shifted so that their mean is the value, because every resample adds the bias again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitreous.errors import VitreousError
from vitreous.measure.probe import Batch, Probe, Setting, Sums, interval, sum_key
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject, logits
from vitreous.results import (
    Column,
    Estimate,
    Interval,
    Reference,
    Result,
    View,
    change_of_sums,
    estimate,
    tabulate,
    wilson,
)
from vitreous.results.calibration_error import expected_calibration_error
from vitreous.results.comparing import bold, mean_by_model, rank_models
from vitreous.results.words import format_percent, join_words

__all__ = ["Calibration"]

SURE = 0.9
PARTS = (
    "count",
    "confidence",
    "square",
    "right",
    "gap_square",
    "brier",
    "nll",
    "sure",
    "sure_right",
)


def bin_index(confidence: Tensor, bins: int) -> Tensor:
    """Index (b,) of the bin of each confidence; the last bin is closed."""
    return (confidence * bins).floor().long().clamp(0, bins - 1)


def score_images(scores: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The terms of every image to sum in its bin, (b,) each, from scores (b, classes).

    In double precision, in which no logarithm overflows.
    """
    logs, shares = scores.double().log_softmax(1), scores.double().softmax(1)
    confidence, guess = shares.max(1)
    right = (guess == labels).double()
    sure = (confidence > SURE).double()
    return {
        "count": torch.ones_like(confidence),
        "confidence": confidence,
        "square": confidence.square(),
        "right": right,
        "gap_square": (confidence - right).square(),
        "brier": (shares - F.one_hot(labels, scores.shape[1])).square().sum(1),
        "nll": -logs.gather(1, labels[:, None])[:, 0],
        "sure": sure,
        "sure_right": sure * right,
    }


def measures(sums: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All measures except the debiased ECE, from sums in bins, (…, bins) each."""
    total = {part: values.sum(-1) for part, values in sums.items()}
    count, sure, wrong = total["count"], total["sure"], total["count"] - total["right"]
    gap = sums["confidence"] - sums["right"]
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "plain ECE": np.abs(gap).sum(-1) / count,
            "signed ECE": gap.sum(-1) / count,
            "Brier": total["brier"] / count,
            "NLL": total["nll"] / count,
            "Acc-90": total["sure_right"] / sure,
            "Unc-90": 1 - (sure - total["sure_right"]) / wrong,
            "Freq-90": sure / count,
        }


def debiased(sums: Mapping[str, np.ndarray]) -> tuple[Interval, np.ndarray]:
    """Debiased ECE with interval, and its replicates (1 + REPEATS,), from (1 + REPEATS, bins)."""
    ece = expected_calibration_error(
        *(sums[part][0] for part in ("count", "confidence", "square", "right"))
    )
    plain = measures(sums)["plain ECE"]
    finite = plain[1:][np.isfinite(plain[1:])]
    shifted = np.maximum(ece.mean + plain - (finite.mean() if len(finite) else np.nan), 0)
    return ece, np.concatenate([[ece.mean], shifted[1:]])


def every_measure(sums: Mapping[str, np.ndarray]) -> dict[str, tuple[Interval, np.ndarray]]:
    """Each measure with its interval and its replicates, from sums (1 + REPEATS, bins)."""
    replicates = measures(sums)
    total = {part: float(values[0].sum()) for part, values in sums.items()}
    count, sure, wrong = total["count"], total["sure"], total["count"] - total["right"]
    intervals = {name: interval(values, count) for name, values in replicates.items()}
    intervals["plain ECE"] = Interval(intervals["plain ECE"].mean, np.nan, np.nan)
    intervals["signed ECE"] = change_of_sums(
        total["confidence"] - total["right"], total["gap_square"], count
    )
    intervals["Acc-90"] = wilson(total["sure_right"], sure)
    intervals["Unc-90"] = wilson(wrong - (sure - total["sure_right"]), wrong)
    intervals["Freq-90"] = wilson(sure, count)
    return {"ECE": debiased(sums)} | {
        name: (intervals[name], values) for name, values in replicates.items()
    }


@dataclass
class Calibration(Probe):
    """How well confidence matches accuracy."""

    name = "calibration"
    ids = ("A4.15", "HDV-49")
    section = Section(
        "output",
        "Are they well calibrated?",
        "Images are binned by the confidence of the model; in each bin accuracy should equal "
        "confidence. The mean gap is the expected calibration error (ECE).",
        "Without augmentation models are over-confident, with strong augmentation under-confident "
        "(Park & Kim 2022, appendix E).",
        order=1,
        headline=2,
        key=8,
    )
    bins: int = 10
    """Number of bins of confidence, all of the same width."""

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        if self.bins < 1:
            raise VitreousError(
                f"calibration was asked for {self.bins} bins; it takes at least one."
            )

    def unsuited(self, subject: Subject) -> str:
        return self.setting.unmarkable(subject)

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Sums:
        scores = logits(output)
        assert scores is not None
        terms = score_images(scores, batch.on(scores.device, "labels"))
        one_hot = F.one_hot(bin_index(terms["confidence"], self.bins), self.bins)
        return {
            sum_key(subject, what=part): batch.total(terms[part][:, None] * one_hot)
            for part in PARTS
        }

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        columns = (
            Column("model", "category", "The model."),
            Column(
                "measure",
                "category",
                "What the value is: a measure of the table above, or `gap` for a bin.",
            ),
            Column(
                "bin", "order", "Range of confidence of the bin; empty in rows about all images."
            ),
            Column("overall", "category", "Whether the row is about all images."),
            Column("binned", "category", "Whether the row is about a bin."),
            Column("filled", "category", "Whether the bin has images."),
            Column("confidence", "quantity", "Mean confidence of the images in the bin."),
            *_with_ends("accuracy", "Accuracy on the images of the bin."),
            *_with_ends(
                "share", "Share of all images that fall into the bin.", "share of the images"
            ),
            *estimate("The measure; in rows about a bin, mean confidence minus accuracy."),
        )
        rows = [
            row
            for subject in subjects
            for row in (*self._overall(subject, sums), *self._bins(subject, sums))
        ]
        table, replicates = tabulate(rows, columns)
        views = VIEWS
        if len(subjects) > CROWDED:
            views = (replace(RELIABILITY, facet="model"), *VIEWS[1:])
        return Result(self.name, table, columns, views, replicates=replicates)

    def _overall(self, subject: Subject, sums: Mapping[str, Tensor]) -> Iterator[dict[str, Any]]:
        in_bins = _parts(subject, sums)
        images = int(in_bins["count"][0].sum())
        for measure, (ends, replicates) in every_measure(in_bins).items():
            row = {
                "model": subject.name,
                "measure": measure,
                "bin": "",
                "overall": True,
                "binned": False,
                "filled": False,
            }
            yield {**row, "value": Estimate(*ends, replicates[1:]), "n": images}

    def _bins(self, subject: Subject, sums: Mapping[str, Tensor]) -> Iterator[dict[str, Any]]:
        in_bins = _parts(subject, sums)
        count, total, right = (in_bins[part][0] for part in ("count", "confidence", "right"))
        for number in range(self.bins):
            images = int(count[number])
            accuracy = wilson(right[number], images)
            confidence = total[number] / images if images else np.nan
            gap = Interval(*(confidence - accuracy[end] for end in (0, 2, 1)))
            yield {
                "model": subject.name,
                "measure": "gap",
                "bin": f"{number / self.bins:.4g} to {(number + 1) / self.bins:.4g}",
                "overall": False,
                "binned": True,
                "filled": images > 0,
                "confidence": float(confidence),
                **_ends("accuracy", accuracy),
                **_ends("share", wilson(images, count.sum())),
                **_ends("value", gap),
                "n": images,
            }

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = result.table[result.table["overall"]]
        errors = mean_by_model(rows[rows["measure"] == "ECE"])
        yield rank_models(
            {model: Interval(-e.mean, -e.high, -e.low) for model, e in errors.items()},
            "{model} [is|are] best calibrated, with an ECE of {}",
            "{model} worst, with {}",
            "{models} are tied on calibration, with an ECE of {1} to {0}",
            lambda value, low, high: format_percent(-value, -high, -low),
            alone="{model} has an ECE of {}",
        )
        signed = mean_by_model(rows[rows["measure"] == "signed ECE"])
        if under := [bold(model) for model, mean in signed.items() if mean.high < 0]:
            yield f"Under-confident: {join_words(under)}."
        if over := [bold(model) for model, mean in signed.items() if mean.low > 0]:
            yield f"Over-confident: {join_words(over)}."


def _parts(subject: Subject, sums: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    return {part: sums[sum_key(subject, what=part)].numpy() for part in PARTS}


def _ends(name: str, interval: Interval) -> dict[str, float]:
    ends = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
    return dict(zip((name, *ends), map(float, interval), strict=True))


def _with_ends(name: str, says: str, label: str = "") -> tuple[Column, ...]:
    words = {"low": "Lower", "high": "Upper"}
    ends = (
        Column(f"{name}_{end}", "quantity", f"{word} end of its 95 % interval.")
        for end, word in words.items()
    )
    return Column(name, "quantity", says, label=label), *ends


CROWDED = 4
"""Above this number of models, each has its own reliability diagram."""
RELIABILITY = View(
    "line",
    x="confidence",
    y="accuracy",
    colour="model",
    size="n",
    low="accuracy_low",
    high="accuracy_high",
    limits=(0, 1),
    square=True,
    references=(Reference(1.0, "calibrated", "slope"),),
    where="filled",
    tooltip=("model", "bin", "confidence", "accuracy", "n"),
    title="Reliability",
    how_to_read="Each point is a bin of confidence: how sure the model is there, and how often it "
    "is right. The larger a point, the more images are in the bin; whiskers are 95 % intervals. "
    "Below the dashed line a model is over-confident, above it under-confident.",
)
VIEWS = (
    RELIABILITY,
    View(
        "bar",
        x="bin",
        y="share",
        colour="model",
        low="share_low",
        high="share_high",
        where="binned",
        title="Distribution of confidence",
        how_to_read="The height of a bar is the share of the images on which a model has this "
        "confidence. A model that makes mistakes and has all images in the last bin is "
        "over-confident.",
    ),
    View(
        "bar",
        x="model",
        y="value",
        colour="model",
        facet="measure",
        low="low",
        high="high",
        where="overall",
        free=True,
        title="Calibration in single numbers",
        how_to_read="Each panel has its own axis. ECE is the mean gap between confidence and "
        "accuracy, corrected for the number of images; the plain ECE is what papers report. Signed "
        "ECE is above 0 for an over-confident model. Of Brier score and NLL lower is better. "
        "Acc-90 is the accuracy on images with a confidence above 0.9, Freq-90 the share of such "
        "images, and Unc-90 the share of mistakes with a lower confidence.",
    ),
)
