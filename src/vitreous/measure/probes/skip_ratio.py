"""Norm of the skip connection relative to the norm of the branch, for each unit.

    value  = mean over tokens of  ‖skip‖ / ‖branch‖          for every unit around which a skip runs
    cosine = mean over tokens of  cos(skip, branch)

Each image has one value for its class token and one for its spatial tokens (positions of a
convolutional network); the result is the mean over images. Raghu et al. find that in the first half
of a ViT the class token is carried by the skips and spatial tokens change, and later the other way
round, and that skips matter more in ViTs than in ResNets. If the skip has a projection, its output
counts.

Tokens whose branch is exactly zero have no ratio and are left out of the mean; those whose skip is
zero have no cosine.
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
    """Ratio of norms, and cosine, of the tokens (b, n, c) of skip and branch; (b, n) each.

    NaN if a norm is zero.
    """
    dtype = torch.promote_types(skip.dtype, torch.float32)
    skip, branch = skip.to(dtype), branch.to(dtype)
    skip_norm = torch.linalg.vector_norm(skip, dim=-1)
    branch_norm = torch.linalg.vector_norm(branch, dim=-1)
    norms = skip_norm * branch_norm
    ratio = (skip_norm / branch_norm).where(branch_norm > 0, torch.nan)
    cosine = (torch.linalg.vecdot(skip, branch) / norms).where(norms > 0, torch.nan)
    return ratio, cosine


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
        if sites.skip is None or sites.branch is None:  # removed by a lesion
            return {}
        ratio, cosine = ratio_and_cosine(sites.skip.tokens, sites.branch.tokens)
        prefix = sites.branch.prefix
        updates: dict[str, PerImageValues] = {}
        for token in dict.fromkeys([*prefix, "spatial"]):
            for what, values in (("ratio", ratio), ("cosine", cosine)):
                if token == "spatial":
                    chosen = values[:, len(prefix) :]
                else:
                    # not by an index tensor, because sending it to a GPU makes the GPU wait
                    columns = [values[:, i] for i, name in enumerate(prefix) if name == token]
                    chosen = torch.stack(columns, 1)
                if chosen.numel():
                    key = sum_key(subject, unit, f"{token}/{what}")
                    updates[key] = PerImageValues(chosen.nanmean(1))
        return updates

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
        tokens = (
            name[len(start) : -len(end)]
            for name in sums
            if name.startswith(start) and name.endswith(end)
        )
        for token in sorted(tokens):
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
        measured = set(result.table.dropna(subset="value")["model"])
        without = [bold(m) for m in result.table["model"].unique() if m not in measured]
        if without:
            yield (
                f"Branches of {join_words(without)} add nothing to their skips, so there is no "
                "ratio: before training, many residual networks scale their branches by zero."
            )
