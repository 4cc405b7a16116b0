"""Which layers compute alike, within a model and across models."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.claim import Part, at_least, at_most, less, more, noted
from vitreous.claims.evidence import Look
from vitreous.claims.measure import Measure
from vitreous.claims.raghu_2021.book import claim
from vitreous.claims.raghu_2021.pairs import (
    closest,
    counterpart,
    early_and_late,
    similarities,
    similarity_across,
)
from vitreous.claims.readings import block_structure, identity

THIRD = 1 / 3


@claim(
    "SLC-01",
    "CKA does not change when representations are rotated or scaled, and does change under other linear maps.",
    place="Section 3",
    reported="by definition",
    study="identities",
    sanity=True,
)
def cka_knows_rotation_and_scale(look: Look) -> Iterator[Part]:
    """To be computed in float64 with `numpy.random.default_rng(0)`, by full-batch CKA as the probe computes it, once
    with each estimator; the larger of the two counts where it is to be small, the smaller where it is to be large.

    X (256 × 32) is standard normal, Y (256 × 16) = X A + E with A (32 × 16) and E standard normal; Q (32 × 32) and
    R (16 × 16) are the orthogonal factors of standard normal matrices, and M = diag(10^0 … 10^2, evenly spaced
    exponents) Q.

    `cka_rotated`: |CKA(X, Y) − CKA(3 X Q, 0.2 Y R)|; `cka_with_itself`: |CKA(X, X) − 1|;
    `cka_stretched`: |CKA(X, Y) − CKA(X M, Y)| (0.29 here, where any clear difference will do).
    """
    exact = look("identities")
    yield at_most(
        "largest change under rotation and scaling", identity(exact, "cka_rotated"), 1e-6, paper=0.0
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


@claim(
    "SLC-02",
    "CKA of small minibatches with the unbiased estimator comes to that of all images at once; the biased one does "
    "not.",
    place="App. A",
    reported="minibatches of 128 images make no noticeable difference to 1024",
    study="identities",
    sanity=True,
)
def minibatches_are_enough(look: Look) -> Iterator[Part]:
    """To be computed in float64 with `numpy.random.default_rng(0)`: Z (2048 × 8) is standard normal, and X and Y are
    each Z B + 12 E with their own standard normal B (8 × 2048) and E (2048 × 2048), drawn in the order Z, B, E, B, E.
    Features outnumber the images of a minibatch 16 times.

    `cka_minibatch_difference`: |unbiased CKA from 16 minibatches of 128 − unbiased CKA of all 2048 at once| (0.002
    here); `cka_biased_difference`: |biased CKA from the same minibatches − unbiased CKA of all at once| (0.53 here).
    """
    exact = look("identities")
    small, biased = (identity(exact, f"cka_{name}_difference") for name in ("minibatch", "biased"))
    yield at_most("unbiased CKA of minibatches of 128, off from that of all images", small, 0.02)
    yield at_least("biased CKA of the same minibatches, off from it", biased, 0.05)


@claim(
    "SLC-03",
    "All layers of a ViT are about equally similar to each other, the lowest and the highest more than in a ResNet.",
    place="Fig. 1",
    reported="an even heat-map of CKA for ViT, not for ResNet",
    study="zoo",
    task="SYN-B",
)
def vit_is_uniform(look: Look) -> Iterator[Part]:
    """That similarities are even has no number in the paper; they are to spread less than those of a ResNet."""
    vit, resnet = (similarities(look(model)) for model in ("vit", "resnet"))
    yield at_least("mean CKA of two layers of ViT", vit.mean(), 0.5)
    yield less(
        "standard deviation of CKA over pairs of layers, ViT minus ResNet",
        vit.map(np.std) - resnet.map(np.std),
    )
    lowest = [early_and_late(look(model), THIRD).least() for model in ("vit", "resnet")]
    yield at_least(
        "lowest CKA of the first third with the last, ViT minus ResNet", lowest[0] - lowest[1], 0.1
    )


@claim(
    "SLC-04",
    "Layers of a ResNet fall into groups of lower and upper stages that are not alike.",
    place="Fig. 1",
    reported="two blocks in the heat-map of CKA",
    study="zoo",
    task="SYN-B",
)
def resnet_falls_apart(look: Look) -> Iterator[Part]:
    vit, resnet = (block_structure(look(model)) for model in ("vit", "resnet"))
    yield at_least("CKA within minus across stages of ResNet", resnet, 0.2)
    yield more("the same, ResNet minus ViT (within thirds)", resnet - vit)


@claim(
    "SLC-05",
    "The first and the last layers of a ViT are more alike than those of a ResNet.",
    place="Fig. 1",
    reported="visible in the heat-maps of CKA",
    study="zoo",
    task="SYN-B",
)
def ends_are_alike(look: Look) -> Iterator[Part]:
    vit, resnet = (early_and_late(look(model), 0.25).mean() for model in ("vit", "resnet"))
    yield at_least("CKA of the first quarter with the last, ViT minus ResNet", vit - resnet, 0.1)


@claim(
    "SLC-06",
    "What the lower half of a ResNet computes, a ViT computes in its lowest quarter.",
    place="Fig. 2, B.1",
    reported="60 layers of ResNet-50 correspond to about 25 of ViT-B/32",
    study="zoo",
    large=True,
)
def lower_half_is_the_lowest_quarter(look: Look) -> Iterator[Part]:
    """A layer corresponds to the most similar one; depths are means over the layers of the half."""
    depth = counterpart(look("vit", beside="resnet"), -1.0, 0.5)
    yield at_most(
        "depth in ViT of what is most like the lower half of ResNet", depth, 0.35, paper=0.25
    )


@claim(
    "SLC-07",
    "What the upper half of a ResNet computes, a ViT computes in the third above its lowest quarter.",
    place="Fig. 2",
    reported="the ridge of similarity lies in the middle of ViT",
    study="zoo",
    large=True,
)
def upper_half_is_the_middle(look: Look) -> Iterator[Part]:
    depth = counterpart(look("vit", beside="resnet"), 0.5, 1.0)
    yield at_least("depth in ViT of what is most like the upper half of ResNet", depth, 0.25)
    yield at_most("the same depth", depth, 0.7)


@claim(
    "SLC-08",
    "The last third of a ViT is like no layer of a ResNet, because the class token is worked on there.",
    place="Fig. 2",
    reported="similarity to every layer of ResNet is low in the last third",
    study="zoo",
    large=True,
)
def last_third_is_its_own(look: Look) -> Iterator[Part]:
    """The control is a ViT that pools all tokens: there the effect is to be smaller."""

    def change(**facts: str) -> Measure:
        model = look("vit", beside="resnet", **facts)
        return closest(model, 2 * THIRD, 1.0) - closest(model, THIRD, 2 * THIRD)

    with_class, pooled = change(), change(pool="gap")
    yield at_most(
        "CKA with the most similar layer of ResNet, last minus middle third of ViT",
        with_class,
        -0.05,
    )
    yield more(
        "the same change where tokens are pooled, minus that with a class token",
        pooled - with_class,
    )


@claim(
    "SLC-33",
    "A Mixer computes rather what a ViT computes than what a ResNet does.",
    place="App. H",
    reported="two blocks in the heat-map of CKA, more similar to ViT than to ResNet",
    study="zoo",
)
def mixer_is_like_vit(look: Look) -> Iterator[Part]:
    beside = look("mixer", beside="vit")
    difference = similarity_across(beside) - similarity_across(look("mixer", beside="resnet"))
    yield more("mean CKA of Mixer with ViT minus that with ResNet", difference)
    yield noted("CKA within minus across thirds of Mixer", block_structure(beside))
