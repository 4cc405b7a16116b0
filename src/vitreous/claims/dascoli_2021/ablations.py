"""What makes a ConViT better: how many gated layers, how local their start, and which of their parts are trained.

Rows of Table 3: a ConViT; b gates fixed at ½; c no convolutional start; d neither; e DeiT; f as b and g as d, with
attention that is never trained. All are trained alike; on a tenth of the images for ten times as many epochs.
"""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.claim import Part, at_least, at_most, less, more, near, noted
from vitreous.claims.dascoli_2021.book import claim
from vitreous.claims.dascoli_2021.readings import (
    accuracy_after,
    accuracy_within,
    lost_without_content,
)
from vitreous.claims.evidence import Look
from vitreous.claims.measure import Measure, beside, spearman
from vitreous.claims.readings import accuracy

STRENGTHS = (0.01, 0.1, 1.0)
EARLY = 0.07
"""20 of 300 epochs."""
SMALL = 1.0
"""Points below which a difference is small, where the catalogue does not say."""


def row(look: Look, letter: str, tenth: bool = False) -> Measure:
    """Accuracy of a row of Table 3, on all images or on a tenth."""
    few = {"fraction": 0.1, "schedule": "samples"} if tenth else {}
    return accuracy(look("convit", ablation=letter, **few))


def gap(look: Look, one: str, other: str, tenth: bool = False) -> Measure:
    return row(look, one, tenth) - row(look, other, tenth)


def counts(look: Look) -> tuple[int, ...]:
    """Of gated layers: the small version has four layers in all."""
    return (0, 1, 2, 3) if look.sanity else (0, 3, 6, 9)


@claim(
    "CVT-17",
    "The more layers are gated, and the more local they begin, the higher is the accuracy.",
    place="Fig. 8a",
    reported="100 classes of ImageNet: from 77 to 81 % over strengths of 0.01, 0.1 and 1 and 0, 3, 6 and 9 layers",
    study="convit",
    task="SYN-B",
    large=True,
)
def more_and_more_local_layers_help(look: Look) -> Iterator[Part]:
    """Without gated layers there is nothing to be local, so that column of the grid is one model."""
    none, *some = counts(look)
    plain = accuracy(look("convit", gpsa=none))
    grid = {
        (n, s): accuracy(look("convit", gpsa=n, strength=None if s == 1 else s))
        for n in some
        for s in STRENGTHS
    }
    by_layers = beside([plain, *(beside([grid[n, s] for s in STRENGTHS]).mean() for n in some)])
    by_strength = beside([beside([grid[n, s] for n in some]).mean() for s in STRENGTHS])
    layers, strength = spearman(counts(look), by_layers), spearman(STRENGTHS, by_strength)
    yield at_least(
        "rank correlation of accuracy and number of gated layers, mean over strengths", layers, 0.8
    )
    yield at_least(
        "rank correlation of accuracy and locality strength, mean over numbers of layers",
        strength,
        0.8,
    )
    corners = grid[some[-1], 1.0] - plain
    yield at_least(
        "accuracy with most gated layers, strength 1, minus that with none, in points",
        corners,
        1,
        paper=4,
    )


@claim(
    "CVT-18",
    "Gated layers give a head start: early in training they nearly double the accuracy, later the gain shrinks.",
    place="Fig. 8b",
    reported="after 20 of 300 epochs 9 gated layers have almost twice the accuracy of none",
    study="convit",
    task="SYN-B",
    large=True,
)
def gated_layers_give_a_head_start(look: Look) -> Iterator[Part]:
    def ratio(share: float) -> Measure:
        most, none = (accuracy_after(look("convit", gpsa=n), share) for n in (counts(look)[-1], 0))
        return most / none

    early, end = ratio(EARLY), ratio(1.0)
    threshold = look.at(hundred=1.2, sanity=1.5)
    yield at_least(
        "accuracy with most gated layers over that with none, 7 % of the epochs",
        early,
        threshold,
        versus=1,
    )
    yield less("that ratio at the end minus what it was at 7 % of the epochs", end - early)


@claim(
    "CVT-19",
    "Attention that knows positions beats plain attention even with fixed gates and a random start.",
    place="Table 3, d and e",
    reported="81.6 against 79.1 % on all of ImageNet, 54.6 against 47.8 % on a tenth",
    study="convit",
    task="SYN-B",
    seeds=2,
    large=True,
)
def positions_alone_help(look: Look) -> Iterator[Part]:
    says = "accuracy of row d minus row e (DeiT), in points"
    yield at_least(f"{says}, 10 % of the images", gap(look, "d", "e", tenth=True), 1.0, paper=6.8)
    yield noted(f"{says}, all images", gap(look, "d", "e"), paper=2.5)


