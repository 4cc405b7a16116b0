"""Which frequencies of an image a model needs: accuracy with only the slow, or only the fast waves (A4.34).

    low(f) = accuracy of F⁻¹(F(x) ⊙ [frequency ≤ f])
    high(f) = accuracy of F⁻¹(F(x) ⊙ [frequency > f])

Frequencies are in π radians a pixel of the image as the model takes it, the larger of the two along the axes. What
low-pass keeps high-pass takes away. The filter works on normalised images: where it takes the mean colour away, the
image gets the mean colour of the data the model was trained on. Results may leave the range of pixels; they are not
clipped. A model that goes by shape should keep its accuracy when fine detail is gone (HDV-33).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from vitreous.data.frequency import high_pass, low_pass
from vitreous.measure.analysis import Bench, Found
from vitreous.measure.probe import Batch
from vitreous.measure.robustness.shifts import (
    CLEAN,
    MEASURES,
    Shifted,
    check_shares,
    guessing,
    levels,
    marks,
    table,
)
from vitreous.measure.subject import Subject
from vitreous.results import Column, Result, View

__all__ = ["FrequencyPass"]

FILTERS = {"low-pass": low_pass, "high-pass": high_pass}


@dataclass
class FrequencyPass(Shifted):
    """Which frequencies of an image a model needs."""

    cutoffs: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
    """Where the filters cut, in π."""

    name = "frequency_pass"
    ids = ("A4.34", "HDV-33")

    def __post_init__(self) -> None:
        check_shares("Cut-offs, in π,", self.cutoffs, 0, 1)

    def shifts(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [f"{kind} {cutoff:g}" for kind in FILTERS for cutoff in self.cutoffs]

    def shifted(self, subject: Subject, batch: Batch, shift: str) -> Tensor:
        kind, cutoff = shift.split()
        images = subject.prepare(batch.images)
        return FILTERS[kind](images, float(cutoff) * math.pi)

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        rows: list[dict[str, Any]] = []
        for subject in asked:
            of, where = marks(found, subject, bench), {"model": subject.name}
            single = {"filtered": False, "pictured": False, "overall": False}
            none = {"filter": CLEAN, "cutoff": math.nan}
            rows.append({**where, **none, **single, **of.row(CLEAN)})
            every = {"filter": "all", "cutoff": math.nan}
            rows.append(
                {
                    **where,
                    **every,
                    **single,
                    "overall": True,
                    **of.mean_row(self.shifts(subject, bench)),
                }
            )
            which = {"filtered": True, "pictured": subject is asked[0], "overall": False}
            rows += [
                {
                    **where,
                    "filter": kind,
                    "cutoff": float(cutoff),
                    **which,
                    **of.row(f"{kind} {cutoff:g}"),
                }
                for kind in FILTERS
                for cutoff in self.cutoffs
            ]
        arrays = {"image": self._pictures(asked[0], bench)}
        return Result(self.name, table(rows, COLUMNS), COLUMNS, _views(bench), arrays)

    def _pictures(self, subject: Subject, bench: Bench) -> np.ndarray:
        """What becomes of the first image."""
        first = next(iter(bench.batches()))
        batch = Batch(first.rows[:1], first.images[:1], first.labels[:1], first.seed)
        seen = [self.shifted(subject, batch, shift)[0] for shift in self.shifts(subject, bench)]
        return np.stack([picture(subject, image) for image in seen])


def picture(subject: Subject, image: Tensor) -> np.ndarray:
    """An image as the model takes it (c, h, w), for the eye: uint8 (h, w, 3)."""
    mean, std = levels(subject, image)
    seen = ((image * std + mean).clamp(0, 1) * 255).round().byte().cpu()
    return np.ascontiguousarray(seen.expand(3, -1, -1).permute(1, 2, 0).numpy())


COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "filter",
        "order",
        "low-pass keeps what is slower than the cut-off, high-pass what is faster.",
    ),
    Column(
        "cutoff",
        "quantity",
        "Where the filter cuts; empty for clean images and for the mean.",
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
            "line",
            x="cutoff",
            y="value",
            colour="model",
            facet="filter",
            low="low",
            high="high",
            limits=(0, 1),
            references=guessing(bench),
            where="filtered",
            title="Accuracy with the slow or the fast waves alone",
            how_to_read="Under low-pass the image gets sharper from left to right; under high-pass it loses its coarse "
            "parts. A model that has much under low-pass at a small cut-off goes by coarse form, one that has much "
            "under high-pass at a large one by fine detail.",
        ),
        View(
            "tiles",
            x="cutoff",
            facet="filter",
            array="image",
            where="pictured",
            title="What the filters leave of an image",
            how_to_read="The first image, as the first model sees it. Above each picture stands the cut-off.",
        ),
    )
