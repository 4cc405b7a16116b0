"""Attention averages over positions, convolutions and MLPs tell them apart."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.claim import Part, at_least, less, more
from vitreous.claims.evidence import Look
from vitreous.claims.park_2022.book import claim
from vitreous.claims.park_2022.units import (
    variance_by_half,
    variance_ends,
    variance_peaks,
    variance_ratios,
    variance_slopes,
    variance_transitions,
)
from vitreous.claims.readings import identity, variances


@claim(
    "HDV-34",
    "Attention averages: it lowers the variance of feature maps over positions.",
    place="Fig. 9",
    reported="all 12 attention layers of ViT-Ti on CIFAR-100 lower it",
    study="zoo",
    sanity=True,
)
def attention_lowers_variance(look: Look) -> Iterator[Part]:
    """On two cores: `random_attention_variance_ratio`, the mean over the draws of HDV-26 of Var(Ax) / Var(x), each
    the unbiased variance over the 64 tokens, mean over the 32 channels."""
    if look.sanity:
        ratio = identity(look("identities"), "random_attention_variance_ratio")
        yield less(
            "variance after random attention over that before, without skip", ratio, than=1.0
        )
        return
    lowering = (variance_ratios(look("vit"), "attention") < 1).mean()
    yield at_least(
        "share of attention layers after which the variance is lower", lowering, 0.8, paper=1.0
    )


@claim(
    "HDV-35",
    "Convolutions and MLPs diversify: they raise the variance of feature maps over positions.",
    place="Fig. 9",
    reported="8 of 12 MLPs of ViT-Ti raise it, no attention layer does; every block of ResNet-50 within stages 1 to 3 "
    "does",
    study="zoo",
)
def mlps_raise_variance(look: Look) -> Iterator[Part]:
    mlps, attention = (
        (variance_ratios(look("vit"), kind) > 1).mean() for kind in ("mlp", "attention")
    )
    yield at_least("share of MLPs after which the variance is higher", mlps, 0.6, paper=0.67)
    yield more("that share minus that of attention layers", mlps - attention, paper=0.67)
    slope = variance_slopes(look("resnet")).mean()
    yield more(
        "slope of log variance over the blocks of a stage, mean over the stages of ResNet", slope
    )


@claim(
    "HDV-36",
    "Variance builds up with depth: within each stage of a ResNet it grows and is largest at the end.",
    place="Fig. 9",
    reported="ResNet-50 in stages 1 to 3: 0.20 to 0.46, 0.36 to 0.77, 0.37 to 0.84; ViT 0.017 to 0.093",
    study="zoo",
)
def variance_builds_up(look: Look) -> Iterator[Part]:
    resnet = look("resnet")
    grown = variance_ends(resnet).least()
    yield more(
        "variance after the last block of a stage over the first, smallest of stages 1 to 3",
        grown,
        1.0,
        2.1,
    )
    peaks = variance_peaks(resnet).mean()
    yield at_least(
        "share of stages 1 to 3 whose variance is largest after the last block",
        peaks,
        1.0,
        paper=1.0,
    )


@claim(
    "HDV-37",
    "Sub-sampling lowers the variance in a ResNet.",
    place="Fig. 9",
    reported="from stage to stage of ResNet-50: 0.455 to 0.359, 0.765 to 0.371, 0.836 to 0.170",
    study="zoo",
)
def subsampling_lowers_variance(look: Look) -> Iterator[Part]:
    largest = variance_transitions(look("resnet")).most()
    yield less(
        "variance at the beginning of a stage over that at the end of the last, largest",
        largest,
        1.0,
        0.79,
    )


@claim(
    "HDV-38",
    "In PiT and Swin attention lowers the variance at the beginning of a stage, but not so at its end; in Swin the "
    "variance rises over most of the depth, as in a CNN.",
    place="Fig. D.1",
    reported="curves of the variance of PiT and Swin",
    study="zoo",
)
def stages_of_attention(look: Look) -> Iterator[Part]:
    """The depth of Swin is counted in blocks: if attention lowers the variance in one half of a stage, it cannot rise
    after every unit."""
    for model, name in (("pit", "PiT"), ("swin", "Swin")):
        first, second = (variance_by_half(look(model), half) for half in (0, 1))
        yield less(
            f"relative change of the variance by attention of {name} in the first half of stages",
            first,
        )
        yield more(
            f"that in the second half of stages of {name} minus that in the first", second - first
        )
    swin = variances(look("swin"), ("stem", "mlp", "downsample"))
    rising = (swin[1:] > swin[:-1]).mean()
    yield at_least(
        "share of the blocks and sub-samplings of Swin after which the variance is higher",
        rising,
        0.8,
    )
