"""Norm of the skip connection relative to the norm of the branch, for each unit.

    value  = mean over tokens of  ‖skip‖ / ‖branch‖          for every unit around which a skip runs
    cosine = mean over tokens of  cos(skip, branch)

Each image has one value for its class token and one for its spatial tokens (in a convolutional
network: positions), and the mean over images is reported. Raghu et al. find that in the first half
of a ViT the class token travels along the skips and the spatial tokens change, later the other way
round, and that skips matter more in ViTs than in ResNets. A skip that has to change its shape
counts as what arrives at the sum.

A token to which the branch adds exactly nothing has no ratio and is left out of the mean; one whose
skip is zero has no cosine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.measure.per_image import mean_over_images
from vitreous.measure.probe import Batch, PerImageValues, Probe, Updates, sum_key, where
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import UNIT_COLUMNS, Column, Reference, Result, depth_view, estimate, tabulate
from vitreous.results.comparing import bold, mean_by_model, pair_models, rank_models
from vitreous.results.words import join_words
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Sites

__all__ = ["SkipRatio"]


def ratio_and_cosine(skip: Tensor, branch: Tensor) -> tuple[Tensor, Tensor]:
    """Of tokens (b, n, c): (b, n) each, NaN where there is none."""
    exact = torch.promote_types(skip.dtype, torch.float32)
    past, through = (tokens.to(exact) for tokens in (skip, branch))
    one, other = (torch.linalg.vector_norm(tokens, dim=-1) for tokens in (past, through))
    product = torch.linalg.vecdot(past, through)
    return (one / other).where(other > 0, torch.nan), (product / (one * other)).where(
        one * other > 0, torch.nan
    )


@dataclass
class SkipRatio(Probe):
    """Norm of the skip over norm of the branch."""

    name = "skip_ratio"
    ids = ("A4.21", "SLC-14", "SLC-15", "SLC-16")
    section = Section(
        "representation",
        "Does the signal take the skip or the branch?",
        "The norm of the skip connection over the norm of what the branch adds to it, for each "
        "token.",
        "In a ViT-B/16 skips carry the class token in the first half (ratios of 2 to 12) and "
        "branches in the second; for the other tokens it is the reverse (Raghu et al. 2021, Fig. "
        "7).",
        order=3,
    )
    sites = ("skip", "branch")
    columns = (
        *UNIT_COLUMNS,
        Column(
            "token",
            "category",
            "Which tokens: `class` (or another prefix token), or `spatial`.",
        ),
        Column(
            "cosine",
            "quantity",
            "Cosine of the angle between skip and branch, mean over tokens and images.",
        ),
        Column("cosine_low", "quantity", "Lower end of the 95 % interval of the cosine."),
        Column("cosine_high", "quantity", "Upper end of the 95 % interval of the cosine."),
        *estimate(
            "Norm of the skip over norm of the branch, mean over tokens and images.",
            label="skip / branch",
        ),
    )
    views = (
        depth_view(
            facet="token",
            log=("y",),
            references=(Reference(1.0, "skip and branch alike"),),
            title="What carries the signal: skip over branch",
            how_to_read="Above one, tokens mostly pass the unit by on its skip; below one, the "
            "unit writes them anew. In the paper the class token of ViTs is passed on first and "
            "rewritten late, spatial tokens the reverse.",
        ),
        depth_view(
            "cosine",
            facet="token",
            references=(Reference(0.0, "at right angles"),),
            title="Does the branch agree with the skip?",
            how_to_read="Above zero a unit strengthens what the token already holds, below zero "
            "it takes some of it away. At zero it adds something new.",
        ),
    )

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        if unit.skip:
            return None
        return (
            ""
            if unit.kind in ("stem", "downsample", "head")
            else "No skip connection runs around it."
        )

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Updates:
        if sites.skip is None or sites.branch is None:  # taken out by a lesion
            return {}
        found = ratio_and_cosine(sites.skip.tokens, sites.branch.tokens)
        names = sites.branch.prefix
        seen: dict[str, PerImageValues] = {}
        for token in dict.fromkeys([*names, "spatial"]):
            places = [i for i, name in enumerate(names) if name == token]
            for what, values in zip(("ratio", "cosine"), found, strict=True):
                # an index made here would be one more transfer to a GPU, which waits for it
                chosen = (
                    values[:, len(names) :]
                    if token == "spatial"
                    else torch.stack([values[:, i] for i in places], 1)
                )
                if chosen.numel():
                    seen[sum_key(subject, unit, f"{token}/{what}")] = PerImageValues(
                        chosen.nanmean(1)
                    )
        return seen

    def answer(self, sums: Mapping[str, Tensor], subjects: Sequence[Subject]) -> Result:
        rows = [
            row
            for subject in subjects
            for unit in subject.specimen.units
            for row in self._rows(subject, unit, sums)
        ]
        table, replicates = tabulate(rows, self.columns)
        return Result(self.name, table, self.columns, self.views, replicates=replicates)

    def _rows(
        self, subject: Subject, unit: Unit, sums: Mapping[str, Tensor]
    ) -> Iterator[dict[str, Any]]:
        start, end = f"{sum_key(subject, unit)}/", "/ratio/sum"
        found = (
            name[len(start) : -len(end)]
            for name in sums
            if name.startswith(start) and name.endswith(end)
        )
        for token in sorted(found):
            ratio, count = mean_over_images(sums, sum_key(subject, unit, f"{token}/ratio"))
            cosine, _ = mean_over_images(sums, sum_key(subject, unit, f"{token}/cosine"))
            yield {
                **where(subject, unit),
                "token": token,
                "cosine": cosine,
                "value": ratio,
                "n": int(count),
            }

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        spatial = result.table[result.table["token"] == "spatial"]
        rows = spatial if len(spatial) else result.table
        yield rank_models(
            mean_by_model(rows),
            "Skips carry most in {model}: {} times what branches add, mean over units",
            "least in {model}: {} times",
            "{models} are tied on how much skips carry: {} to {} times what branches add",
            alone="In {model}, skips carry {} times what branches add, mean over units",
            paired=pair_models(result, rows),
        )
        known = result.table.dropna(subset="value")
        silent = [
            bold(each) for each in result.table["model"].unique() if each not in set(known["model"])
        ]
        if silent:
            yield (
                f"Branches of {join_words(silent)} add nothing to their skips, so there is no "
                "ratio: before training, many residual networks scale their branches by zero."
            )
