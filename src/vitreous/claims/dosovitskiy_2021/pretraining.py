"""What is learned before: from masked patches, from labels, at another resolution.

Unless something else is said, masked patches are predicted as their mean colour, half of them masked, from all images;
and everything that was learned before is fine-tuned on a tenth of the labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vitreous.claims.claim import Part, at_least, at_most, less, more
from vitreous.claims.dosovitskiy_2021.book import claim
from vitreous.claims.evidence import Look
from vitreous.claims.measure import Measure, beside
from vitreous.claims.readings import accuracy, identity


def masked(look: Look, **facts: Any) -> Measure:
    """Accuracy after masked patches and fine-tuning."""
    return accuracy(look("vit", pretrained="masked", **facts))


def scratch(look: Look) -> Measure:
    """Accuracy of a ViT that saw nothing but the tenth, as many images in all as a whole training has."""
    return accuracy(look("vit", fraction=0.1, schedule="samples"))


@claim(
    "VIT-17",
    "To predict masked patches first helps over beginning from scratch, and less than labels do.",
    place="Sec. 4.6, App. B.1.2",
    reported="ViT-B/16, ImageNet: 79.9 %, 2 points more than from scratch and 4 less than with labels",
    study="masked",
    task="SYN-E",
    large=True,
)
def masked_patches_help_less_than_labels(look: Look) -> Iterator[Part]:
    found = masked(look)
    yield at_least(
        "accuracy after masked patches minus from scratch, in points",
        found - scratch(look),
        1,
        paper=2,
    )
    labels = accuracy(look("vit", pretrained="labels"))
    yield at_least(
        "accuracy after labels minus after masked patches, in points", labels - found, 1, paper=4
    )


@claim(
    "VIT-18",
    "What is predicted of a masked patch hardly matters: its mean colour or a small picture of it do alike, all its "
    "pixels a little worse.",
    place="App. B.1.2",
    reported="all worked quite well, all pixels with a squared error slightly worse",
    study="masked",
    task="SYN-E",
)
def target_hardly_matters(look: Look) -> Iterator[Part]:
    mean, small, full = masked(look), masked(look, target="small"), masked(look, target="full")
    apart = (mean - small).map(abs)
    yield at_most("difference of accuracy, mean colour and 4 x 4 colours, in points", apart, 1)
    better = beside([mean, small]).most()
    yield less("accuracy after all pixels minus after the better of both, in points", full - better)


@claim(
    "VIT-19",
    "To predict masked patches needs neither many images nor many steps: a fifth of the images and a tenth of the "
    "steps bring most of the gain.",
    place="App. B.1.2",
    reported="gains are the same from ImageNet as from JFT and stop growing after 100 thousand steps",
    study="masked",
    large=True,
)
def masked_patches_need_little(look: Look) -> Iterator[Part]:
    """Most is seven tenths; and there has to be a gain, of which to speak of a share."""
    base = scratch(look)
    whole = masked(look) - base
    yield more("gain over scratch with all images and steps, in points", whole)
    for says, facts in (
        ("a fifth of the images", {"unlabelled": 0.2}),
        ("a tenth of the steps", {"steps": 0.1}),
    ):
        gain = masked(look, **facts) - base
        yield at_least(
            f"gain with {says} minus 0.7 times the whole gain, in points", gain - 0.7 * whole, 0
        )


@claim(
    "VIT-20",
    "To mask half of the patches is no worse than to mask 15 % of them.",
    place="App. B.1.2",
    reported="15 % slightly worse than 50 %",
    study="masked",
)
def half_may_be_masked(look: Look) -> Iterator[Part]:
    found = masked(look) - masked(look, corrupted=0.15)
    yield at_least("accuracy with half masked minus with 15 %, in points", found, -0.3)


@claim(
    "VIT-22",
    "For fine-tuning, a whole new head of zeros is at least as good as a new last layer at random.",
    place="App. B.1.1",
    reported="a little more robust",
    study="masked",
    sanity=True,
)
def heads_may_begin_at_zero(look: Look) -> Iterator[Part]:
    """Computed: `zero_head_scores`, the largest absolute score of 8 images of N(0, 1) under a ViT (4 blocks, width 64,
    4 heads, patch 4, 32 x 32 images, seed 0, float32) whose head was replaced as fine-tuning does it, before its first
    step. On two cores this is all."""
    yield at_most(
        "largest score before the first step", identity(look("identities"), "zero_head_scores"), 0
    )
    if not look.sanity:
        zero, last = (
            accuracy(look("vit", pretrained="labels", head=head)) for head in (None, "last")
        )
        yield at_least(
            "accuracy with a head of zeros minus with a new last layer, in points",
            zero - last,
            -0.2,
        )


@claim(
    "VIT-23",
    "Fine-tuning on larger images helps.",
    place="Sec. 3.2",
    reported="done throughout; DeiT-B has 81.8 % at 224 pixels and 83.1 % at 384",
    study="masked",
)
def larger_images_help(look: Look) -> Iterator[Part]:
    large, own = (accuracy(look("vit", tuned="whole", resolution=side)) for side in (48, None))
    yield at_least(
        "accuracy fine-tuned at 48 pixels minus as long at 32, in points", large - own, 0, paper=1.3
    )
