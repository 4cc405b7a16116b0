"""Nonlocality of attention in the course of training, in patches (A4.19).

The paper's curves may come from its published logger, which gives every layer the bare patch
embedding (X-22). Claims are judged on the actual inputs of the layers; the logger's reading is
noted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.dascoli_2021.book import check
from vitreous.claims.dascoli_2021.readings import (
    When,
    as_deep_as,
    lower,
    mean_nonlocality,
    nonlocality,
    upper,
)
from vitreous.claims.effects import Effect, less, more, noted, within
from vitreous.claims.evidence import Query, Trainings
from vitreous.claims.quantity import Quantity, spearman

LOGGED = "as the published logger reads it: "
FALL = 0.97
"""Factor of the initial value below which nonlocality counts as fallen: a fall of 3 %."""


def growing(convit: Trainings, reading: str) -> Quantity:
    """Share of gated layers whose nonlocality is larger at the end than before training."""
    start, end = (nonlocality(convit, when, reading, gated=True) for when in ("start", "end"))
    return (end > start).mean()


@check("CVT-08")
def deit_becomes_local_first(models: Query) -> Iterator[Effect]:
    """The paper's first five epochs are 6,250 steps of 1,024 images, which is a tenth of a training
    of 300 epochs on CIFAR at batch 256. So the first tenth of the epochs counts, and at least five.
    A training of fewer than 58,400 steps in total does fewer steps by then, and cannot test the
    claim."""

    def falling(reading: str) -> Quantity:
        start, early = (nonlocality(models("deit"), when, reading) for when in ("start", "early"))
        return (early < start * FALL).mean()

    label = "share of layers whose nonlocality falls by more than 3 % early in training"
    yield more(label, falling("true"), 0.5, paper=models.paper)
    yield noted(LOGGED + label, falling("official"))


@check("CVT-09")
def upper_layers_look_far_again(models: Query) -> Iterator[Effect]:
    """The end minus the minimum over epochs is never negative, so upper layers are compared with
    the others."""

    def order(reading: str) -> Quantity:
        end = nonlocality(models("deit"), "end", reading)
        return spearman(end.map(lambda row: np.arange(len(row))), end)

    def climb(reading: str) -> Quantity:
        end, least = (nonlocality(models("deit"), when, reading) for when in ("end", "least"))
        climbed = end - least
        return upper(climbed, 1 / 3).mean() - lower(climbed, 2 / 3).mean()

    ordered = "rank correlation of layer and nonlocality at the end"
    climbed = (
        "climb of nonlocality from its least to the end, upper third minus the rest, in patches"
    )
    yield more(ordered, order("true"), matters=0.6)
    yield more(climbed, climb("true"))
    yield noted(LOGGED + ordered, order("official"))
    yield noted(LOGGED + climbed, climb("official"))


@check("CVT-10")
def gated_layers_escape(models: Query) -> Iterator[Effect]:
    """Weight decay alone would make attention less positional, so the recipe must not decay the
    gates."""
    convit = models("convit")
    label = "share of gated layers whose nonlocality is larger at the end than before training"
    yield more(label, growing(convit, "true"), 0.5, paper=models.paper)
    yield noted(LOGGED + label, growing(convit, "official"))
    start = nonlocality(convit, "start", gated=True).mean()
    yield noted(
        "nonlocality of gated layers before training, in patches (4 heads on 8 x 8 patches: 1.80)",
        start,
    )


@check("CVT-11")
def convit_stays_more_local(models: Query) -> Iterator[Effect]:
    """The control is the difference before training: a ConViT is more local by construction."""

    def difference(when: When, reading: str = "true") -> Quantity:
        convit = nonlocality(models("convit"), when, reading, gated=True)
        deit = as_deep_as(nonlocality(models("deit"), when, reading), convit)
        return convit.mean() - deit.mean()

    label = "nonlocality of the gated layers, ConViT minus DeiT, in patches"
    untrained = less(f"{label}, before training", difference("start"))
    yield less(f"{label}, at the end", difference("end")).with_control(untrained)
    yield noted(f"{LOGGED}{label}, at the end", difference("end", "official"))


@check("CVT-12")
def second_layer_stays_most_local(models: Query) -> Iterator[Effect]:
    end, logged = (
        nonlocality(models("convit"), "end", reading, gated=True)
        for reading in ("true", "official")
    )
    label = "nonlocality of the first gated layer minus that of the second, in patches"
    where = "the most local gated layer, counted from 1"
    yield more(label, end[0] - end[1])
    yield within(f"{where}, minus 3", end.map(np.argmin) + 1 - 3, 1)
    yield noted(LOGGED + label, logged[0] - logged[1])
    yield noted(LOGGED + where, logged.map(np.argmin) + 1)


@check("CVT-31")
def distillation_makes_local(models: Query) -> Iterator[Effect]:
    """A tenth of a patch matters, which is 2.5 % of the nonlocality of uniform attention."""
    difference = mean_nonlocality(models("deit", distilled=True)) - mean_nonlocality(models("deit"))
    yield less(
        "mean nonlocality at the end, distilled DeiT minus plain DeiT, in patches",
        difference,
        matters=0.1,
    )


@check("CVT-34")
def first_layer_looks_far_first(models: Query) -> Iterator[Effect]:
    """The paper's interpretation has no criterion of its own; the findings it rests on are judged
    as CVT-10, CVT-12 and CVT-13."""
    convit = models("convit")
    start, early = (nonlocality(convit, when, gated=True) for when in ("start", 0.1))
    growth = early - start
    yield more(
        "growth of nonlocality in the first tenth of the epochs, first gated layer minus the "
        "others",
        growth[0] - growth[1:].mean(),
    )
