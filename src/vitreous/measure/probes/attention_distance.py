"""Mean attention distance of each head, in pixels.

    distance = 1/N Σ_i Σ_j A_ij ‖p_i − p_j‖,   p the middles of the patches in the image

for every head, mean over images. Rows of A sum to one, so the sum is divided by the N queries and
not by N² pairs: uniform attention has the mean distance of all pairs. Tokens without a position
(class, registers, padding) are left out, as queries and as keys, and each remaining row is scaled
to sum to one. With `renormalise=False` rows are not scaled, as if such tokens were at distance
zero. Published code does that; heads that attend to the class token then seem local. The column
`elsewhere` is the share of attention to such tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from vitreous.measure.heads import PerHead, mean_distance
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import Column, Reference, Result, View, estimate
from vitreous.results.comparing import mean_by_model, pair_models, rank_models
from vitreous.results.words import format_estimate
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import AttentionMap

__all__ = ["AttentionDistance"]


@dataclass
class AttentionDistance(PerHead):
    """Mean attention distance of heads, in pixels."""

    renormalise: bool = True
    """Scale the attention that a query gives to patches so that it sums to one. `False` counts
    tokens without a position as distance zero, as published code does."""

    name = "attention_distance"
    ids = ("A4.18", "SLC-09", "SLC-10", "VIT-13", "X-07")
    section = Section(
        "attention",
        "How far do heads attend?",
        "The mean distance, in pixels of the image, between a patch and what it attends to, for "
        "each head.",
        "Low layers have heads that attend near and heads that attend far, high layers attend "
        "globally (Dosovitskiy et al. 2021, Fig. 7; Raghu et al. 2021, Fig. 3).",
        order=1,
        headline=3,
        key=2,
    )
    value = estimate(
        "Attention-weighted distance, mean over queries and images.",
        label="distance",
        measure="pixels",
    )
    extra = (
        Column(
            "elsewhere",
            "quantity",
            "Share of attention that goes to tokens without a position, such as the class token.",
        ),
    )
    views: ClassVar[tuple[View, ...]] = (
        View(
            "scatter",
            x="depth",
            y="value",
            colour="model",
            low="low",
            high="high",
            bands=True,
            title="Attention distance of every head",
            how_to_read="Each point is a head: how far it attends on average. At the dashed line a "
            "head attends to the whole image alike; far below it, only close by.",
        ),
        View(
            "line",
            x="rank",
            y="value",
            colour="depth",
            facet="model",
            title="Heads of each layer, from the most local to the most global",
            how_to_read="Each line is a layer, its heads sorted by distance. A steep line is a "
            "layer that has local and global heads side by side.",
        ),
        View(
            "scatter",
            x="depth",
            y="relative",
            colour="model",
            bands=True,
            references=(Reference(1.0, "uniform attention"),),
            title="Distance relative to uniform attention",
            how_to_read="The same with every unit compared with uniform attention over the keys "
            "it can reach, so that windows and images of other sizes can be compared. Below 1 a "
            "head prefers what is close.",
        ),
    )

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        if (why := super().refuses(subject, unit)) is not None:
            return why
        if unit.reach == "class":
            return "Only tokens without a place look here; there is nothing to measure from."
        return "Its feature map is a single position." if unit.grid == (1, 1) else None

    def extent(self, subject: Subject, attention: AttentionMap) -> tuple[float, float]:
        """Height and width that the grid covers: those of the image, so distances are in pixels."""
        _, height, width = subject.specimen.anatomy.image
        return height, width

    def measures(self, subject: Subject, unit: Unit, attention: AttentionMap) -> dict[str, Tensor]:
        geometry = self.geometry(subject, unit, attention, self.extent(subject, attention))
        value, elsewhere = mean_distance(geometry, attention.values, self.renormalise)
        return {"value": value, "elsewhere": elsewhere}

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        layers = result.table.drop_duplicates(["model", "unit"])
        distances = mean_by_model(layers, ("mean", "mean_low", "mean_high"))
        relative = result.table.groupby("model", sort=False, observed=True)["relative"].mean()
        texts = {}
        for model, mean in distances.items():
            share = f"{100 * relative[model]:.0f}\u00a0% of uniform attention"
            distance = format_estimate(*mean, cls.value[0].measure)
            has_ends = distance.endswith(")")
            texts[mean.mean] = f"{distance[:-1]}; {share})" if has_ends else f"{distance} ({share})"
        yield rank_models(
            distances,
            "{model} [attends|attend] farthest, on average {}",
            "{model} nearest, {}",
            "{models} are tied on how far they attend: {} to {}",
            lambda mean, low, high: texts[mean],
            alone="{model} attends over a mean distance of {}",
            paired=pair_models(result, layers, "mean"),
        )
