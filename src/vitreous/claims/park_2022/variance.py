"""Variance over positions: attention lowers it, convolutions and MLPs raise it."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.effects import Effect, less, more, noted
from vitreous.claims.evidence import Query
from vitreous.claims.park_2022.book import check
from vitreous.claims.park_2022.units import (
    variance_by_half,
    variance_ends,
    variance_peaks,
    variance_ratios,
    variance_slopes,
    variance_transitions,
)
from vitreous.claims.quantity import geometric_mean, side_by_side
from vitreous.claims.readings import identity, variances


@check("HDV-34")
def attention_lowers_variance(models: Query) -> Iterator[Effect]:
    """Compared with half of the layers, which chance would give, and with untrained networks, where
    the effect depends on the initialisation.

    On two cores: `random_attention_variance_ratio`, the mean over 1000 draws of random attention of
    Var(Ax) / Var(x), each the unbiased variance over the 64 tokens, mean over the 32 channels.
    """
    if models.sanity:
        ratio = identity(models("identities"), "random_attention_variance_ratio")
        yield less("variance after random attention over that before, without skip", ratio, 1.0)
        return
    ratios = variance_ratios(models("vit"), "attention")
    yield more(
        "share of attention layers after which the variance is lower",
        (ratios < 1).mean(),
        0.5,
        paper=models.paper,
    )
    yield noted("variance after attention over that before, geometric mean", geometric_mean(ratios))


@check("HDV-35")
def mlps_raise_variance(models: Query) -> Iterator[Effect]:
    mlps, attention = (
        (variance_ratios(models("vit"), kind) > 1).mean() for kind in ("mlp", "attention")
    )
    yield more("share of MLPs after which the variance is higher", mlps, 0.5, paper=models.paper)
    yield more("that share minus that of attention layers", mlps - attention, paper=0.67)
    slope = variance_slopes(models("resnet")).mean()
    yield more(
        "slope of log variance over the blocks of a stage, mean over the stages of ResNet", slope
    )


@check("HDV-36")
def variance_builds_up(models: Query) -> Iterator[Effect]:
    """The geometric mean over stages 1 to 3, as in the paper. A ResNet-18 has two blocks per stage
    and a ResNet-50 up to six, so half of the paper's growth is a high threshold for it."""
    resnet = models("resnet")
    yield more(
        "variance after the last block of a stage over that after the first, mean of stages 1 to 3",
        geometric_mean(variance_ends(resnet)),
        1.0,
        paper=models.paper,
    )
    yield more(
        "share of stages 1 to 3 whose variance is largest after the last block",
        (variance_peaks(resnet) > 0).mean(),
        0.5,
        paper=1.0,
    )


@check("HDV-37")
def subsampling_lowers_variance(models: Query) -> Iterator[Effect]:
    """The geometric mean of all three transitions; single ones are noted."""
    transitions = variance_transitions(models("resnet"))
    label = "variance at the beginning of a stage over that at the end of the one before"
    yield less(f"{label}, mean", geometric_mean(transitions), 1.0, paper=models.paper)
    yield noted(f"{label}, largest", transitions.maximum(), paper=0.79)


@check("HDV-38")
def stages_of_attention(models: Query) -> Iterator[Effect]:
    """The rise in Swin is counted after whole blocks: attention lowers the variance, so it cannot
    rise after every unit."""
    halves = {
        (model, half): variance_by_half(models(model), half)
        for model in ("pit", "swin")
        for half in (0, 1)
    }
    later = [halves[model, 1] - halves[model, 0] for model in ("pit", "swin")]
    yield more(
        "relative change of the variance by attention, second minus first half of stages, of PiT "
        "and Swin",
        side_by_side(later).mean(),
    )
    for model, name in (("pit", "PiT"), ("swin", "Swin")):
        yield less(
            f"relative change of the variance by attention of {name} in the first half of stages",
            halves[model, 0],
        )
    swin = variances(models("swin"), ("stem", "mlp", "downsample"))
    rising = (swin[1:] > swin[:-1]).mean()
    yield more(
        "share of the blocks and sub-samplings of Swin after which the variance is higher",
        rising,
        0.5,
        matters=0.3,
    )
