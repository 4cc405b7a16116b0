"""How much of an image a model can do without: accuracy with patches masked at random (A4.17).

    accuracy(grid, share)   of images cut into grid × grid patches, of which round(share · grid²) are masked

A masked patch has the mean colour of the data the model was trained on. Every image has its own order of patches, drawn
from its number and the seed: a larger share masks what a smaller one does and more, and all models miss the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.data.draws import Draws
from vitreous.errors import VitreousError
from vitreous.measure.analysis import Bench, Found
from vitreous.measure.probe import Batch
from vitreous.measure.robustness.shifts import (
    CLEAN,
    MEASURES,
    Shifted,
    check_shares,
    guessing,
    marks,
    table,
)
from vitreous.measure.subject import Subject
from vitreous.results import Column, Result, View

__all__ = ["Occlusion"]


@dataclass
class Occlusion(Shifted):
    """How much of an image a model can do without."""

    grids: Sequence[int] = (4, 8, 16)
    """Patches along a side."""
    shares: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Of the patches, masked."""

    name = "occlusion"
    ids = ("A4.17",)

    def __post_init__(self) -> None:
        check_shares("Shares of masked patches", self.shares, 0, 1)
        if not self.grids or min(self.grids) < 1 or len(set(self.grids)) < len(self.grids):
            raise VitreousError(
                f"The grids are {list(self.grids)}; name at least one, of one patch or more, none twice."
            )

    def unsuited(self, subject: Subject, bench: Bench) -> str:
        if why := super().unsuited(subject, bench):
            return why
        _, height, width = subject.specimen.anatomy.image
        finest = max(self.grids)
        small = finest > min(height, width)
        return (
            f"Its images of {height}x{width} have no {finest} patches along a side."
            if small
            else ""
        )

    def shifts(self, subject: Subject, bench: Bench) -> Sequence[str]:
        return [f"{grid} {share:g}" for grid in self.grids for share in self.shares]

    def shifted(self, subject: Subject, batch: Batch, shift: str) -> Tensor:
        grid, share = shift.split()
        images = subject.prepare(batch.images)
        size = (int(images.shape[2]), int(images.shape[3]))
        masks = masked(int(grid), float(share), size, batch, images.device)
        return images.masked_fill(masks[:, None], 0.0)

    def answer(self, found: Found, asked: Sequence[Subject], bench: Bench) -> Result:
        rows: list[dict[str, Any]] = []
        for subject in asked:
            of, where = marks(found, subject, bench), {"model": subject.name}
            whole = {"grid": "all", "share": math.nan, "masked": False, "overall": True}
            rows.append({**where, **whole, **of.mean_row(self.shifts(subject, bench))})
            for grid in self.grids:
                which = {"grid": f"{grid} x {grid}", "masked": True, "overall": False}
                rows.append({**where, **which, "share": 0.0, **of.row(CLEAN)})
                rows += [
                    {**where, **which, "share": float(s), **of.row(f"{grid} {s:g}")}
                    for s in self.shares
                ]
        return Result(self.name, table(rows, COLUMNS), COLUMNS, _views(bench))


def masked(
    grid: int, share: float, size: tuple[int, int], batch: Batch, device: torch.device
) -> Tensor:
    """Bool (b, h, w): which pixels are masked."""
    order = Draws(f"occlusion {grid} {batch.seed}", int(batch.rows[0]), len(batch), device).uniform(
        grid * grid
    )
    count = round(share * grid * grid)
    hidden = torch.zeros_like(order, dtype=torch.bool).scatter_(
        1, order.argsort(1)[:, :count], True
    )
    rows, columns = (torch.arange(length, device=device) * grid // length for length in size)
    return hidden.view(-1, grid, grid)[:, rows[:, None], columns]


COLUMNS = (
    Column("model", "category", "The model."),
    Column("grid", "order", "Patches that the image is cut into."),
    Column(
        "share",
        "quantity",
        "Share of the patches that are masked; 0 for clean images.",
        label="share masked",
    ),
    Column("masked", "category", "Whether the row is about one grid and share."),
    Column("overall", "category", "Whether the row is the mean over grids and shares."),
    *MEASURES,
)


def _views(bench: Bench) -> tuple[View, ...]:
    return (
        View(
            "line",
            x="share",
            y="value",
            colour="model",
            facet="grid",
            low="low",
            high="high",
            limits=(0, 1),
            references=guessing(bench),
            where="masked",
            title="Accuracy with patches masked",
            how_to_read="From left to right more of the image is grey. A line that stays high belongs to a model that "
            "puts an image together from what is left; coarse patches hide whole parts, fine ones break up edges.",
        ),
        View(
            "line",
            x="share",
            y="ece",
            colour="model",
            facet="grid",
            low="ece_low",
            high="ece_high",
            where="masked",
            title="Calibration with patches masked",
            how_to_read="The mean gap between confidence and accuracy. Where it grows, a model does not notice that it "
            "sees too little.",
        ),
    )
