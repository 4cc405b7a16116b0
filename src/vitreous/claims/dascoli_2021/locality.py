"""How far attention looks while it learns, in patches (A4.19).

The paper's curves may come from its published logger, which gives every layer the bare patch embedding (X-22). Claims
are judged by what layers really see; what the logger would show is noted beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, at_most, less, more, noted
from vitreous.claims.dascoli_2021.book import claim
from vitreous.claims.dascoli_2021.readings import (
    as_deep_as,
    gates,
    mean_nonlocality,
    nonlocality,
    upper_nonlocality,
)
from vitreous.claims.evidence import Look, Seen
from vitreous.claims.measure import Measure, spearman

LOGGED = "as the published logger reads it: "
FALL = 0.97
"""Of what it was: a fall of 3 %."""


def growing(convit: Seen, reading: str) -> Measure:
    """Share of gated layers whose nonlocality is larger at the end than before training."""
    start, end = (nonlocality(convit, when, reading, gated=True) for when in ("start", "end"))
    return (end > start).mean()


@claim(
    "CVT-08",
    "In the first epochs attention of a DeiT becomes more local in all layers.",
    place="Fig. 5, left",
    reported="nonlocality falls from 7.3 patches, that of uniform attention on 14 x 14, in every layer",
    study="convit",
    task="SYN-B",
)
def deit_becomes_local_first(look: Look) -> Iterator[Part]:
    def falling(reading: str) -> Measure:
        start, early = (nonlocality(look("deit"), when, reading) for when in ("start", "early"))
        return (early < start * FALL).mean()

    says = "share of layers whose nonlocality falls by more than 3 % within five epochs"
    yield at_least(says, falling("true"), 0.8, paper=1.0)
    yield noted(LOGGED + says, falling("official"))


@claim(
    "CVT-09",
    "Later in training the lower layers of a DeiT stay local, and the upper layers look far again.",
    place="Fig. 5, left",
    reported="curves of the lower layers stay down, those of the upper layers climb back",
    study="convit",
    task="SYN-B",
)
def upper_layers_look_far_again(look: Look) -> Iterator[Part]:
    def order(reading: str) -> Measure:
        end = nonlocality(look("deit"), "end", reading)
        return spearman(end.map(lambda row: np.arange(len(row))), end)

    def climb(reading: str) -> Measure:
        end, least = (upper_nonlocality(look("deit"), when, reading) for when in ("end", "least"))
        return end - least

    ordered, climbed = (
        "rank correlation of layer and nonlocality at the end",
        "nonlocality of the upper third of the layers at the end minus its least, in patches",
    )
    yield at_least(ordered, order("true"), 0.6)
    yield more(climbed, climb("true"))
    yield noted(LOGGED + ordered, order("official"))
    yield noted(LOGGED + climbed, climb("official"))


@claim(
    "CVT-10",
    "While a ConViT learns, attention of its gated layers becomes less local: they leave the convolution behind.",
    place="Fig. 5, right",
    reported="nonlocality grows in all gated layers, from 2.9 patches in ConViT-S",
    study="convit",
    task="SYN-B",
)
def gated_layers_escape(look: Look) -> Iterator[Part]:
    convit = look("convit")
    says = "share of gated layers whose nonlocality is larger at the end than before training"
    yield at_least(says, growing(convit, "true"), 0.8, paper=1.0)
    yield noted(LOGGED + says, growing(convit, "official"))
    start = nonlocality(convit, "start", gated=True).mean()
    yield noted(
        "nonlocality of gated layers before training, in patches (4 heads on 8 x 8 patches: 1.80)",
        start,
    )


@claim(
    "CVT-11",
    "In the end the gated layers of a ConViT are still more local than the same layers of a DeiT.",
    place="Fig. 5",
    reported="the curves of ConViT end below those of DeiT",
    study="convit",
    task="SYN-B",
)
def convit_stays_more_local(look: Look) -> Iterator[Part]:
    def difference(reading: str) -> Measure:
        convit = nonlocality(look("convit"), "end", reading, gated=True)
        return convit.mean() - as_deep_as(nonlocality(look("deit"), "end", reading), convit).mean()

    says = "nonlocality of the gated layers at the end, ConViT minus DeiT, in patches"
    yield less(says, difference("true"))
    yield noted(LOGGED + says, difference("official"))


@claim(
    "CVT-12",
    "In the end the first layer of a ConViT looks farther than the second, and the layers after the first are the most "
    "local ones.",
    place="Fig. 5, right",
    reported="the first and the last gated layers escape most, the second stays the most local",
    study="convit",
)
def second_layer_stays_most_local(look: Look) -> Iterator[Part]:
    end, logged = (
        nonlocality(look("convit"), "end", reading, gated=True) for reading in ("true", "official")
    )
    says = "nonlocality of the first gated layer minus that of the second, in patches"
    where = "the most local gated layer, counted from 1"
    most_local = end.map(np.argmin) + 1
    yield more(says, end[0] - end[1])
    yield at_least(where, most_local, 2, paper=2)
    yield at_most(where, most_local, 4, paper=2)
    yield noted(LOGGED + says, logged[0] - logged[1])
    yield noted(LOGGED + where, logged.map(np.argmin) + 1)


@claim(
    "CVT-31",
    "Distillation from a CNN makes a DeiT more local.",
    place="Fig. 10",
    reported="the curves of distilled DeiT lie below those of plain DeiT",
    study="convit",
)
def distillation_makes_local(look: Look) -> Iterator[Part]:
    difference = mean_nonlocality(look("deit", distilled=True)) - mean_nonlocality(look("deit"))
    yield less(
        "mean nonlocality at the end, distilled DeiT minus plain DeiT, in patches", difference
    )


@claim(
    "CVT-34",
    "All gated layers of a ConViT try to escape from being convolutions, and the first layer is the first to look far.",
    place="a reading of Fig. 5, 6",
    reported="nonlocality grows and gates fall in all layers; the curve of the first layer rises first",
    study="convit",
)
def first_layer_looks_far_first(look: Look) -> Iterator[Part]:
    """An interpretation without a criterion of its own. It would fail if nonlocality did not grow or gates did not fall
    in most layers (as CVT-10 and CVT-13 ask), or if after a tenth of the epochs the first layer had grown no more than
    the others have on average."""
    convit = look("convit")
    start, early = (nonlocality(convit, when, gated=True) for when in ("start", 0.1))
    growth = early - start
    fallen = (gates(convit, "end") < gates(convit, "start")).mean()
    yield at_least(
        "share of gated layers whose nonlocality has grown at the end", growing(convit, "true"), 0.8
    )
    yield at_least("share of gated layers whose mean gate has fallen at the end", fallen, 0.8)
    ahead = growth[0] - growth[1:].mean()
    yield more(
        "growth of nonlocality in the first tenth of the epochs, first gated layer minus the others",
        ahead,
    )
