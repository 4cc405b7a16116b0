"""Ablations of the ConViT: number of gated layers, locality of their initialisation, and which
parts of them are trained.

Rows of Table 3: a ConViT; b gates fixed at ½; c no convolutional start; d neither; e DeiT; f as b
and g as d, with attention that is never trained. All are trained alike; on a tenth of the images
for ten times as many epochs."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

from vitreous.claims.dascoli_2021.book import check
from vitreous.claims.dascoli_2021.readings import (
    accuracy_after,
    accuracy_within,
    lost_without_content,
)
from vitreous.claims.effects import Effect, at_least, at_most, less, more, noted, within
from vitreous.claims.evidence import Query
from vitreous.claims.quantity import Quantity, least_of, side_by_side, spearman
from vitreous.claims.readings import accuracy

STRENGTHS = (0.01, 0.1, 1.0)
EARLY = 0.07
"""20 of 300 epochs."""
SMALL = 1.0
"""Points up to which a difference counts as small, if the catalogue does not say."""


def row(models: Query, letter: str, tenth: bool = False) -> Quantity:
    """Accuracy of a row of Table 3, on all images or on a tenth."""
    few = {"fraction": 0.1, "schedule": "samples"} if tenth else {}
    return accuracy(models("convit", ablation=letter, **few))


def gap(models: Query, one: str, other: str, tenth: bool = False) -> Quantity:
    return row(models, one, tenth) - row(models, other, tenth)


def _gated_counts(models: Query) -> tuple[int, ...]:
    """The numbers of gated layers in the sweep; the small version has four layers in total."""
    return (0, 1, 2, 3) if models.sanity else (0, 3, 6, 9)


@check("CVT-17")
def more_and_more_local_layers_help(models: Query) -> Iterator[Effect]:
    """Without gated layers the locality strength has no effect, so that column of the grid is a
    single model."""
    none, *some = _gated_counts(models)
    plain = accuracy(models("convit", gpsa=none))
    grid = {
        (n, s): accuracy(models("convit", gpsa=n, strength=None if s == 1 else s))
        for n in some
        for s in STRENGTHS
    }
    by_layers = side_by_side(
        [plain, *(side_by_side([grid[n, s] for s in STRENGTHS]).mean() for n in some)]
    )
    by_strength = side_by_side([side_by_side([grid[n, s] for n in some]).mean() for s in STRENGTHS])
    corners = grid[some[-1], 1.0] - plain
    yield more(
        "accuracy with most gated layers, strength 1, minus that with none, in points",
        corners,
        matters=1.0,
    )
    yield more(
        "rank correlation of accuracy and number of gated layers, mean over strengths",
        spearman(_gated_counts(models), by_layers),
    )
    yield more(
        "rank correlation of accuracy and locality strength, mean over numbers of layers",
        spearman(STRENGTHS, by_strength),
    )


@check("CVT-18")
def gated_layers_give_a_head_start(models: Query) -> Iterator[Effect]:
    """A factor of 1.2 matters; for generated images, whose task is local, a factor of 1.5."""

    def ratio(share: float) -> Quantity:
        most, none = (
            accuracy_after(models("convit", gpsa=n), share) for n in (_gated_counts(models)[-1], 0)
        )
        return most / none

    early, end = ratio(EARLY), ratio(1.0)
    yield more(
        "accuracy with most gated layers over that with none, 7 % of the epochs",
        early,
        1.0,
        matters=log(models.at(hundred=1.2, sanity=1.5)),
    )
    yield less("that ratio at the end over what it was at 7 % of the epochs", end / early, 1.0)


@check("CVT-19")
def positions_alone_help(models: Query) -> Iterator[Effect]:
    says = "accuracy of row d minus row e (DeiT), in points"
    yield more(f"{says}, 10 % of the images", gap(models, "d", "e", tenth=True), matters=1.0)
    yield noted(f"{says}, all images", gap(models, "d", "e"), paper=2.5)


@check("CVT-20")
def convolutional_start_helps(models: Query) -> Iterator[Effect]:
    start, gate = (
        "row b (convolutional start) minus row d, in points",
        "row c (trained gates) minus row d, in points",
    )
    yield more(f"{start}, 10 % of the images", gap(models, "b", "d", tenth=True))
    yield more(f"{start}, all images", gap(models, "b", "d"))
    yield within(f"{gate}, all images", gap(models, "c", "d"), SMALL)
    yield more(f"{gate}, 10 % of the images", gap(models, "c", "d", tenth=True))


@check("CVT-21")
def gates_and_start_add_up(models: Query) -> Iterator[Effect]:
    both = gap(models, "a", "d", tenth=True)
    more_than_one = [both - gap(models, letter, "d", tenth=True) for letter in "bc"]
    yield more(
        "gain of both minus the larger gain of one, 10 % of the images, in points",
        least_of(more_than_one),
    )
    yield noted("gain of both, 10 % of the images, in points", both, paper=5.1)
    yield noted("gain of both, all images, in points", gap(models, "a", "d"), paper=0.6)


@check("CVT-22")
def frozen_convolutions_are_nearly_as_good(models: Query) -> Iterator[Effect]:
    says = "accuracy of row f (frozen convolutions) minus row e (DeiT), in points"
    yield more(f"{says}, 10 % of the images", gap(models, "f", "e", tenth=True), matters=1.0)
    yield at_least(f"{says}, all images", gap(models, "f", "e"), -2.0)


@check("CVT-23")
def frozen_random_attention_is_worse(models: Query) -> Iterator[Effect]:
    deit, frozen = (
        "row g (frozen, random) minus row e (DeiT), in points",
        "row f minus row g, in points",
    )
    yield less(f"{deit}, all images", gap(models, "g", "e"))
    yield less(f"{deit}, 10 % of the images", gap(models, "g", "e", tenth=True))
    yield more(f"{frozen}, all images", gap(models, "f", "g"), matters=3.0)
    yield more(f"{frozen}, 10 % of the images", gap(models, "f", "g", tenth=True), matters=3.0)


@check("CVT-24")
def without_gates_content_is_ignored(models: Query) -> Iterator[Effect]:
    """Content is ignored if it costs at most one point to use, for every image, the attention
    averaged over images. (The catalogue only says "about nothing".)"""
    psa = models("convit", psa=True)
    early = accuracy_within(psa, 0.2) - accuracy_within(models("deit"), 0.2)
    yield more(
        "accuracy in the first fifth of the epochs, without gates minus DeiT, in points", early
    )
    late = accuracy(psa) - accuracy(models("convit"))
    yield less("accuracy at the end, without gates minus ConViT, in points", late)
    lost = lost_without_content(psa)
    yield at_most(
        "accuracy lost without gates if a layer attends as to the mean image, in points",
        lost,
        SMALL,
    )
    yield noted(
        "accuracy at the end, without gates minus DeiT, in points",
        accuracy(psa) - accuracy(models("deit")),
    )


@check("CVT-28")
def class_token_joins_late(models: Query) -> Iterator[Effect]:
    difference = accuracy(models("convit")) - accuracy(models("convit", cls="inside"))
    yield more(
        "accuracy with the class token after the gated layers minus inside, in points", difference
    )
