"""Pre-training on masked patches or on labels, and fine-tuning at another resolution.

Unless something else is said, masked patches are predicted as their mean colour, half of them
masked, from all images; and everything that was learned before is fine-tuned on a tenth of the
labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vitreous.claims.dosovitskiy_2021.book import check
from vitreous.claims.effects import Effect, at_least, at_most, less, more, within
from vitreous.claims.evidence import Query
from vitreous.claims.quantity import Quantity
from vitreous.claims.readings import accuracy, identity


def _after_masked_patches(models: Query, **facts: Any) -> Quantity:
    """Accuracy after pre-training on masked patches and fine-tuning."""
    return accuracy(models("vit", pretrained="masked", **facts))


def scratch(models: Query) -> Quantity:
    """Accuracy of a ViT trained on a tenth of the images only, with the usual number of samples in
    total."""
    return accuracy(models("vit", fraction=0.1, schedule="samples"))


@check("VIT-17")
def masked_patches_help_less_than_labels(models: Query) -> Iterator[Effect]:
    """The paper's two and four points are for ImageNet; one point matters here."""
    patches = _after_masked_patches(models)
    yield more(
        "accuracy after masked patches minus from scratch, in points",
        patches - scratch(models),
        matters=1.0,
    )
    labels = accuracy(models("vit", pretrained="labels"))
    yield more(
        "accuracy after labels minus after masked patches, in points", labels - patches, matters=1.0
    )


@check("VIT-18")
def target_hardly_matters(models: Query) -> Iterator[Effect]:
    mean, small, full = (
        _after_masked_patches(models, target=target) for target in (None, "small", "full")
    )
    yield within(
        "accuracy after mean colours minus after 4 x 4 colours, in points", mean - small, 1.0
    )
    yield less(
        "accuracy after all pixels minus the mean of both, in points", full - (mean + small) / 2
    )


@check("VIT-19")
def masked_patches_need_little(models: Query) -> Iterator[Effect]:
    """A similar gain is at least 0.7 of the full one. The last effect is that there is a gain at
    all."""
    base = scratch(models)
    gain = _after_masked_patches(models) - base
    for label, facts in (
        ("a fifth of the images", {"unlabelled": 0.2}),
        ("a tenth of the steps", {"steps": 0.1}),
    ):
        part = _after_masked_patches(models, **facts) - base
        yield at_least(
            f"gain with {label} minus 0.7 times the full gain, in points", part - 0.7 * gain, 0
        )
    yield more("gain over scratch with all images and steps, in points", gain)


@check("VIT-20")
def half_may_be_masked(models: Query) -> Iterator[Effect]:
    difference = _after_masked_patches(models) - _after_masked_patches(models, corrupted=0.15)
    yield at_least("accuracy with half masked minus with 15 %, in points", difference, -0.3)


@check("VIT-22")
def heads_may_begin_at_zero(models: Query) -> Iterator[Effect]:
    """Computed: `zero_head_scores`, the largest absolute score of 8 images of N(0, 1) under a ViT
    (4 blocks, width 64, 4 heads, patch 4, 32 x 32 images, seed 0, float32) whose head was replaced
    as fine-tuning does it, before its first step. On two cores this is all."""
    if not models.sanity:
        zero, last = (
            accuracy(models("vit", pretrained="labels", head=head)) for head in (None, "last")
        )
        yield at_least(
            "accuracy with a head of zeros minus with a new last layer, in points",
            zero - last,
            -0.2,
        )
    yield at_most(
        "largest score before the first step", identity(models("identities"), "zero_head_scores"), 0
    )


@check("VIT-23")
def larger_images_help(models: Query) -> Iterator[Effect]:
    """The direction decides, because the 1.3 points of DeiT-B are for ImageNet."""
    large, small = (accuracy(models("vit", tuned="whole", resolution=side)) for side in (48, None))
    yield more("accuracy fine-tuned at 48 pixels minus as long at 32, in points", large - small)
