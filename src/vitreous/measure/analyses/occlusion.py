"""How much of an image a model can do without: accuracy with patches masked at random.

    accuracy(grid, share)   of images of grid × grid patches, round(share · grid²) of them masked

A masked patch gets the mean colour of the model's training data. Each image has its own random
order of patches, drawn from its number and the seed: a larger share masks all that a smaller one
does, and all models miss the same patches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.data.random_streams import RandomStreams
from vitreous.errors import VitreousError
from vitreous.measure.analysis import Bench, PieceNumbers
from vitreous.measure.probe import Batch
from vitreous.measure.report_section import Section
from vitreous.measure.robustness.shifts import (
    CLEAN,
    MEASURES,
    ShiftAnalysis,
    ShiftScores,
    chance_level,
    check_options,
    rank_by_mean_accuracy,
)
from vitreous.measure.subject import Subject
from vitreous.results import Column, Result, View, tabulate

__all__ = ["Occlusion"]


@dataclass
class Occlusion(ShiftAnalysis):
    """Accuracy with patches of the image masked."""

    grids: Sequence[int] = (4, 8, 16)
    """Numbers of patches along a side of the image."""
    shares: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Shares of the patches to mask."""

    name = "occlusion"
    ids = ("A4.17",)
    section = Section(
        "robustness",
        "How much of the image can be missing?",
        "Patches are masked at random, more and more of them, coarse and fine; all models miss "
        "the same ones.",
        order=6,
    )

    def __post_init__(self) -> None:
        check_options("Shares of masked patches", self.shares, 0, 1)
        if not self.grids or min(self.grids) < 1 or len(set(self.grids)) < len(self.grids):
            raise VitreousError(
                f"The grids are {list(self.grids)}; name at least one, of one patch or more, "
                "none twice."
            )

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if why := super().unsuited(subject, bench):
            return why
        _, height, width = subject.specimen.anatomy.image
        finest = max(self.grids)
        if finest > min(height, width):
            return f"Its images of {height}x{width} have no {finest} patches along a side."
        return ""

    def shifts(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [f"{grid} {share:g}" for grid in self.grids for share in self.shares]

    def shift_images(self, subject: Subject, batch: Batch, shift: str) -> Tensor:
        grid, share = shift.split()
        images = subject.prepare(batch.images)
        size = (int(images.shape[2]), int(images.shape[3]))
        masks = patch_masks(int(grid), float(share), size, batch, images.device)
        return images.masked_fill(masks[:, None], 0.0)

    def answer(self, computed: PieceNumbers, subjects: Sequence[Subject], bench: Bench) -> Result:
        rows: list[dict[str, Any]] = []
        for subject in subjects:
            scores, model = ShiftScores(computed[subject.name], bench), {"model": subject.name}
            overall = {"grid": "all", "share": math.nan, "masked": False, "overall": True}
            rows.append({**model, **overall, **scores.mean_row(self.shifts(subject, bench))})
            for grid in self.grids:
                which = {**model, "grid": f"{grid} x {grid}", "masked": True, "overall": False}
                rows.append({**which, "share": 0.0, **scores.row(CLEAN)})
                for share in self.shares:
                    values = scores.row(f"{grid} {share:g}")
                    rows.append({**which, "share": float(share), **values})
        table, replicates = tabulate(rows, COLUMNS)
        return Result(self.name, table, COLUMNS, _views(bench), replicates=replicates)

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        yield rank_by_mean_accuracy(result, "masked patches")


def patch_masks(
    grid: int, share: float, size: tuple[int, int], batch: Batch, device: torch.device
) -> Tensor:
    """Return which pixels are masked, bool (b, h, w)."""
    draws = RandomStreams(f"occlusion {grid} {batch.seed}", int(batch.rows[0]), len(batch), device)
    order = draws.uniform(grid * grid)
    first = order.argsort(1)[:, : round(share * grid * grid)]
    hidden = torch.zeros_like(order, dtype=torch.bool).scatter_(1, first, True)
    rows, columns = (torch.arange(length, device=device) * grid // length for length in size)
    return hidden.view(-1, grid, grid)[:, rows[:, None], columns]


COLUMNS = (
    Column("model", "category", "The model."),
    Column("grid", "order", "Grid of patches, as `4 x 4`, or `all` for the mean."),
    Column(
        "share", "quantity", "Share of masked patches; 0 for clean images.", label="share masked"
    ),
    Column("masked", "category", "Whether the row is about one grid and share."),
    Column("overall", "category", "Whether the row is the mean over grids and shares."),
    *MEASURES,
)


def _views(bench: Bench) -> tuple[View, ...]:
    lines: dict[str, Any] = {"x": "share", "colour": "model", "facet": "grid", "where": "masked"}
    return (
        View(
            "line", y="value", low="low", high="high", limits=(0, 1),
            references=chance_level(bench),
            title="Accuracy with patches masked",
            how_to_read="More of the image is grey from left to right. A line that stays high "
            "belongs to a model that recognises an image by what is left. Coarse patches hide "
            "whole parts, fine ones break up edges.",
            **lines,
        ),
        View(
            "line", y="ece", low="ece_low", high="ece_high",
            title="Calibration with patches masked",
            how_to_read="Mean gap between confidence and accuracy. Where it grows, the model stays "
            "confident although it sees too little.",
            **lines,
        ),
    )  # fmt: skip
