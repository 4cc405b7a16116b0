"""The learned gates of a ConViT: the share σ(λ) of attention that is by position (A4.20)."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import numpy as np

from vitreous.claims.dascoli_2021.book import check
from vitreous.claims.dascoli_2021.readings import gates, head_diversity, lower, upper
from vitreous.claims.effects import Effect, at_least, at_most, less, more, noted
from vitreous.claims.evidence import Query
from vitreous.claims.quantity import Quantity, geometric_mean, spearman

AT_START = 0.73
"""σ(1)."""
IN_USE = 0.1
"""A layer whose mean gate is above this counts as using position."""


@check("CVT-13")
def gates_fall(models: Query) -> Iterator[Effect]:
    """Weight decay alone would lower the gates, so the recipe must not decay them, as in the
    paper."""
    fallen = (gates(models("convit"), "end") < AT_START).mean()
    yield more(
        "share of gated layers whose mean gate ends below 0.73", fallen, 0.5, paper=models.paper
    )


@check("CVT-14")
def upper_layers_drop_position(models: Query) -> Iterator[Effect]:
    convit = models("convit")
    mean, strongest = gates(convit), gates(convit, heads="max")
    order = spearman(mean.map(lambda row: np.arange(len(row))), mean)
    yield less("rank correlation of layer and mean gate", order, matters=0.6)
    high = lower(strongest, 1 / 2).maximum()
    yield at_least(
        "largest gate of a head in the first half of the gated layers", high, 0.5, paper=0.84
    )
    low = upper(mean, 1 / 3).mean()
    yield at_most("mean gate in the last third of the gated layers", low, 0.3, paper=0.0)


@check("CVT-15")
def larger_models_use_position_longer(models: Query) -> Iterator[Effect]:
    """Some gates have to close in training; otherwise all layers of both sizes use position. The
    number of layers is compared between trainings, and layers are not treated as independent, as
    the gates above a closed one are closed as well. So three trainings that agree are certain. If
    differences of -1, 0 and 1 layer are equally likely, chance alone does that in 2 of 27
    studies."""

    def using(size: str | None) -> Quantity:
        return (gates(models("convit", size=size)) > IN_USE).map(np.sum)

    yield more(
        "layers with a mean gate above 0.1, larger size minus smaller",
        using("s") - using(None),
        paper=models.paper,
    )


@check("CVT-16")
def heads_of_layer_two_differ(models: Query) -> Iterator[Effect]:
    """The geometric mean over all gated layers decides. The paper shows layer 2, which is an
    outlier in the DeiTs trained here. A factor of 1.5 matters."""
    convit, deit = head_diversity(models("convit")), head_diversity(models("deit"))
    ratios = convit / deit
    yield more(
        "KL divergence between the heads of a layer, ConViT over DeiT, mean over layers",
        geometric_mean(ratios),
        1.0,
        matters=log(1.5),
    )
    yield noted("the same in layer 2", ratios[1])
