"""How much a trained ConViT depends on position: embeddings and gates are masked at test time,
without retraining."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.dascoli_2021.book import check
from vitreous.claims.dascoli_2021.readings import lost_without, lost_without_embedding
from vitreous.claims.effects import Effect, more, noted, within
from vitreous.claims.evidence import Query
from vitreous.claims.quantity import Quantity

SMALL = 5.0
"""Points up to which a difference counts as small; the paper has 1.2."""
EARLY = 0.3
"""Share of the gated layers that are early: three of ten."""


@check("CVT-29")
def embedding_matters_less(models: Query) -> Iterator[Effect]:
    convit, deit = (lost_without_embedding(models(model)) for model in ("convit", "deit"))
    yield more(
        "accuracy lost without position embedding, DeiT minus ConViT, in points",
        deit - convit,
        paper=models.paper,
    )
    yield noted("accuracy that DeiT loses without embedding, in points", deit, paper=33.9)
    yield noted("accuracy that ConViT loses without embedding, in points", convit, paper=6.0)


@check("CVT-30")
def late_layers_need_content(models: Query) -> Iterator[Effect]:
    def difference(share: float) -> Quantity:
        convit = models("convit")
        return lost_without(convit, "content", share) - lost_without(convit, "position", share)

    says = (
        "accuracy with position masked minus that with content masked, in points: {} gated layers"
    )
    yield more(says.format("all"), difference(1.0), paper=models.paper)
    yield within(says.format("the first 30 % of the"), difference(EARLY), SMALL, paper=1.2)
    yield noted(says.format("the first half of the"), difference(0.5), paper=18.1)
