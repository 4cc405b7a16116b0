"""KL divergence between the attention of the heads of a layer.

    diversity = mean over pairs of heads g ≠ h, queries and images of  KL(A_g ‖ A_h),   in bits

ConViT's second layer has heads that attend by position and heads that attend by content, while
DeiT's heads attend to much the same. The sums over queries and keys of A_g log A_h for all pairs
are one matrix product. Attention that underflows in float32 counts as the smallest normal number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from vitreous.measure.heads import shared_cross_entropy, why_hidden, without_attention
from vitreous.measure.per_image import PerImage
from vitreous.measure.probe import Batch, Updates
from vitreous.measure.report_section import Section
from vitreous.measure.subject import Subject
from vitreous.results import Reference, Result, depth_view, estimate
from vitreous.results.comparing import mean_by_model, pair_models, rank_models
from vitreous.specimen.anatomy import Unit
from vitreous.specimen.observe import Sites

__all__ = ["HeadDiversity"]


def diversity(crossed: Tensor) -> Tensor:
    """Mean KL (b,) between heads, from their cross entropies (b, heads, heads).

    KL(g ‖ h) = H(g, h) − H(g).
    """
    heads = crossed.shape[-1]
    entropies = crossed.diagonal(dim1=1, dim2=2).sum(1)
    return (crossed.sum((1, 2)) - heads * entropies) / (heads * (heads - 1))


@dataclass
class HeadDiversity(PerImage):
    """KL divergence between heads."""

    name = "head_diversity"
    ids = ("CVT-16",)
    section = Section(
        "attention",
        "Do the heads of a layer attend to different things?",
        "How much the attention of one head differs from that of the others in its layer.",
        order=4,
    )
    sites = ("attention",)
    value = estimate(
        "KL divergence between heads, mean over pairs, queries and images.",
        label="KL",
        measure="bits",
    )
    views = (
        depth_view(
            references=(Reference(0.0, "all heads alike"),),
            title="How much the heads of a layer differ",
            how_to_read="Each point is an attention layer. At zero all of its heads attend to the "
            "same tokens; the higher, the less one head's attention tells about another's.",
        ),
    )

    def unsuited(self, subject: Subject) -> str:
        return without_attention(subject)

    def refuses(self, subject: Subject, unit: Unit) -> str | None:
        if (why := why_hidden(unit)) is not None:
            return why
        return "It has one head only." if unit.heads == 1 else None

    def update(self, subject: Subject, unit: Unit, sites: Sites, batch: Batch) -> Updates:
        if sites.attention is None:  # an edit has removed it
            return {}
        return super().update(subject, unit, sites, batch)

    def values(self, subject: Subject, unit: Unit, sites: Sites) -> Tensor:
        assert sites.attention is not None
        return diversity(shared_cross_entropy(sites.attention.probabilities))

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        yield rank_models(
            mean_by_model(result.table),
            "The heads of {model} differ most from each other, by {} on average",
            "those of {model} least, by {}",
            "{models} are tied on how much heads differ: by {} to {}",
            alone="The heads of a layer of {model} differ by {} on average",
            paired=pair_models(result, result.table),
        )
