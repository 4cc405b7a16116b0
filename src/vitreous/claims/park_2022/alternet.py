"""AlterNet: a ResNet whose stages end in attention, and where attention belongs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, at_most, more, no_less
from vitreous.claims.evidence import Look, Seen
from vitreous.claims.measure import Measure, beside
from vitreous.claims.park_2022.book import claim
from vitreous.claims.readings import accuracy, ape, nep, robustness

BUILD_UP = ("0,0,0,0", "0,0,0,1", "0,0,0,2", "0,0,1,2", None, "1,1,1,2")
"""Attention blocks by stage, one more from each to the next, in the paper's order. None is AlterNet as it is,
0,1,1,2; the first is the pre-activation ResNet that it is made from."""
SMALL_BUILD_UP = ("0,0,0", "0,0,1", "0,0,2", None)
"""The same in three stages; AlterNet as it is has 0,1,2."""
FEW = 0.2
"""Share of the images that few are."""


def build_up(look: Look, fraction: float | None = None) -> list[Seen]:
    """From no attention to the most."""
    variants = SMALL_BUILD_UP if look.sanity else BUILD_UP
    return [look("alternet", msas=msas, fraction=fraction) for msas in variants]


def best_number(look: Look, fraction: float | None = None) -> Measure:
    """Number of attention blocks of the variant with the highest accuracy."""
    row = beside([accuracy(each) for each in build_up(look, fraction)])
    return row.map(lambda each: float(np.argmax(each)))


@claim(
    "HDV-43",
    "Replacing convolutions of a ResNet by attention, from the end on, raises its accuracy.",
    place="Fig. 12a",
    reported="Alter-ResNet-50 on CIFAR-100: 82.5, 83.5, 83.7, 83.8, 84.0, 83.8 % with 0 to 5 attention blocks",
    study="alternet",
    task="SYN-B",
)
def attention_from_the_end_helps(look: Look) -> Iterator[Part]:
    none, *some = (accuracy(each) for each in build_up(look))
    yield more(
        "accuracy with one attention block minus that with none, in points",
        some[0] - none,
        paper=0.97,
    )
    best = beside(some).most() - none
    yield at_least(
        "accuracy of the best number of attention blocks minus that of none, in points",
        best,
        0.5,
        1.54,
    )


@claim(
    "HDV-44",
    "A second attention block in stage 3 hurts where one at the end of stage 2 helps: attention belongs at the end of "
    "a stage, not of the model.",
    place="Fig. 12a",
    reported="from three to four blocks: −0.25 points in stage 3, +0.25 in stage 2",
    study="alternet",
    seeds=5,
)
def end_of_a_stage_not_of_the_model(look: Look) -> Iterator[Part]:
    second, third = accuracy(look("alternet")), accuracy(look("alternet", msas="0,0,2,2"))
    says = "accuracy with the fourth attention block in stage 2 minus that with it in stage 3, in points"
    yield more(says, second - third, paper=0.50)


@claim(
    "HDV-45",
    "AlterNet is better than the ResNet it is made from, on clean images and on corrupted ones.",
    place="Fig. 12b",
    reported="CIFAR-100: 84.0 against 82.5 %; corrupted: 66.7 against 65.0 %",
    study="alternet",
)
def alternet_beats_resnet(look: Look) -> Iterator[Part]:
    alter, resnet = look("alternet"), build_up(look)[0]
    clean = accuracy(alter) - accuracy(resnet)
    yield more("accuracy of AlterNet minus that of ResNet, in points", clean, paper=1.54)
    corrupted = robustness(alter) - robustness(resnet)
    yield more(
        "accuracy under corruption of AlterNet minus that of ResNet, in points",
        corrupted,
        paper=1.69,
    )


@claim(
    "HDV-46",
    "AlterNet has smaller Hessian eigenvalues than the ResNet it is made from, and few of them are negative.",
    place="Fig. 12c",
    reported="after warm-up the positive ones are 434 against 569 in the mean, and 0.5 % are negative",
    study="alternet",
)
def alternet_is_flat_and_convex(look: Look) -> Iterator[Part]:
    alter, resnet = (
        look("alternet", moment="warmup"),
        look("alternet", msas=BUILD_UP[0], moment="warmup"),
    )
    ratio = ape(alter) / ape(resnet)
    says = "mean positive eigenvalue of AlterNet over that of ResNet"
    yield at_most(says, ratio, 0.9, paper=0.76, versus=1.0)
    yield at_most("share of negative eigenvalues of AlterNet", nep(alter), 0.02, paper=0.005)


@claim(
    "HDV-47",
    "With more data more attention pays: the best number of attention blocks does not fall as training images are "
    "added.",
    place="Fig. D.5",
    reported="four attention blocks for CIFAR-100, six for ImageNet",
    study="alternet",
    task="SYN-B",
    large=True,
)
def more_data_more_attention(look: Look) -> Iterator[Part]:
    added = best_number(look) - best_number(look, FEW)
    yield no_less(
        "best number of attention blocks with all images minus that with a fifth", added, paper=2
    )


@claim(
    "HDV-48",
    "With much data networks of local attention alone overtake AlterNet: its lead over Swin shrinks as training images "
    "are added.",
    place="Fig. E.1",
    reported="on ImageNet Swin and Twins are ahead of AlterNet",
    study="alternet",
    large=True,
)
def swin_catches_up(look: Look) -> Iterator[Part]:
    few, all_ = (
        accuracy(look("alternet", fraction=f)) - accuracy(look("swin", fraction=f))
        for f in (FEW, None)
    )
    yield more(
        "lead of AlterNet over Swin with a fifth of the images minus that with all, in points",
        few - all_,
    )


@claim(
    "HDV-57",
    "Later stages should have more heads.",
    place="Sec. 4, rule 3",
    reported="a rule of design, without a comparison",
    study="alternet",
    seeds=3,
)
def later_stages_need_more_heads(look: Look) -> Iterator[Part]:
    """Constant is as many in every stage as rising ones have in the mean, or nearly."""
    rising = accuracy(look("alternet"))
    for order in ("falling", "constant"):
        gain = rising - accuracy(look("alternet", order=order))
        yield no_less(
            f"accuracy with rising numbers of heads minus that with {order} ones, in points", gain
        )


@claim(
    "HDV-58",
    "Convolutions belong at the beginning of a stage and attention at its end.",
    place="Sec. 4",
    reported="from lesions of Swin and the building of AlterNet",
    study="alternet",
    seeds=3,
)
def attention_belongs_at_the_end(look: Look) -> Iterator[Part]:
    gain = accuracy(look("alternet")) - accuracy(look("alternet", placement="start"))
    yield more(
        "accuracy with attention at the end of stages minus that with it at their beginning, in points",
        gain,
    )
