"""MC dropout: what the mean over passes with dropout gains over one pass without.

    p(y | x) = 1/T Σ_t softmax(f(x, mask_t)),    a new mask in every pass

for T = 1, 2, 5, … of the same passes, compared with the usual prediction in evaluation mode:
accuracy, NLL and ECE. Masks depend on the seed and the image's number. What counts as dropout is
defined in `vitreous.measure.robustness.dropout`.

Park & Kim 2022 read self-attention as such a mean, over neighbouring positions instead of passes
(Eq. 1 and 2), and spatial smoothing as one that makes two passes as good as fifty without it
(appendix B).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.analysis import Analysis, Bench, PieceNumbers, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probes.calibration import score_images
from vitreous.measure.report_section import Section
from vitreous.measure.robustness.dropout import (
    Forward,
    branches,
    dropout_sites,
    model_with_dropout,
    specimen_with_dropout,
)
from vitreous.measure.robustness.shifts import (
    CLEAN,
    ECE_COLUMNS,
    PER_IMAGE,
    ShiftScores,
    bootstrap_estimates,
    chance_level,
    interval_columns,
)
from vitreous.measure.subject import Subject, logits
from vitreous.random_numbers import derive_seed, seeded
from vitreous.results import Column, Result, View, estimate, tabulate
from vitreous.results.comparing import bold, format_points, records
from vitreous.results.words import format_estimate
from vitreous.storage.fingerprints import checksum

__all__ = ["McDropout"]

SHARD = 32
"""Number of images per piece."""
PASSES_AT_ONCE = 16
"""Number of passes of one image that run as one batch; fewer if memory is short."""
MEAN, USUAL = "mean over passes", "evaluation mode"


@dataclass
class McDropout(Analysis):
    """Accuracy and calibration of the mean over passes with dropout."""

    passes: Sequence[int] = (1, 2, 5, 10, 20, 50)
    """Numbers of passes to average over, in ascending order."""
    rate: float = 0.0
    """Rate of dropout on every residual branch, which replaces the dropout of the model; 0 keeps
    that of the model."""

    name = "mc_dropout"
    ids = ("A1.23", "HDV-52", "HDV-55")
    section = Section(
        "output",
        "Is a mean over passes with dropout better than one pass?",
        "Dropout stays on while the images pass again and again, and probabilities are averaged: "
        "the simplest estimate of a network's uncertainty.",
        "With spatial smoothing two such passes are as good as fifty without it; attention is "
        "interpreted as a mean of the same kind, over positions instead of passes (Park & Kim "
        "2022, appendix B).",
        order=3,
    )

    def __post_init__(self) -> None:
        if not self.passes or list(self.passes) != sorted(set(self.passes)) or self.passes[0] < 1:
            raise VitreousError(
                f"The passes of mc_dropout are {list(self.passes)}; give numbers from 1 on, in "
                "ascending order."
            )
        if not 0 <= self.rate < 1:
            raise VitreousError(
                f"The rate of mc_dropout is {self.rate:g}; it lies between 0 and 1."
            )
        self._sites: WeakKeyDictionary[Subject, dict[str, list[float]]] = WeakKeyDictionary()

    def sites(self, subject: Subject) -> dict[str, list[float]]:
        """Return the model's dropout sites; cached."""
        if subject not in self._sites:
            self._sites[subject] = dropout_sites(subject)
        return self._sites[subject]

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if why := super().unsuited(subject, bench):
            return why
        if self.rate:
            if branches(subject.specimen):
                return ""
            return "It has no residual branch to put dropout on."
        if subject.model is None:
            return (
                "A specimen is in evaluation mode, without dropout; give the model, or set `rate`."
            )
        try:
            sites = self.sites(subject)
        except VitreousError as error:
            return str(error)
        if not sites:
            return (
                "It has no dropout; build it with some, or set `rate` to put some on its branches."
            )
        return ""

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        # A model's fingerprint does not cover its dropout rates, so the names of pieces do.
        where = checksum([] if self.rate else self.sites(subject))[:8]
        return [f"images from {start} with {where}" for start in range(0, len(bench.data), SHARD)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        model: Forward
        if self.rate:
            model = specimen_with_dropout(subject.specimen, self.rate)
        else:
            model = model_with_dropout(subject, self.sites(subject))
        names = list(self.pieces(subject, bench))

        @torch.no_grad()
        def compute(piece: str) -> Numbers:
            first = SHARD * names.index(piece)
            rows = range(first, min(first + SHARD, len(bench.data)))
            images = subject.prepare(bench.data.images[rows.start : rows.stop])
            labels = bench.data.labels[rows.start : rows.stop].to(images.device)
            usual = [_log_softmax(subject.specimen, part) for part in images.split(bench.batch)]
            means = [
                self._log_means(model, image, row, bench)
                for image, row in zip(images, rows, strict=True)
            ]
            predictions = {CLEAN: torch.cat(usual)}
            for place, passes in enumerate(self.passes):
                predictions[str(passes)] = torch.stack([each[place] for each in means])
            numbers: dict[str, Tensor] = {}
            for which, scores in predictions.items():
                every = score_images(scores, labels)
                numbers |= {f"{which}/{part}": every[part].float() for part in PER_IMAGE}
            return numbers

        yield compute

    def _log_means(self, model: Forward, image: Tensor, row: int, bench: Bench) -> list[Tensor]:
        """Return log mean probabilities over the first 1, 2, 5, … passes, (classes,) each."""
        logs: list[Tensor] = []
        for part in torch.arange(self.passes[-1]).split(min(PASSES_AT_ONCE, bench.batch)):
            with seeded(derive_seed(self.name, bench.seed, row, int(part[0])), image.device):
                logs.append(_log_softmax(model, image.expand(len(part), *image.shape)))
        sums = torch.cat(logs).logcumsumexp(0)
        return [sums[passes - 1] - log(passes) for passes in self.passes]

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        rows = [row for each in subjects for row in self._rows(each, computed[each.name], bench)]
        dropout = {
            each.name: "on every branch" if self.rate else sorted(self.sites(each))
            for each in subjects
        }
        table, replicates = tabulate(rows, COLUMNS)
        return Result(
            self.name,
            table,
            COLUMNS,
            _views(bench),
            about={"dropout": dropout},
            replicates=replicates,
        )

    def _rows(
        self, subject: Subject, computed: Mapping[str, Numbers], bench: Bench
    ) -> Iterator[dict[str, Any]]:
        pieces = [computed[piece] for piece in self.pieces(subject, bench)]
        numbers: dict[str, Numbers] = {}
        for which in (CLEAN, *map(str, self.passes)):
            numbers[which] = {
                part: torch.cat([piece[f"{which}/{part}"] for piece in pieces])
                for part in PER_IMAGE
            }
        scores = ShiftScores(numbers, bench)
        usual = scores.replicates(CLEAN)
        for passes in self.passes:
            for prediction, which in ((MEAN, str(passes)), (USUAL, CLEAN)):
                drawn = scores.replicates(which)
                changes = {f"{part}_change": drawn[part] - usual[part] for part in ("nll", "ece")}
                yield {
                    "model": subject.name,
                    "passes": passes,
                    "prediction": prediction,
                    "overall": prediction == MEAN and passes == self.passes[-1],
                    **bootstrap_estimates(changes, len(bench.data)),
                    **scores.row(which),
                }

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        for row in records(result.table[result.table["overall"]]):
            low, high = row["nll_change_low"], row["nll_change_high"]
            if high < 0:
                verdict = "an improvement"
            elif low > 0:
                verdict = "a deterioration"
            else:
                verdict = "within chance"
            yield (
                f"The mean over {row['passes']} passes with dropout changes the NLL of "
                f"{bold(row['model'])} by {format_estimate(row['nll_change'], low, high)}, "
                f"{verdict}, "
                f"and its accuracy by {format_points(row, 'change')}."
            )


def _log_softmax(model: Forward, images: Tensor) -> Tensor:
    """Return log probabilities in double precision, (b, classes)."""
    scores = logits(model(images))
    assert scores is not None
    return scores.double().log_softmax(1)


_LESS = "minus that in evaluation mode, paired."
COLUMNS = (
    Column("model", "category", "The model."),
    Column("passes", "quantity", "Number T of passes in the mean."),
    Column("prediction", "category", f"`{MEAN}`, with dropout, or `{USUAL}`, without."),
    Column("overall", "category", "Whether the row is the mean over the most passes."),
    *interval_columns("nll_change", f"NLL {_LESS}", "change of NLL"),
    *interval_columns("ece_change", f"ECE {_LESS}", "change of ECE"),
    *interval_columns("change", f"Accuracy {_LESS}", "change of accuracy"),
    *ECE_COLUMNS,
    *interval_columns("nll", "Mean negative log-likelihood of the label.", "NLL"),
    *estimate("Share of images classified correctly.", label="accuracy"),
)


def _views(bench: Bench) -> tuple[View, ...]:
    lines: dict[str, Any] = {"x": "passes", "colour": "prediction", "facet": "model", "log": ("x",)}
    return (
        View(
            "line", y="nll", low="nll_low", high="nll_high",
            title="NLL of the mean over passes with dropout",
            how_to_read="More passes are averaged from left to right, each with another mask. "
            "Where the line falls below that of evaluation mode, dropout at test time improves "
            "predictions.",
            **lines,
        ),
        View(
            "line", y="value", low="low", high="high", limits=(0, 1),
            references=chance_level(bench),
            title="Accuracy of the mean over passes with dropout",
            how_to_read="A single pass with dropout is usually worse than none. The more passes it "
            "takes to make up for it, the more they differ.",
            **lines,
        ),
        View(
            "line", y="ece", low="ece_low", high="ece_high",
            title="Calibration of the mean over passes with dropout",
            how_to_read="Mean gap between confidence and accuracy. A mean over passes is less "
            "confident than each of them: that helps an over-confident model and harms an "
            "under-confident one.",
            **lines,
        ),
    )  # fmt: skip
