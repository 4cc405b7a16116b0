"""Networks of several stages: blocks of alike layers, and which units of a stage cannot be missed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, more, no_less
from vitreous.claims.evidence import Look
from vitreous.claims.measure import Measure, beside
from vitreous.claims.park_2022.book import claim
from vitreous.claims.park_2022.units import lesion_early_minus_late, lesion_trends
from vitreous.claims.readings import block_structure

CONVOLUTION = "identity"
"""The lesion of a ResNet: one 3 × 3 convolution passes its input on. Where it is strided it cannot, so that the first
of a stage that can be lesioned is the first that is not strided."""


@claim(
    "HDV-39",
    "Representations of networks with several stages (ResNet, PiT, Swin) form blocks of alike layers; those of a ViT "
    "are uniform.",
    place="Fig. 10a, D.3",
    reported="maps of minibatch CKA on CIFAR-100",
    study="zoo",
    task="SYN-E",
)
def stages_form_blocks(look: Look) -> Iterator[Part]:
    """A4.13: mean CKA within a stage minus that across stages; of a ViT, within and across thirds."""
    staged = beside([block_structure(look(model)) for model in ("resnet", "pit", "swin")]).least()
    vit = block_structure(look("vit"))
    yield at_least(
        "block structure, smallest of ResNet, PiT and Swin minus that of ViT", staged - vit, 0.1
    )


@claim(
    "HDV-40",
    "A ResNet depends on its early stages more than on late ones, and on the first layers of a stage more than on the "
    "last.",
    place="Fig. 10b",
    reported="accuracy after one 3 × 3 convolution is removed",
    study="zoo",
    task="SYN-B",
)
def resnet_needs_early_layers(look: Look) -> Iterator[Part]:
    resnet = look("resnet")
    early = lesion_early_minus_late(resnet, "conv", CONVOLUTION)
    yield more(
        "points lost by a lesion in the first half of the stages minus those in the second", early
    )
    first = (lesion_trends(resnet, "conv", CONVOLUTION) < 0).mean()
    yield at_least(
        "share of stages that need their first convolution more than their last", first, 0.75
    )


@claim(
    "HDV-41",
    "In Swin, MLPs matter at the beginning of a stage and attention at its end.",
    place="Fig. 10b",
    reported="in stages 2, 3 and 4 the last attention costs 3.4, 2.4 and 1.7 times as much as the first; the first MLP "
    "costs 0.60, 0.69 and 1.07 points, the last 0.22, 0.00 and 1.00",
    study="zoo",
    task="SYN-B",
)
def attention_matters_at_stage_ends(look: Look) -> Iterator[Part]:
    attention, mlps = (
        lesion_trends(look("swin"), kind, first_stage=2) for kind in ("attention", "mlp")
    )
    later = attention.least()
    yield more(
        "points lost without the last attention of a stage minus the first, smallest",
        later,
        paper=0.33,
    )
    sooner = (-mlps).least()
    yield no_less(
        "points lost without the first MLP of a stage minus the last, smallest", sooner, paper=0.07
    )


@claim(
    "HDV-42",
    "What a lesion costs repeats from stage to stage: the same trend within each stage.",
    place="Fig. 10b, D.4",
    reported="in Swin three stages of four have attention matter more and MLPs less towards their end",
    study="zoo",
)
def lesions_are_periodic(look: Look) -> Iterator[Part]:
    """A trend that is there in one stage does not repeat."""
    swin, resnet = look("swin"), look("resnet")
    both = (lesion_trends(swin, "attention") > 0) * (lesion_trends(swin, "mlp") < 0)
    says = "stages of Swin in which attention matters more and MLPs less towards the end"
    yield at_least(says, _count(both), 2, paper=3, versus=1)
    first = lesion_trends(resnet, "conv", CONVOLUTION) < 0
    yield at_least(
        "stages of ResNet in which the first convolution matters more", _count(first), 2, versus=1
    )


def _count(row: Measure) -> Measure:
    return row.map(np.sum)
