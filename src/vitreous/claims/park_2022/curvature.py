"""How sharp the loss is, and where it is not convex."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.claim import Part, at_least
from vitreous.claims.evidence import Look
from vitreous.claims.park_2022.book import claim
from vitreous.claims.readings import nep


@claim(
    "HDV-06",
    "Early in training the loss of a ViT is not convex: many of its largest Hessian eigenvalues are negative; almost "
    "none of a ResNet's are.",
    place="Fig. 1c, 4",
    reported="at the end of warm-up 7 % of the eigenvalues of ViT are negative, 0 % of ResNet's",
    study="zoo",
    task="SYN-E",
)
def loss_is_not_convex_early(look: Look) -> Iterator[Part]:
    vit, resnet = (nep(look(model, moment="warmup")) for model in ("vit", "resnet"))
    yield at_least("share of negative eigenvalues, ViT minus ResNet", vit - resnet, 0.02, paper=0.07)
