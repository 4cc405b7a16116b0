"""Similarity of layers, within a model and across models."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.effects import Effect, at_least, at_most, less, more, noted, within
from vitreous.claims.evidence import Query
from vitreous.claims.quantity import Quantity
from vitreous.claims.raghu_2021.book import check
from vitreous.claims.raghu_2021.pairs import (
    closest,
    counterpart,
    early_and_late,
    similarities,
    similarity_across,
)
from vitreous.claims.readings import cka_block_structure, identity

THIRD = 1 / 3


@check("SLC-01")
def cka_knows_rotation_and_scale(models: Query) -> Iterator[Effect]:
    """Computed in float64 with `numpy.random.default_rng(0)`, by full-batch CKA as in the probe,
    with both estimators. The larger of the two counts if the number has to be small, the smaller if
    it has to be large.

    X (256 × 32) is standard normal, Y (256 × 16) = X A + E with A (32 × 16) and E standard normal;
    Q (32 × 32) and R (16 × 16) are the orthogonal factors of standard normal matrices, and M =
    diag(10^0 … 10^2, evenly spaced exponents) Q.

    `cka_rotated`: |CKA(X, Y) − CKA(3 X Q, 0.2 Y R)|; `cka_with_itself`: |CKA(X, X) − 1|;
    `cka_stretched`: |CKA(X, Y) − CKA(X M, Y)| (0.29 here, where any clear difference will do).
    """
    exact = models("identities")
    yield at_most(
        "largest change under rotation and scaling",
        identity(exact, "cka_rotated"),
        1e-6,
        paper=models.paper,
    )
    yield at_most(
        "CKA of a representation with itself, off from 1",
        identity(exact, "cka_with_itself"),
        1e-6,
        paper=0,
    )
    yield at_least(
        "change under an invertible map that stretches", identity(exact, "cka_stretched"), 0.05
    )


@check("SLC-02")
def minibatches_are_enough(models: Query) -> Iterator[Effect]:
    """Computed in float64 with `numpy.random.default_rng(0)`: Z (2048 × 8) is standard normal, and
    X and Y are each Z B + 12 E with their own standard normal B (8 × 2048) and E (2048 × 2048),
    drawn in the order Z, B, E, B, E. There are 16 times as many features as images in a minibatch.

    `cka_minibatch_difference`: |unbiased CKA from 16 minibatches of 128 − unbiased CKA of all 2048
    at once| (0.002 here); `cka_biased_difference`: |biased CKA from the same minibatches − unbiased
    CKA of all at once| (0.53 here)."""
    exact = models("identities")
    small, biased = (identity(exact, f"cka_{name}_difference") for name in ("minibatch", "biased"))
    yield at_most("unbiased CKA of minibatches of 128, off from that of all images", small, 0.02)
    yield at_least("biased CKA of the same minibatches, off from it", biased, 0.05)


@check("SLC-03")
def vit_is_uniform(models: Query) -> Iterator[Effect]:
    """The paper shows a map without a number, so the spread of similarities is compared with that
    of a ResNet. The supporting effects are means over pairs, not minima: a class token that starts
    at zero makes the first attention of a ViT unlike all other units, and a ViT has more pairs."""
    vit, resnet = (similarities(models(model)) for model in ("vit", "resnet"))
    yield less(
        "standard deviation of CKA over pairs of layers, ViT minus ResNet",
        vit.map(np.std) - resnet.map(np.std),
    )
    yield more("mean CKA of two layers of ViT", vit.mean(), matters=0.5)
    first, last = (early_and_late(models(model), THIRD).mean() for model in ("vit", "resnet"))
    yield more("mean CKA of the first third with the last, ViT minus ResNet", first - last)


@check("SLC-04")
def resnet_falls_apart(models: Query) -> Iterator[Effect]:
    """A difference of 0.2 matters, for the two blocks in the paper's map to be visible."""
    vit, resnet = (cka_block_structure(models(model)) for model in ("vit", "resnet"))
    yield more("CKA within minus across stages of ResNet", resnet, matters=0.2)
    yield more("the same, ResNet minus ViT (within thirds)", resnet - vit)


@check("SLC-05")
def ends_are_alike(models: Query) -> Iterator[Effect]:
    vit, resnet = (early_and_late(models(model), 0.25).mean() for model in ("vit", "resnet"))
    yield more(
        "CKA of the first quarter with the last, ViT minus ResNet", vit - resnet, matters=0.1
    )


@check("SLC-06")
def lower_half_is_the_lowest_quarter(models: Query) -> Iterator[Effect]:
    """Each layer corresponds to the most similar one; depths are means over the layers of the half.
    The bound of 0.35 is the paper's quarter, with room for the coarser depths of twelve blocks."""
    depth = counterpart(models("vit", beside="resnet"), -1.0, 0.5)
    yield at_most(
        "depth in ViT of what is most like the lower half of ResNet",
        depth,
        0.35,
        paper=models.paper,
    )


@check("SLC-07")
def upper_half_is_the_middle(models: Query) -> Iterator[Effect]:
    """The bounds, 0.25 and 0.7, are the paper's "next third" with room on both sides."""
    depth = counterpart(models("vit", beside="resnet"), 0.5, 1.0)
    yield within(
        "depth in ViT of what is most like the upper half of ResNet, minus 0.475",
        depth - 0.475,
        0.225,
    )


@check("SLC-08")
def last_third_is_its_own(models: Query) -> Iterator[Effect]:
    """The direction decides, because the paper has no number. In a ViT that pools all tokens the
    effect should be smaller, which is a supporting effect."""

    def change(**facts: str) -> Quantity:
        model = models("vit", beside="resnet", **facts)
        return closest(model, 2 * THIRD, 1.0) - closest(model, THIRD, 2 * THIRD)

    with_class, pooled = change(), change(pool="gap")
    yield less(
        "CKA with the most similar layer of ResNet, last minus middle third of ViT", with_class
    )
    yield more(
        "the same change where tokens are pooled, minus that with a class token",
        pooled - with_class,
    )


@check("SLC-33")
def mixer_is_like_vit(models: Query) -> Iterator[Effect]:
    beside = models("mixer", beside="vit")
    difference = similarity_across(beside) - similarity_across(models("mixer", beside="resnet"))
    yield more("mean CKA of Mixer with ViT minus that with ResNet", difference)
    yield noted("CKA within minus across thirds of Mixer", cka_block_structure(beside))
