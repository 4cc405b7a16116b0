"""Variance of feature maps over positions, after each unit.

    variance = mean over channels of Var_{positions} x[position, channel]

for each image (unbiased, without prefix tokens), not over images. Park and Kim find that attention
lowers it, since it averages, and that MLPs and convolutions raise it. `ratio` is the mean variance
after a unit divided by that of its input.

Deviations are squared in float32, which suffices because each channel's mean is subtracted first. A
variance that can be explained by rounding of this mean counts as zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.measure.per_image import PerImage
from vitreous.measure.probe import Batch, PerImageValues, Updates, estimated, sum_key
from vitreous.measure.report_section import Section
from vitreous.measure.resampling import REPEATS
from vitreous.measure.subject import Subject
from vitreous.results import Column, Reference, Result, View, depth_view, estimate
from vitreous.results.comparing import count_changes
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.layout import Centred
from vitreous.specimen.observe import Feature, Sites

__all__ = ["Variance"]


def variance(maps: Tensor) -> Tensor:
    """Variance over positions, mean over channels, (b,), of feature maps (b, c, h, w)."""
    return Centred.of(maps).variance


@dataclass
class Variance(PerImage):
    """Variance of feature maps over positions."""

    name = "variance"
    ids = ("A4.09", "HDV-34", "HDV-35", "HDV-36")
    section = Section(
        "representation",
        "Which units average over the image?",
        "How much a feature map varies from position to position, after each unit. A unit that "
        "lowers the variance averages; one that raises it makes positions differ.",
        "In a ViT-Ti on CIFAR-100 attention lowers it in 12 of 12 blocks and MLPs raise it in 8 "
        "of 12; a ResNet's rises within stages and falls at downsampling (Park & Kim 2022, Fig. "
        "9).",
        order=2,
        headline=4,
        key=5,
    )
    sites = ("before", "out")
    value = (
        Column(
            "ratio",
            "quantity",
            "Variance after the unit over that of its input.",
            label="after / before",
        ),
        Column("ratio_low", "quantity", "Lower end of the 95 % interval of the ratio."),
        Column("ratio_high", "quantity", "Upper end of the 95 % interval of the ratio."),
        *estimate("Variance over positions, mean over channels and images.", label="variance"),
    )
    views = (
        depth_view(
            log=("y",),
            title="Feature map variance",
            how_to_read="Each point is the stream after a unit. Where the line falls, a unit has "
            "averaged over the image; where it rises, a unit has made positions differ.",
        ),
        View(
            "scatter",
            x="depth",
            y="ratio",
            colour="kind",
            facet="model",
            low="ratio_low",
            high="ratio_high",
            log=("y",),
            references=(Reference(1.0, "no change"),),
            title="What each unit does to the variance",
            how_to_read="Each point is a unit: below one it has averaged, above one it has made "
            "positions differ. In the paper's ViT-Ti on CIFAR-100 all 12 attention units lie below "
            "one, and 8 of the 12 MLPs above.",
        ),
    )

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        if unit.grid is None:
            return "It has no feature map: positions are gone." if unit.kind != "head" else ""
        return "Its feature map is a single position." if unit.grid == (1, 1) else None

    def start_shard(self) -> None:
        self._last: tuple[Tensor, Tensor] | None = None
        """The previous unit's map (often this one's input), and its variance."""

    def values(self, subject: Subject, unit: Unit, sites: Sites) -> Tensor:
        assert sites.out is not None
        return sites.out.centred.variance

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Updates:
        assert sites.out is not None
        before = self._before(unit, sites.before)
        after = self.values(subject, unit, sites)
        self._last = (sites.out.raw, after)
        updates = {sum_key(subject, unit): PerImageValues(after)}
        if before is not None:
            updates[sum_key(subject, unit, "before")] = PerImageValues(before)
        return updates

    def _before(self, unit: Unit, feature: Feature | None) -> Tensor | None:
        """Variance of a unit's input; None for a single position, and for a stem (the image)."""
        if feature is None or feature.grid in (None, (1, 1)) or unit.kind == "stem":
            return None
        if self._last is not None and feature.views(self._last[0]):
            return self._last[1]
        return feature.centred.variance

    def update_output(self, subject: Subject, output: Any, batch: Batch) -> Updates:
        self._last = None
        return {}

    def _rows(
        self, subject: Subject, unit: Unit, sums: Mapping[str, Tensor]
    ) -> Iterator[dict[str, Any]]:
        before, after = (sums.get(sum_key(subject, unit, part)) for part in ("before/sum", "sum"))
        for row in super()._rows(subject, unit, sums):
            ratio = (
                torch.full((1 + REPEATS,), torch.nan)
                if before is None or after is None
                else after / before
            )
            yield {**row, "ratio": estimated(ratio.where(ratio.isfinite(), torch.nan), row["n"])}

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        yield count_changes(
            result.table,
            "ratio_low",
            "ratio_high",
            1.0,
            "lower",
            "the variance of feature maps",
            "raise",
        )
