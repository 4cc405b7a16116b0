"""What gates of a ConViT learn: the share σ(λ) of attention that is by position (A4.20)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, at_most, no_less
from vitreous.claims.dascoli_2021.book import claim
from vitreous.claims.dascoli_2021.readings import gates, head_diversity, lower, upper
from vitreous.claims.evidence import Look
from vitreous.claims.measure import Measure, spearman

AT_START = 0.73
"""σ(1)."""
IN_USE = 0.1
"""A mean gate above this uses position."""


@claim(
    "CVT-13",
    "While a ConViT learns, its heads turn from position to content in every gated layer.",
    place="Fig. 6",
    reported="the mean gate falls from σ(1) = 0.73 in every layer",
    study="convit",
    task="SYN-B",
)
def gates_fall(look: Look) -> Iterator[Part]:
    fallen = (gates(look("convit"), "end") < AT_START).mean()
    yield at_least("share of gated layers whose mean gate ends below 0.73", fallen, 0.8, paper=1.0)


@claim(
    "CVT-14",
    "In the end the upper gated layers attend by content alone; in the lower ones some heads still attend by position.",
    place="Fig. 6, 17",
    reported="ConViT-S: gates of layers 6 to 10 fall to 0; in layer 4 heads of 0.82 to 0.84, in layer 10 all 0.00",
    study="convit",
)
def upper_layers_drop_position(look: Look) -> Iterator[Part]:
    """In the last third 0.3 would be asked of 300 epochs; trainings on CIFAR are shorter, so it is 0.5."""
    convit = look("convit")
    mean, strongest = gates(convit), gates(convit, heads="max")
    order = spearman(mean.map(lambda row: np.arange(len(row))), mean)
    yield at_most("rank correlation of layer and mean gate", order, -0.6)
    high = lower(strongest, 1 / 2).most()
    yield at_least(
        "largest gate of a head in the first half of the gated layers", high, 0.5, paper=0.84
    )
    low = upper(mean, 1 / 3).mean()
    yield at_most("mean gate in the last third of the gated layers", low, 0.5, paper=0.0)


@claim(
    "CVT-15",
    "Larger ConViTs use position in more layers.",
    place="Fig. 14",
    reported="layers that use position: 4 in Ti, 5 in S, 6 in B",
    study="convit",
    large=True,
)
def larger_models_use_position_longer(look: Look) -> Iterator[Part]:
    def using(size: str | None) -> Measure:
        return (gates(look("convit", size=size)) > IN_USE).map(np.sum)

    difference = using("s") - using(None)
    yield no_less(
        "layers with a mean gate above 0.1, larger size minus smaller", difference, paper=1.0
    )


@claim(
    "CVT-16",
    "In the second layer of a ConViT heads look at different things; in a DeiT they look alike.",
    place="Fig. 7, 16",
    reported="ConViT-Ti has gates of 0.00, 0.09, 0.51 and 0.73 in layer 2, and maps to match; DeiT's maps are alike",
    study="convit",
    task="SYN-B",
)
def heads_of_layer_two_differ(look: Look) -> Iterator[Part]:
    ratio = head_diversity(look("convit"))[1] / head_diversity(look("deit"))[1]
    yield at_least(
        "KL divergence between the heads of layer 2, ConViT over DeiT", ratio, 1.5, versus=1.0
    )
