"""Attention and convolutions as filters, and robustness to noise by its frequency."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.effects import Effect, at_least, at_most, less, more, noted
from vitreous.claims.evidence import Query, Rows, Trainings, reads
from vitreous.claims.park_2022.book import check
from vitreous.claims.park_2022.units import (
    POINTS,
    high_by_stage,
    high_from_stem,
    high_in_first_stage,
    mean_of_first_quarter,
    mean_of_rest,
    sharpening,
)
from vitreous.claims.quantity import Array, least_of
from vitreous.claims.readings import accuracy, identity


def fine_vit(models: Query) -> Trainings:
    """The ViT with patches of 2 pixels: the paper's maps are 14 × 14, and maps of 8 × 8 have only
    three frequencies."""
    return models("vit", patch=2)


@check("HDV-26")
def attention_is_low_pass(models: Query) -> Iterator[Effect]:
    """On two cores: exact properties of attention, in float64 with seed 0. J is the matrix that
    takes the mean over 64 tokens; A = softmax(QKᵀ/√32), with Q, K and x of 64 × 32 standard normal
    numbers, 1000 draws; r(x) = |(I−J)x| / |Jx| is the part of x that varies over tokens relative to
    its constant part (Frobenius norms).

    attention_leak_from_constant      largest entry of |(I−J)A − (I−J)A(I−J)| over all draws
    attention_eighth_power_ratio      largest r(A⁸x) / r(x) over all draws
    random_attention_lowers_ratio     share of draws with r(Ax) < r(x)
    """
    if models.sanity:
        exact = models("identities")
        leak = identity(exact, "attention_leak_from_constant")
        yield at_most(
            "largest share of the constant that attention turns into anything else", leak, 1e-12
        )
        power = identity(exact, "attention_eighth_power_ratio")
        yield at_most(
            "what eight passes of attention leave of all that is not constant, at most", power, 0.01
        )
        lowered = identity(exact, "random_attention_lowers_ratio")
        yield at_least("share of random attention that lowers what is not constant", lowered, 0.95)
        return
    steps = sharpening(fine_vit(models), "attention")
    yield more(
        "share of attention layers that lower the highest frequency",
        (steps < 0).mean(),
        0.5,
        paper=models.paper,
    )
    yield less(
        "mean change of its log amplitude after the first quarter of the blocks",
        mean_of_rest(steps),
        paper=-0.10,
    )


@check("HDV-27")
def early_attention_sharpens(models: Query) -> Iterator[Effect]:
    steps = sharpening(fine_vit(models), "attention")
    difference = mean_of_first_quarter(steps) - mean_of_rest(steps)
    yield more(
        "change by attention in the first quarter of the blocks minus that in the rest",
        difference,
        paper=models.paper,
    )
    yield noted(
        "change by attention in the first quarter of the blocks",
        mean_of_first_quarter(steps),
        paper=0.25,
    )


@check("HDV-28")
def mlps_sharpen(models: Query) -> Iterator[Effect]:
    """On two cores: `random_mlp_raises_high_share`, the share of 200 draws in which a random MLP
    raises the share of high frequencies. Float64, seed 0; x: 8 maps of 16 × 16 with 32 channels,
    white noise whose spectrum is divided by |f| (the mean's by 1/16 cycles a pixel), standard
    deviation 1; y = W₂ GELU(W₁ x), 32 → 128 → 32 channels, entries normal with variance 1 / inputs;
    share: energy of waves whose larger frequency along an axis is above π/2, over the energy of all
    but the mean, of each map, mean over channels and maps; raised if that of y is larger than that
    of x. (Relative to the mean, as in the paper's Fourier analysis, GELU lowers them: it makes a
    mean where there was none.)"""
    if models.sanity:
        raised = identity(models("identities"), "random_mlp_raises_high_share")
        yield at_least(
            "share of random MLPs that raise the share of high frequencies", raised, 0.95
        )
        return
    mlps, attention = (sharpening(fine_vit(models), kind) for kind in ("mlp", "attention"))
    yield more(
        "share of MLPs that raise the highest frequency", (mlps > 0).mean(), 0.5, paper=models.paper
    )
    apart = mean_of_rest(mlps) - mean_of_rest(attention)
    yield more(
        "change by MLPs minus that by attention after the first quarter of the blocks",
        apart,
        paper=0.21,
    )


@check("HDV-29")
def convolutions_are_high_pass(models: Query) -> Iterator[Effect]:
    """The rise within the first stage decides, because its resolution is constant. Between stages
    the highest frequency is a different wave, and it also rises in untrained networks.

    On two cores: `random_convolutions_raise_high_share`, the share of 100 draws in which four
    random 3 × 3 convolutions with ReLU raise the share of high frequencies, as for HDV-28: float64,
    seed 0, 4 maps of 32 × 32 with 16 channels, circular padding, no bias, entries normal with
    variance 2 / (9 · 16)."""
    if models.sanity:
        raised = identity(models("identities"), "random_convolutions_raise_high_share")
        yield at_least(
            "share of random convolutions that raise the share of high frequencies", raised, 0.95
        )
        return
    resnet = models("resnet")
    yield more(
        "rise of the highest frequency within the first stage",
        high_in_first_stage(resnet),
        paper=models.paper,
    )
    stages = high_by_stage(resnet)
    rises = stages[1:] - stages[:-1]
    count = rises.values.shape[-1] if rises.known else 0
    yield more(
        "smallest rise of the highest frequency from one stage to the next",
        least_of([rises[number] for number in range(count)]),
        paper=0.96,
    )
    same = high_from_stem(resnet, "common")
    yield noted("rise from stem to end of the finest wave that all maps hold", same)


@check("HDV-30")
def vit_smooths_resnet_sharpens(models: Query) -> Iterator[Effect]:
    yield less(
        "highest frequency of ViT: last map minus first",
        high_from_stem(fine_vit(models)),
        paper=models.paper,
    )
    yield more(
        "highest frequency of ResNet: last map minus first",
        high_from_stem(models("resnet")),
        paper=5.6,
    )


@check("HDV-31")
def swin_keeps_high_frequencies(models: Query) -> Iterator[Effect]:
    """Swin's maps are smaller in later stages, where the highest frequency is a longer wave. So the
    change by each unit is measured within one resolution."""
    swin, vit = (
        sharpening(model, "attention").mean() for model in (models("swin"), fine_vit(models))
    )
    yield more("mean change of the highest frequency by attention, Swin minus ViT", swin - vit)


@reads("band_noise")
def noise_gap(rows: Rows, least: float, most: float) -> Array:
    """Change of accuracy under noise, of a model minus that of the second model, in points.

    It is the mean over noise frequencies (in π) from `least` to `most`. Both models are in one
    result, because they were tested with the same noise.
    """
    noisy = Rows(rows.item, rows.result).where(noisy=True)
    frequency = noisy.numbers("frequency")
    within = noisy.select((frequency >= least - 1e-6) & (frequency <= most + 1e-6))
    models = (within.where(model=name) for name in (rows.item.name, rows.item.other))
    own, other = (
        model.select(model.numbers("frequency").argsort(kind="stable")).draws("change").mean(1)
        for model in models
    )
    return np.asarray(POINTS * (own - other))


@check("HDV-32")
def noise_by_frequency(models: Query) -> Iterator[Effect]:
    """Noise of high frequency decides, for which the difference in the paper is largest."""
    both = models("vit", beside="resnet")
    label = "change of accuracy under noise of {}, ViT minus ResNet, in points"
    yield more(label.format("0.7π and above"), noise_gap(both, 0.7, 1.0), paper=models.paper)
    yield less(label.format("0.5π and below"), noise_gap(both, 0.0, 0.5), paper=-2.0)
    clean = accuracy(models("vit")) - accuracy(models("resnet"))
    yield noted("accuracy without noise, ViT minus ResNet, in points", clean)


@reads("cue_conflict")
def shape_share(rows: Rows) -> Array:
    """Percentage of predictions by shape, among those by shape or texture when the two disagree
    (A4.34)."""
    return POINTS * rows.where(overall=True).one()


@reads("frequency_pass")
def low_pass_change(rows: Rows) -> Array:
    """Change of accuracy when only low frequencies pass, in points, mean over the cut-offs."""
    return np.asarray(POINTS * rows.where(filter="low-pass", filtered=True).draws("change").mean(1))


@check("HDV-33")
def attention_goes_by_shape(models: Query) -> Iterator[Effect]:
    """Models are trained on images in which shape and texture agree, and tested on images in which
    they disagree, which only generated images allow. The paper infers the claim from its noise
    experiment; ten points matter."""
    vit, resnet = (models(model, data="SYN-A") for model in ("vit", "resnet"))
    shape = shape_share(vit) - shape_share(resnet)
    yield more("decisions by shape, ViT minus ResNet, in points", shape, matters=10.0)
    kept = low_pass_change(vit) - low_pass_change(resnet)
    yield more(
        "change of accuracy when only low frequencies pass, ViT minus ResNet, in points", kept
    )
