"""What the mean over passes with dropout gains over one pass without (A1.23).

    p(y | x) = 1/T Σ_t softmax(f(x, mask_t)),    a new mask in every pass, everything else as in evaluation

for T = 1, 2, 5, … of the same passes, beside the usual prediction in evaluation mode: accuracy, NLL and ECE. Masks
depend on the seed and the image's number. `vitreous.measure.robustness.dropout` says what counts as dropout.

Park and Kim read self-attention as such a mean, over neighbouring places instead of passes (HDV-55), and spatial
smoothing as one that makes two passes as good as fifty without it (HDV-52).
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
from vitreous.measure.analysis import Analysis, Bench, Found, Work
from vitreous.measure.partial import Numbers
from vitreous.measure.probes.calibration import per_image
from vitreous.measure.robustness.dropout import (
    Model,
    branches,
    dropping,
    sites,
    with_dropout,
)
from vitreous.measure.robustness.shifts import (
    CLEAN,
    ECE,
    KEPT,
    Marks,
    guessing,
    measured,
    table,
    with_ends,
)
from vitreous.measure.subject import Subject, logits
from vitreous.random_numbers import derive_seed, seeded
from vitreous.results import Column, Result, View, estimate
from vitreous.storage.fingerprints import checksum

__all__ = ["McDropout"]

SHARD = 32
"""Images of a piece."""
TOGETHER = 16
"""Passes of one image at a time, fewer only where memory does not suffice."""
MEAN, USUAL = "mean over passes", "evaluation mode"


@dataclass
class McDropout(Analysis):
    """What the mean over passes with dropout gains over one pass without."""

    passes: Sequence[int] = (1, 2, 5, 10, 20, 50)
    """Over how many the mean is taken."""
    rate: float = 0.0
    """Above 0, dropout at this rate on what every branch adds takes the place of the model's own; for models that have
    none, or to treat all models alike."""

    name = "mc_dropout"
    ids = ("A1.23", "HDV-52", "HDV-55")

    def __post_init__(self) -> None:
        if not self.passes or list(self.passes) != sorted(set(self.passes)) or self.passes[0] < 1:
            raise VitreousError(
                f"mc_dropout was asked for the mean over {list(self.passes)} passes; name numbers from 1 on, in order."
            )
        if not 0 <= self.rate < 1:
            raise VitreousError(
                f"mc_dropout was asked with rate {self.rate:g}; it lies between 0 and 1."
            )
        self._sites: WeakKeyDictionary[Subject, dict[str, list[float]]] = WeakKeyDictionary()

    def sites(self, subject: Subject) -> dict[str, list[float]]:
        """Found once."""
        if subject not in self._sites:
            self._sites[subject] = sites(subject)
        return self._sites[subject]

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if why := super().unsuited(subject, bench):
            return why
        if self.rate:
            return (
                ""
                if branches(subject.specimen)
                else "It has no branch beside a skip that dropout could be put on."
            )
        if subject.model is None:
            return "A specimen is read in evaluation mode, without dropout; give the model itself, or set `rate`."
        try:
            found = self.sites(subject)
        except VitreousError as error:
            return str(error)
        return (
            ""
            if found
            else "It has no dropout; build it with some, or set `rate` to put some on its branches."
        )

    def pieces(self, subject: Subject, bench: Bench) -> Sequence[str]:
        """Weights do not know the rate of dropout, so the name of a piece says it."""
        where = checksum([] if self.rate else self.sites(subject))[:8]
        return [f"images from {start} with {where}" for start in range(0, len(bench.data), SHARD)]

    @contextmanager
    def work(self, subject: Subject, bench: Bench) -> Iterator[Work]:
        own = not self.rate
        model = (
            dropping(subject, self.sites(subject))
            if own
            else with_dropout(subject.specimen, self.rate)
        )
        names = list(self.pieces(subject, bench))

        @torch.no_grad()
        def one(piece: str) -> Numbers:
            first = SHARD * names.index(piece)
            rows = range(first, min(first + SHARD, len(bench.data)))
            images = subject.prepare(bench.data.images[rows.start : rows.stop])
            labels = bench.data.labels[rows.start : rows.stop].to(images.device)
            usual = [_logs(subject.specimen, part) for part in images.split(bench.batch)]
            drawn = [
                self._means(model, image, row, bench)
                for image, row in zip(images, rows, strict=True)
            ]
            found = {CLEAN: torch.cat(usual)} | {
                str(passes): torch.stack(means)
                for passes, means in zip(self.passes, zip(*drawn, strict=True), strict=True)
            }
            return {
                f"{which}/{part}": values.float()
                for which, scores in found.items()
                for part, values in per_image(scores, labels).items()
                if part in KEPT
            }

        yield one

    def _means(self, model: Model, image: Tensor, row: int, bench: Bench) -> list[Tensor]:
        """(classes,) log of the mean probabilities over the first 1, 2, 5, … passes of one image."""
        logs: list[Tensor] = []
        for part in torch.arange(self.passes[-1]).split(min(TOGETHER, bench.batch)):
            with seeded(derive_seed(self.name, bench.seed, row, int(part[0])), image.device):
                logs.append(_logs(model, image.expand(len(part), *image.shape)))
        sums = torch.cat(logs).logcumsumexp(0)
        return [sums[passes - 1] - log(passes) for passes in self.passes]

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        rows = [row for each in asked for row in self._rows(each, found[each.name], bench)]
        dropped = {
            each.name: "on every branch" if self.rate else sorted(self.sites(each))
            for each in asked
        }
        return Result(
            self.name, table(rows, COLUMNS), COLUMNS, views(bench), about={"dropout": dropped}
        )

    def _rows(
        self, subject: Subject, found: Mapping[str, Numbers], bench: Bench
    ) -> Iterator[dict[str, Any]]:
        pieces = [found[piece] for piece in self.pieces(subject, bench)]
        whole = {
            which: {
                part: torch.cat([piece[f"{which}/{part}"] for piece in pieces]) for part in KEPT
            }
            for which in (CLEAN, *map(str, self.passes))
        }
        of, count = Marks(whole, bench), len(bench.data)
        usual = of.replicates(CLEAN)
        for passes in self.passes:
            for prediction, which in ((MEAN, str(passes)), (USUAL, CLEAN)):
                gained = {
                    f"{part}_change": of.replicates(which)[part] - usual[part]
                    for part in ("nll", "ece")
                }
                yield {
                    "model": subject.name, "passes": passes, "prediction": prediction,
                    "overall": prediction == MEAN and passes == self.passes[-1],
                    **measured(gained, count), **of.row(which),
                }  # fmt: skip


def _logs(model: Model, images: Tensor) -> Tensor:
    """(b, classes) log probabilities in double precision."""
    scores = logits(model(images))
    assert scores is not None
    return scores.double().log_softmax(1)


_LESS = "less that in evaluation mode; paired over images."
COLUMNS = (
    Column("model", "category", "The model."),
    Column("passes", "quantity", "T, over how many passes the mean is taken."),
    Column(
        "prediction", "category", f"The {MEAN} with dropout, or the usual prediction in {USUAL}."
    ),
    Column("overall", "category", "Whether the row is the mean over the most passes."),
    *with_ends("nll_change", f"NLL {_LESS}", "change of NLL"),
    *with_ends("ece_change", f"ECE {_LESS}", "change of ECE"),
    *with_ends("change", f"Accuracy {_LESS}", "change of accuracy"),
    *ECE,
    *with_ends("nll", "Mean of −log probability of the label.", "NLL"),
    *estimate("Share of the images that are right.", label="accuracy"),
)


def views(bench: Bench) -> tuple[View, ...]:
    """A panel for each model."""
    how: dict[str, Any] = {"x": "passes", "colour": "prediction", "facet": "model", "log": ("x",)}
    return (
        View(
            "line", y="nll", low="nll_low", high="nll_high",
            title="NLL of the mean over passes with dropout",
            how_to_read="From left to right the mean is taken over more passes, each with other numbers dropped. Where "
            "the line falls below that of evaluation mode, dropping at test time makes predictions better.",
            **how,
        ),
        View(
            "line", y="value", low="low", high="high", limits=(0, 1), references=guessing(bench),
            title="Accuracy of the mean over passes with dropout",
            how_to_read="A single pass with dropout is usually worse than none; how many passes make up for it is how "
            "much they differ.",
            **how,
        ),
        View(
            "line", y="ece", low="ece_low", high="ece_high",
            title="Calibration of the mean over passes with dropout",
            how_to_read="The mean gap between confidence and accuracy. A mean over passes is less sure than each of "
            "them: that helps a model that is too sure, and harms one that is not sure enough.",
            **how,
        ),
    )  # fmt: skip
