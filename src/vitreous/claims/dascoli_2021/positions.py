"""What a trained ConViT still needs of position: embeddings and gates masked in the test, nothing trained again."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.claim import Part, at_least, more, near, no_less, noted
from vitreous.claims.dascoli_2021.book import claim
from vitreous.claims.dascoli_2021.readings import lost_without, lost_without_embedding
from vitreous.claims.evidence import Look
from vitreous.claims.measure import Measure

SMALL = 5.0
"""Points; the catalogue says small, and the paper has 1.2."""
EARLY = 0.3
"""Three of ten gated layers."""


@claim(
    "CVT-29",
    "A ConViT relies less on absolute position embedding than a DeiT.",
    place="Table 5",
    reported="embedding masked in the test: DeiT-Ti falls from 72.2 to 38.3 %, ConViT-Ti from 73.1 to 67.1 %",
    study="convit",
    task="SYN-B",
    large=True,
)
def embedding_matters_less(look: Look) -> Iterator[Part]:
    """Three times the drop is asked as a difference, and of a DeiT that has something to lose: a point."""
    convit, deit = (lost_without_embedding(look(model)) for model in ("convit", "deit"))
    yield at_least("accuracy that DeiT loses without embedding, in points", deit, 1.0, paper=33.9)
    difference = deit - 3 * convit
    yield no_less(
        "loss of DeiT minus three times that of ConViT, in points", difference, paper=15.9
    )
    yield noted("accuracy that ConViT loses without embedding, in points", convit, paper=6.0)


@claim(
    "CVT-30",
    "The first gated layers of a ConViT use position as much as content; taken together all of them need content more.",
    place="Table 6",
    reported="ConViT-Ti, first 3, 5 and 10 layers: 62.3, 35.0 and 1.3 % with content masked, 63.5, 53.1 and 46.8 % "
    "with position masked, 73.1 % with neither",
    study="convit",
    task="SYN-B",
    large=True,
)
def late_layers_need_content(look: Look) -> Iterator[Part]:
    def difference(share: float) -> Measure:
        convit = look("convit")
        return lost_without(convit, "content", share) - lost_without(convit, "position", share)

    says = (
        "accuracy with position masked minus that with content masked, in points: {} gated layers"
    )
    yield more(says.format("all"), difference(1.0), paper=45.5)
    yield from near(says.format("the first 30 % of the"), difference(EARLY), SMALL, paper=1.2)
    yield noted(says.format("the first half of the"), difference(0.5), paper=18.1)
