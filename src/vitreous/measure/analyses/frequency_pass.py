"""Which frequencies of an image a model needs: accuracy after low-pass and high-pass filters.

    low(f) = accuracy of F⁻¹(F(x) ⊙ [frequency ≤ f])
    high(f) = accuracy of F⁻¹(F(x) ⊙ [frequency > f])

Frequencies are in π radians per pixel of the model's input, the larger of those along the axes.
What low-pass keeps, high-pass removes. The filter works on normalised images: if it removes the
mean colour, the image gets the mean colour of the model's training data. Filtered images may leave
the range of pixels; they are not clipped. A model that relies on shape should keep its accuracy
without fine detail (Park & Kim 2022, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from vitreous.data.frequency import high_pass, low_pass
from vitreous.measure.analysis import Bench, PieceNumbers
from vitreous.measure.probe import Batch
from vitreous.measure.report_section import Section
from vitreous.measure.robustness.shifts import (
    CLEAN,
    MEASURES,
    ShiftAnalysis,
    ShiftScores,
    chance_level,
    channel_statistics,
    check_options,
    rank_by_mean_accuracy,
)
from vitreous.measure.subject import Subject
from vitreous.results import Column, Result, View, tabulate

__all__ = ["FrequencyPass"]

FILTERS = {"low-pass": low_pass, "high-pass": high_pass}


@dataclass
class FrequencyPass(ShiftAnalysis):
    """Accuracy with only the low, or only the high frequencies of images."""

    cutoffs: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
    """Cut-off frequencies of the filters, in π."""

    name = "frequency_pass"
    ids = ("A4.34", "HDV-33")
    section = Section(
        "robustness",
        "Do they need coarse shape or fine detail?",
        "Images are reduced to their low frequencies, which is a blur, or to their high "
        "frequencies, which leaves edges and texture.",
        "Attention should rely on shape and convolutions on texture, so that a ViT should lose "
        "less without fine detail (Park & Kim 2022).",
        order=4,
    )

    def __post_init__(self) -> None:
        check_options("Cut-offs, in π,", self.cutoffs, 0, 1)

    def shifts(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [f"{kind} {cutoff:g}" for kind in FILTERS for cutoff in self.cutoffs]

    def shift_images(self, subject: Subject, batch: Batch, shift: str) -> Tensor:
        kind, cutoff = shift.split()
        return FILTERS[kind](subject.prepare(batch.images), float(cutoff) * math.pi)

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        rows: list[dict[str, Any]] = []
        for subject in subjects:
            scores = ShiftScores(computed[subject.name], bench)
            row = {"model": subject.name, "filtered": False, "pictured": False, "overall": False}
            rows.append({**row, "filter": CLEAN, "cutoff": math.nan, **scores.row(CLEAN)})
            overall = {**row, "filter": "all", "cutoff": math.nan, "overall": True}
            rows.append({**overall, **scores.mean_row(self.shifts(subject, bench))})
            row |= {"filtered": True, "pictured": subject is subjects[0]}
            for kind in FILTERS:
                for cutoff in self.cutoffs:
                    values = scores.row(f"{kind} {cutoff:g}")
                    rows.append({**row, "filter": kind, "cutoff": float(cutoff), **values})
        table, replicates = tabulate(rows, COLUMNS)
        arrays = {"image": self._pictures(subjects[0], bench)}
        return Result(self.name, table, COLUMNS, _views(bench), arrays, replicates=replicates)

    def _pictures(self, subject: Subject, bench: Bench) -> np.ndarray:
        """Return the first image under every filter, uint8 (filters, h, w, 3)."""
        first = next(iter(bench.batches()))
        batch = Batch(first.rows[:1], first.images[:1], first.labels[:1], first.seed)
        pictures = []
        for shift in self.shifts(subject, bench):
            image = self.shift_images(subject, batch, shift)[0]
            mean, std = channel_statistics(subject, image)
            pixels = ((image * std + mean).clamp(0, 1) * 255).round().byte().cpu()
            pictures.append(pixels.expand(3, -1, -1).permute(1, 2, 0).numpy())
        return np.stack(pictures)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        yield rank_by_mean_accuracy(result, "filtered images")


COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "filter",
        "order",
        "`low-pass` keeps frequencies up to the cut-off, `high-pass` those above it.",
    ),
    Column(
        "cutoff",
        "quantity",
        "Cut-off frequency; empty for clean images and for the mean.",
        "π",
        "cut-off",
    ),
    Column("filtered", "category", "Whether the row is about one filter and cut-off."),
    Column("pictured", "category", "Whether the row is among the pictures."),
    Column("overall", "category", "Whether the row is the mean over filters and cut-offs."),
    *MEASURES,
)


def _views(bench: Bench) -> tuple[View, ...]:
    return (
        View(
            "line", x="cutoff", y="value", colour="model", facet="filter", low="low", high="high",
            limits=(0, 1), references=chance_level(bench), where="filtered",
            title="Accuracy with low or high frequencies only",
            how_to_read="Under low-pass the image gets sharper from left to right; under high-pass "
            "it loses its coarse parts. A model that is accurate under low-pass at a small cut-off "
            "relies on coarse form, one that is accurate under high-pass at a large one on detail.",
        ),
        View(
            "tiles", x="cutoff", facet="filter", array="image", where="pictured",
            title="What the filters leave of an image",
            how_to_read="The first image as the first model sees it, under the cut-off above it.",
        ),
    )  # fmt: skip
