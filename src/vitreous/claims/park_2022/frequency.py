"""What attention and convolutions do to frequencies, and which noise they cannot stand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, at_most, less, more, noted
from vitreous.claims.evidence import Look, Rows, Seen, reads
from vitreous.claims.measure import Array
from vitreous.claims.park_2022.book import claim
from vitreous.claims.park_2022.units import (
    POINTS,
    high_by_stage,
    high_from_stem,
    high_in_first_stage,
    quarter,
    rest,
    sharpening,
)
from vitreous.claims.readings import accuracy, identity


def fine_vit(look: Look) -> Seen:
    """Patches of 2 pixels: the paper's maps are 14 × 14, and on 8 × 8 there are but three frequencies."""
    return look("vit", patch=2)


@claim(
    "HDV-26",
    "Attention is a low-pass filter: most attention layers of a ViT lower the highest frequency of its feature maps.",
    place="Fig. 2a, 8",
    reported="9 of 12 attention layers of ViT-Ti on ImageNet lower it, by 0.10 in the mean from the fourth block on",
    study="zoo",
    sanity=True,
)
def attention_is_low_pass(look: Look) -> Iterator[Part]:
    """On two cores: properties of attention as such, in float64, seed 0, J the matrix that takes the mean over 64
    tokens, A = softmax(QKᵀ/√32) with Q, K, x of 64 × 32 standard normal numbers, 1000 draws, and the ratio
    r(x) = |(I−J)x| / |Jx| of what varies to what is constant (Frobenius norms).

    attention_leak_from_constant      largest entry of |(I−J)A − (I−J)A(I−J)| over all draws
    attention_eighth_power_ratio      largest r(A⁸x) / r(x) over all draws
    random_attention_lowers_ratio     share of draws with r(Ax) < r(x)
    """
    if look.sanity:
        exact = look("identities")
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
    steps = sharpening(fine_vit(look), "attention")
    lowering = (steps < 0).mean()
    yield at_least(
        "share of attention layers that lower the highest frequency", lowering, 0.6, paper=0.75
    )
    yield less(
        "mean change of its log amplitude after the first quarter of the blocks",
        rest(steps),
        paper=-0.10,
    )


@claim(
    "HDV-27",
    "The first attention layers are the exception: unlike later ones they raise high frequencies, as convolutions do.",
    place="Fig. 8",
    reported="attention in blocks 2 and 3 raises the highest frequency by 0.48 and 0.37",
    study="zoo",
)
def early_attention_sharpens(look: Look) -> Iterator[Part]:
    steps = sharpening(fine_vit(look), "attention")
    difference = quarter(steps) - rest(steps)
    yield more(
        "change by attention in the first quarter of the blocks minus that in the rest",
        difference,
        paper=0.35,
    )
    yield noted(
        "change by attention in the first quarter of the blocks", quarter(steps), paper=0.25
    )


@claim(
    "HDV-28",
    "MLPs do the opposite of attention: most of them raise the highest frequency of the feature maps.",
    place="Fig. 8",
    reported="8 of 12 MLPs raise it, not the first three; from the fourth block on MLPs lie 0.21 above attention",
    study="zoo",
    sanity=True,
)
def mlps_sharpen(look: Look) -> Iterator[Part]:
    """On two cores: `random_mlp_raises_high_share`, the share of 200 draws in which a random MLP raises the share of
    high frequencies. Float64, seed 0; x: 8 maps of 16 × 16 with 32 channels, white noise whose spectrum is divided by
    |f| (the mean's by 1/16 cycles a pixel), standard deviation 1; y = W₂ GELU(W₁ x), 32 → 128 → 32 channels,
    entries normal with variance 1 / inputs; share: energy of waves whose larger frequency along an axis is above π/2,
    over the energy of all but the mean, of each map, mean over channels and maps; raised if that of y is larger than
    that of x. (Relative to the mean, as A4.07 has it, GELU lowers them: it makes a mean where there was none.)
    """
    if look.sanity:
        raised = identity(look("identities"), "random_mlp_raises_high_share")
        yield at_least(
            "share of random MLPs that raise the share of high frequencies", raised, 0.95
        )
        return
    mlps, attention = (sharpening(fine_vit(look), kind) for kind in ("mlp", "attention"))
    yield at_least(
        "share of MLPs that raise the highest frequency", (mlps > 0).mean(), 0.6, paper=0.67
    )
    apart = rest(mlps) - rest(attention)
    yield more(
        "change by MLPs minus that by attention after the first quarter of the blocks",
        apart,
        paper=0.21,
    )


