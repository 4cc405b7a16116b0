"""Norms of patch tokens after each unit: the largest, the median, and the share of outliers.

    outlier: norm > cut · median norm of the patch tokens of the same image

Class and register tokens are left out. `neighbours` compares where outliers lie: the mean cosine of
a patch to its four neighbours, right after the patch embedding, of outliers minus other patches
(Darcet et al. 2024, Fig. 5a). Images without outliers have no such number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from vitreous.measure.per_image import PerImage
from vitreous.measure.probe import Batch, Updates
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import Column, Result, View, estimate
from vitreous.results.comparing import mean_by_model, rank_models
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Sites

__all__ = ["TokenNorm"]

MEASURES = ("largest", "median", "ratio", "outliers", "neighbours")


def norms(maps: Tensor) -> Tensor:
    """(b, h*w) norms of the patch tokens of maps (b, c, h, w)."""
    return maps.float().norm(dim=1).flatten(1)


def neighbour_similarity(maps: Tensor) -> Tensor:
    """(b, h*w) mean cosine of every patch to those above, below, left and right of it."""
    maps = maps.float()
    total = torch.zeros_like(maps[:, 0])
    count = torch.zeros_like(total)
    down = cosine_similarity(maps[:, :, 1:], maps[:, :, :-1], dim=1)
    right = cosine_similarity(maps[..., 1:], maps[..., :-1], dim=1)
    for place in (slice(1, None), slice(None, -1)):
        total[:, place] += down
        count[:, place] += 1
        total[..., place] += right
        count[..., place] += 1
    return (total / count).flatten(1)


def describe_norms(norms: Tensor, similarity: Tensor | None, cut: float) -> Tensor:
    """(b, 5) `MEASURES` of every image, from norms and similarities (b, n)."""
    largest = norms.amax(1)
    median = norms.median(1).values
    outlier = norms > cut * median[:, None]
    share = outlier.float().mean(1)
    difference = torch.full_like(share, torch.nan)
    if similarity is not None:
        missing = similarity.new_tensor(torch.nan)
        inside = similarity.where(outlier, missing).nanmean(1)
        difference = inside - similarity.where(~outlier, missing).nanmean(1)
    return torch.stack([largest, median, largest / median, share, difference], 1)


@dataclass
class TokenNorm(PerImage):
    """Norms of patch tokens after each unit."""

    cut: float = 4.0
    """Multiple of the median norm above which a token is an outlier."""

    name = "token_norm"
    sites = ("after",)
    section = Section(
        "representation",
        "Do some tokens have a very large norm?",
        "The norm of patch tokens after each unit. Large ViTs keep global information in a few "
        "patch tokens of very large norm, which makes their attention maps hard to read.",
        "In DINOv2 ViT-g 2.4 % of the patch tokens are outliers, from block 15 of 40 on; models "
        "with register tokens have none (Darcet et al. 2024, Fig. 3, 4 and 7).",
    )
    axes = (
        Column(
            "measure",
            "category",
            "Largest or median norm of an image's patch tokens, their ratio, the share of "
            "outliers, or how much more alike outliers are to their neighbours at the input.",
        ),
    )
    value = estimate("The number, mean over images.", label="norm or share")
    views = (
        View(
            "line",
            x="depth",
            y="value",
            colour="model",
            facet="measure",
            low="low",
            high="high",
            title="Norms of patch tokens",
            how_to_read="Where the share of outliers rises above zero, some tokens have left the "
            "others behind.",
        ),
    )

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        if unit.grid is None:
            return "It has no patch tokens." if unit.kind != "head" else ""
        return "It has a single position." if unit.grid == (1, 1) else None

    def start_shard(self) -> None:
        self._input: Tensor | None = None
        """Similarity of every patch to its neighbours, of the images at hand."""

    def entries(self, subject: Subject, unit: Unit, axis: int, size: int) -> Sequence[Any]:
        return MEASURES

    def values(self, subject: Subject, unit: Unit, sites: Sites) -> Tensor:
        assert sites.after is not None
        maps = sites.after.map
        if unit.kind == "stem":
            self._input = neighbour_similarity(maps)
        found = norms(maps)
        comparable = self._input is not None and self._input.shape == found.shape
        return describe_norms(found, self._input if comparable else None, self.cut)

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Updates:
        self._input = None  # the next model has patches of its own
        return {}

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        shares = result.table[result.table["measure"] == "outliers"]
        yield rank_models(
            mean_by_model(shares),
            "{model} has the most outliers: a share of {} of its patch tokens, mean over units",
            "{model} the fewest: {}",
            "{models} are tied on the share of outliers: {} to {}",
        )
