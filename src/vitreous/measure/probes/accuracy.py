"""Top-1 and top-5 accuracy, over all images and by class.

    top-k = share of the images whose label is among the k classes with the highest scores

Of equal scores the first class ranks first, as in `argmax`, so that a model with equal scores for
all classes is at chance. Intervals are Wilson's, which have a width even if all answers are right.

Only top-1 over all images has bootstrap replicates. They resample the same images for all models
and all inspections with one seed, so differences between models are paired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from vitreous.measure.probe import Batch, Probe, Sums, sum_key
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject, logits
from vitreous.results import Column, Estimate, Reference, Result, View, estimate, tabulate, wilson
from vitreous.results.comparing import mean_by_model, pair_models, rank_models
from vitreous.results.words import format_percent

__all__ = ["Accuracy"]

EVERY = "all classes"
EXTREMES = 15
RANKED = 101
"""Maximum number of ranks that are drawn; if there are more classes, evenly spaced ranks."""


def rank(scores: Tensor, labels: Tensor) -> Tensor:
    """Rank of the true class (b,), from 0, given scores (b, classes)."""
    true_score = scores.gather(1, labels[:, None])
    earlier = torch.arange(scores.shape[1], device=scores.device) < labels[:, None]
    return ((scores > true_score) | ((scores == true_score) & earlier)).sum(1)


@dataclass
class Accuracy(Probe):
    """Top-1 and top-5 accuracy."""

    name = "accuracy"
    ids = ("A4.01",)
    section = Section(
        "overview",
        "How accurate are they?",
        "The share of images whose most probable class is the true one.",
        order=1,
        headline=1,
    )

    def unsuited(self, subject: Subject) -> str:
        return self.setting.unmarkable(subject)

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Sums:
        scores = logits(output)
        assert scores is not None
        labels = batch.on(scores.device, "labels")
        ranks = rank(scores, labels)
        one_hot = F.one_hot(labels, len(self.setting.data.classes))
        sums = {
            sum_key(subject, what=f"top-{top}"): (one_hot * (ranks < top)[:, None]).sum(0)
            for top in self._tops
        }
        right_and_all = torch.stack([ranks < 1, torch.ones_like(ranks, dtype=torch.bool)], 1)
        return {
            **sums,
            sum_key(subject, what="count"): one_hot.sum(0),
            sum_key(subject, what="drawn"): batch.total(right_and_all),
        }

    @property
    def _tops(self) -> tuple[int, ...]:
        return (1, 5) if len(self.setting.data.classes) > 5 else (1,)

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        columns: tuple[Column, ...] = (
            Column("model", "category", "The model."),
            Column(
                "measure",
                "category",
                "`top-1`: the label has the highest score; `top-5`: one of the five highest.",
            ),
            Column("class", "order", f"The class, or `{EVERY}`."),
            *estimate("Share of images classified correctly.", label="accuracy"),
        )
        table, replicates = tabulate(
            [row for subject in subjects for row in self._rows(subject, sums)], columns
        )
        table["overall"] = table["class"] == EVERY
        class_count = _add_ranks(table)
        columns += (
            Column("overall", "category", "Whether the row is about all classes."),
            Column(
                "extreme",
                "category",
                f"Whether the class is one of the {EXTREMES} hardest or {EXTREMES} easiest.",
            ),
            Column(
                "rank",
                "quantity",
                "Share of the classes on which the model is less accurate.",
                "%",
                "classes, from the hardest to the easiest",
            ),
            Column(
                "ranked",
                "category",
                f"Whether the row is drawn by rank: where classes are more than {2 * EXTREMES}.",
            ),
        )
        highest = float(table.loc[table["overall"], "high"].max())
        views = _views(len(self.setting.data.classes), class_count, highest)
        return Result(self.name, table, columns, views, replicates=replicates)

    def _rows(self, subject: Subject, sums: Mapping[str, Tensor]) -> Iterator[dict[str, Any]]:
        count = sums[sum_key(subject, what="count")].numpy()
        right = {top: sums[sum_key(subject, what=f"top-{top}")].numpy() for top in self._tops}
        for top in self._tops:
            row = _row(subject, f"top-{top}", EVERY, right[top].sum(), count.sum())
            if top == 1:
                resampled = sums[sum_key(subject, what="drawn")].numpy()
                row["value"] = _with_replicates(row, resampled)
            yield row
        for number in np.flatnonzero(count):
            yield _row(
                subject, "top-1", self.setting.data.classes[number], right[1][number], count[number]
            )

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        rows = result.table[result.table["overall"] & (result.table["measure"] == "top-1")]
        yield rank_models(
            mean_by_model(rows),
            "{model} [has|have] the highest accuracy, {}",
            "{model} the lowest, {}",
            "{models} are tied on accuracy, with {} to {} of the images right",
            format_percent,
            alone="{model} has {} of the images right",
            paired=pair_models(result, rows, share=True),
        )


def _add_ranks(table: pd.DataFrame) -> int:
    """Add columns on how hard each class is; return the number of classes."""
    rows = table[~table["overall"]]
    means = rows.groupby("class", sort=False)["value"].mean().sort_values(kind="stable")
    table["extreme"] = table["class"].isin([*means.index[:EXTREMES], *means.index[-EXTREMES:]])
    order = rows.groupby("model", sort=False)["value"].rank(method="first") - 1
    last = max(len(means) - 1, 1)
    table["rank"] = (100 * order / last).reindex(table.index)
    drawn_ranks = np.unique(np.linspace(0, max(len(means) - 1, 0), RANKED).round())
    table["ranked"] = order.reindex(table.index).isin(drawn_ranks)
    return len(means)


def _with_replicates(row: Mapping[str, Any], resampled: np.ndarray) -> Estimate:
    """The value of a row with its replicates.

    `resampled` (1 + REPEATS, 2) holds the weighted number of right answers and of images.
    """
    with np.errstate(invalid="ignore"):
        replicates = resampled[1:, 0] / resampled[1:, 1]
        return Estimate(row["value"], row["low"], row["high"], replicates)


def _row(subject: Subject, measure: str, name: str, right: Any, count: Any) -> dict[str, Any]:
    ends = dict(zip(("value", "low", "high"), map(float, wilson(right, count)), strict=True))
    return {"model": subject.name, "measure": measure, "class": name, **ends, "n": int(count)}


def _views(classes: int, class_count: int, highest: float) -> tuple[View, ...]:
    """Return the views; if all accuracies are low, the axis of the bars ends below 1."""
    overall: tuple[View, ...] = (
        View(
            "bar",
            x="model",
            y="value",
            colour="measure",
            low="low",
            high="high",
            limits=(0, 1) if highest > 0.3 else None,
            references=(Reference(1 / classes, "guessing"),),
            where="overall",
            title="Accuracy",
            how_to_read="The height of a bar is the share of the images that a model has right; "
            "top-5 counts an image if the right class is among the model's first five. The "
            "whiskers are the 95 % interval over images.",
        ),
    )
    cells = View(
        "heatmap",
        x="model",
        y="class",
        colour="value",
        where="extreme",
        zoomed=True,
        sort="value",
        title="Accuracy by class",
        how_to_read="Each cell is the share of a class's images that a model has right, from the "
        "easiest class at the top to the hardest at the bottom. Colours cover the range of these "
        "numbers only.",
    )
    if class_count <= 2 * EXTREMES:
        return (*overall, cells)
    ranks = View(
        "line",
        x="rank",
        y="value",
        colour="model",
        where="ranked",
        zoomed=True,
        tooltip=("model", "class", "value", "n"),
        title=f"Accuracy on each of {class_count:,} classes",
        how_to_read="For each model the classes are sorted by its accuracy on them. Where a line "
        "begins low, a model has classes that it hardly knows.",
    )
    title = f"Accuracy of the {EXTREMES} easiest and the {EXTREMES} hardest classes"
    return (*overall, ranks, replace(cells, title=title))