@claim(
    "HDV-29",
    "Convolutions are high-pass filters: a ResNet raises high frequencies from stage to stage, and within its first "
    "stage.",
    place="Fig. 2a",
    reported="log amplitude of the highest frequency in ResNet-50: −5.4, −3.6, −2.7, −1.0 in stages 1 to 4, and a rise "
    "of 0.40 within stage 1; flat within the others",
    study="zoo",
    sanity=True,
)
def convolutions_are_high_pass(look: Look) -> Iterator[Part]:
    """From stage to stage the highest frequency is not the same wave; the second part, within one resolution, is.

    On two cores: `random_convolutions_raise_high_share`, the share of 100 draws in which four random 3 × 3
    convolutions with ReLU raise the share of high frequencies, as for HDV-28: float64, seed 0, 4 maps of 32 × 32 with
    16 channels, circular padding, no bias, entries normal with variance 2 / (9 · 16).
    """
    if look.sanity:
        raised = identity(look("identities"), "random_convolutions_raise_high_share")
        yield at_least(
            "share of random convolutions that raise the share of high frequencies", raised, 0.95
        )
        return
    resnet = look("resnet")
    stages = high_by_stage(resnet)
    least = (stages[1:] - stages[:-1]).least()
    yield more(
        "smallest rise of the highest frequency from one stage to the next", least, paper=0.96
    )
    yield more("its rise within the first stage", high_in_first_stage(resnet), paper=0.40)
    same = high_from_stem(resnet, "common")
    yield noted("rise from stem to end of the finest wave that all maps hold", same)


@claim(
    "HDV-30",
    "In all, high frequencies are weaker at the end of a ViT than after its embedding, and stronger at the end of a "
    "ResNet than after its stem.",
    place="Fig. 2a",
    reported="ViT-Ti from −1.78 to −2.27, ResNet-50 from −6.60 to −1.03",
    study="zoo",
)
def vit_smooths_resnet_sharpens(look: Look) -> Iterator[Part]:
    yield less(
        "highest frequency of ViT: last map minus first",
        high_from_stem(fine_vit(look)),
        paper=-0.49,
    )
    yield more(
        "highest frequency of ResNet: last map minus first",
        high_from_stem(look("resnet")),
        paper=5.6,
    )


@claim(
    "HDV-31",
    "The attention of Swin keeps more of the high frequencies than that of a ViT.",
    place="Fig. D.2",
    reported="the highest frequencies of Swin fall less than those of ViT",
    study="zoo",
)
def swin_keeps_high_frequencies(look: Look) -> Iterator[Part]:
    swin, vit = (sharpening(model, "attention").mean() for model in (look("swin"), fine_vit(look)))
    yield more("mean change of the highest frequency by attention, Swin minus ViT", swin - vit)


@reads("band_noise")
def noise_gap(rows: Rows, least: float, most: float) -> Array:
    """Change of accuracy of a model under noise minus that of the model beside it, in points, mean over the
    frequencies (in π) from `least` to `most`. Both have met the same noise, which is why they are in one result."""
    noisy = rows.result.table[rows.result.table["noisy"].astype(bool)]
    within = noisy[noisy["frequency"].between(least - 1e-6, most + 1e-6)]
    own, other = (
        Rows(
            rows.exhibit, rows.result, within[within["model"] == name].sort_values("frequency")
        ).draws("change")
        for name in (rows.exhibit.name, rows.exhibit.other)
    )
    return POINTS * (own.mean(1) - other.mean(1))


@claim(
    "HDV-32",
    "A ViT is vulnerable to noise of low frequency and a ResNet to noise of high frequency.",
    place="Fig. 2b",
    reported="on ImageNet, ResNet and ViT lose 12.7 and 14.9 points at 0.3π, 9.7 and 6.3 at 0.7π, 15.4 and 4.8 at 0.9π",
    study="zoo",
    task="SYN-A",
)
def noise_by_frequency(look: Look) -> Iterator[Part]:
    both = look("vit", beside="resnet")
    words = "change of accuracy under noise of {}, ViT minus ResNet, in points"
    yield less(words.format("0.5π and below"), noise_gap(both, 0.0, 0.5), paper=-2.0)
    yield more(words.format("0.7π and above"), noise_gap(both, 0.7, 1.0), paper=7.8)
    yield at_least(words.format("0.8π and above"), noise_gap(both, 0.8, 1.0), 3.0, paper=10.0)
    clean = accuracy(look("vit")) - accuracy(look("resnet"))
    yield noted("accuracy without noise, ViT minus ResNet, in points", clean)


@reads("cue_conflict")
def shape_share(rows: Rows) -> Array:
    """Of the answers that follow shape or texture where they disagree: those by shape, in percent (A4.34)."""
    return POINTS * rows.where(overall=True).one()


@reads("frequency_pass")
def low_pass_change(rows: Rows) -> Array:
    """Change of accuracy when only low frequencies pass, in points, mean over the cut-offs."""
    return np.asarray(POINTS * rows.where(filter="low-pass", filtered=True).draws("change").mean(1))


@claim(
    "HDV-33",
    "Attention goes by shape and convolutions by texture.",
    place="Sec. 3",
    reported="inferred from noise of low and high frequency",
    study="zoo",
    task="SYN-A",
)
def attention_goes_by_shape(look: Look) -> Iterator[Part]:
    """Models that were trained on SYN-A with both cues agreeing, and asked where they disagree."""
    vit, resnet = (look(model, data="SYN-A") for model in ("vit", "resnet"))
    shape = shape_share(vit) - shape_share(resnet)
    yield at_least("decisions by shape, ViT minus ResNet, in points", shape, 10.0)
    kept = low_pass_change(vit) - low_pass_change(resnet)
    yield more(
        "change of accuracy when only low frequencies pass, ViT minus ResNet, in points", kept
    )