@claim(
    "CVT-20",
    "Starting as a convolution helps; trained gates without that start help only where images are few.",
    place="Table 3, b, c and d",
    reported="b 82.0, c 81.4, d 81.6 % on all of ImageNet; 57.4, 56.9, 54.6 % on a tenth",
    study="convit",
    task="SYN-B",
    seeds=2,
    large=True,
)
def convolutional_start_helps(look: Look) -> Iterator[Part]:
    start, gate = (
        "row b (convolutional start) minus row d, in points",
        "row c (trained gates) minus row d, in points",
    )
    yield more(f"{start}, all images", gap(look, "b", "d"), paper=0.4)
    yield more(f"{start}, 10 % of the images", gap(look, "b", "d", tenth=True), paper=2.8)
    yield from near(f"{gate}, all images", gap(look, "c", "d"), SMALL, paper=-0.2)
    yield more(f"{gate}, 10 % of the images", gap(look, "c", "d", tenth=True), paper=2.3)


@claim(
    "CVT-21",
    "Where images are few, trained gates and the convolutional start together help more than either.",
    place="Table 3",
    reported="on a tenth of ImageNet +5.1 points with both, +2.8 with the start, +2.3 with gates; on all +0.6 of both",
    study="convit",
    task="SYN-B",
    seeds=2,
    large=True,
)
def gates_and_start_add_up(look: Look) -> Iterator[Part]:
    either = beside([gap(look, letter, "d", tenth=True) for letter in "bc"]).most()
    both = gap(look, "a", "d", tenth=True)
    yield more(
        "gain of both minus the larger gain of one, 10 % of the images, in points",
        both - either,
        paper=2.3,
    )
    yield noted("gain of both, 10 % of the images, in points", both, paper=5.1)
    yield noted("gain of both, all images, in points", gap(look, "a", "d"), paper=0.6)


@claim(
    "CVT-22",
    "Convolutional attention that is never trained is nearly as good as a DeiT on all images, and better on a tenth.",
    place="Table 3, f and e",
    reported="78.6 against 79.1 % on all of ImageNet, 54.3 against 47.8 % on a tenth",
    study="convit",
    task="SYN-B",
    seeds=2,
    large=True,
)
def frozen_convolutions_are_nearly_as_good(look: Look) -> Iterator[Part]:
    says = "accuracy of row f (frozen convolutions) minus row e (DeiT), in points"
    yield at_least(f"{says}, 10 % of the images", gap(look, "f", "e", tenth=True), 1.0, paper=6.5)
    yield from near(f"{says}, all images", gap(look, "f", "e"), 2.0, paper=-0.5)


@claim(
    "CVT-23",
    "Random attention that is never trained is much worse, than a DeiT and than convolutional attention.",
    place="Table 3, g",
    reported="73.7 against 79.1 % on all of ImageNet, 44.8 against 47.8 % on a tenth",
    study="convit",
    task="SYN-B",
    seeds=2,
    large=True,
)
def frozen_random_attention_is_worse(look: Look) -> Iterator[Part]:
    deit, frozen = (
        "row g (frozen, random) minus row e (DeiT), in points",
        "row f minus row g, in points",
    )
    yield less(f"{deit}, all images", gap(look, "g", "e"), paper=-5.4)
    yield less(f"{deit}, 10 % of the images", gap(look, "g", "e", tenth=True), paper=-3.0)
    yield at_least(f"{frozen}, all images", gap(look, "f", "g"), 3.0, paper=4.9)
    yield at_least(f"{frozen}, 10 % of the images", gap(look, "f", "g", tenth=True), 3.0, paper=9.5)


@claim(
    "CVT-24",
    "Without gates a convolutional start helps early and not in the end, because content is ignored.",
    place="Fig. 9",
    reported="the curves of ConViT-B with ungated positional attention and of DeiT-B cross",
    study="convit",
    task="SYN-B",
    large=True,
)
def without_gates_content_is_ignored(look: Look) -> Iterator[Part]:
    """That content is ignored is read off what it costs to attend to every image as to their mean: no more than a
    point, where the catalogue says about nothing."""
    psa = look("convit", psa=True)
    early = accuracy_within(psa, 0.2) - accuracy_within(look("deit"), 0.2)
    yield more(
        "accuracy in the first fifth of the epochs, without gates minus DeiT, in points", early
    )
    late = accuracy(psa) - accuracy(look("convit"))
    yield less("accuracy at the end, without gates minus ConViT, in points", late)
    lost = lost_without_content(psa)
    yield at_most(
        "accuracy lost without gates if a layer attends as to the mean image, in points",
        lost,
        SMALL,
    )
    yield noted(
        "accuracy at the end, without gates minus DeiT, in points",
        accuracy(psa) - accuracy(look("deit")),
    )


@claim(
    "CVT-28",
    "A class token that joins after the gated layers works better than one that is in them.",
    place="footnote 1",
    reported="a remark: worse inside, not shown",
    study="convit",
    large=True,
)
def class_token_joins_late(look: Look) -> Iterator[Part]:
    difference = accuracy(look("convit")) - accuracy(look("convit", cls="inside"))
    yield more(
        "accuracy with the class token after the gated layers minus inside, in points", difference
    )
