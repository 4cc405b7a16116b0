"""The effect of more data, more compute and another learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import log
from typing import Any

from vitreous.claims.dosovitskiy_2021.book import check
from vitreous.claims.effects import Effect, at_most, more, noted, within
from vitreous.claims.evidence import Query, Rows, reads
from vitreous.claims.quantity import Array, Quantity, best_of, side_by_side
from vitreous.claims.readings import accuracy, identity

RATES = (0.3, None, 3)
"""Multiples of the recipe's learning rate; None is the recipe's own."""
SHARES = (0.1, 0.3, None)
"""Shares of the training images; None is all. The number of samples in total is the same."""


@check("VIT-07")
def pooling_needs_its_own_rate(models: Query) -> Iterator[Effect]:
    """Equal accuracy at the best learning rates decides. That mean pooling needs a lower rate is a
    supporting effect: a lower rate helps it more, or hurts it less, than a class token."""
    token, pooled = (
        side_by_side([accuracy(models("vit", pool=pool, rate=rate)) for rate in RATES])
        for pool in (None, "gap")
    )
    yield within(
        "accuracy of a class token minus that of the mean, each at its best rate, in points",
        best_of(token) - best_of(pooled),
        1.5,
    )
    yield more(
        "what a third of the rate gains, with the mean minus with a class token, in points",
        (pooled[0] - pooled[1]) - (token[0] - token[1]),
    )


@reads("cost")
def gflops(rows: Rows) -> Array:
    """Billions of operations for one image."""
    return rows.one("gflops")


@check("VIT-09")
def hybrids_win_where_computing_is_scarce(models: Query) -> Iterator[Effect]:
    """Little compute is a quarter of the training. It grows to the full training, or to a larger
    model. The paper's axis is compute, not data."""

    def gap(**facts: Any) -> Quantity:
        return accuracy(models("hybrid", **facts)) - accuracy(models("vit", **facts))

    scarce = gap(epochs=0.25)
    yield more(
        "accuracy of the hybrid minus that of ViT after a short training, in points",
        scarce,
        matters=2.0,
    )
    yield more(
        "how much less that is after a training four times as long, in points", scarce - gap()
    )
    yield more(
        "how much less that is for the larger size, in points",
        scarce - gap(epochs=0.25, size="s"),
    )
    cost = gflops(models("hybrid", epochs=0.25)) / gflops(models("vit", epochs=0.25))
    yield noted("operations of the hybrid over those of ViT", cost)


@check("VIT-10")
def vits_need_less_computing(models: Query) -> Iterator[Effect]:
    """The paper compares curves of models trained on 300 million images, for which small data have
    no analogue. Accuracy and operations are reported."""
    vit, resnet = models("vit"), models("resnet")
    yield more("accuracy of ViT minus that of ResNet, in points", accuracy(vit) - accuracy(resnet))
    yield noted("operations of ResNet over those of ViT", gflops(resnet) / gflops(vit), paper=2)


def with_share(models: Query, model: str, share: float | None, **facts: Any) -> Quantity:
    """Accuracy of a model trained on a share of the images."""
    return accuracy(models(model, fraction=share, schedule="samples" if share else None, **facts))


def _growth(label: str, gaps: list[Quantity]) -> Iterator[Effect]:
    """The change from the smallest share of the images to all, and from each share to the next."""
    yield more(f"{label} from 10 % to 100 % of the images, in points", gaps[-1] - gaps[0])
    for (small, large), (before, after) in zip(pairwise(SHARES), pairwise(gaps), strict=True):
        shares = " to ".join(f"{100 * (share or 1):.0f} %" for share in (small, large))
        yield noted(f"{label} from {shares} of the images, in points", after - before)


@check("VIT-11")
def data_stand_in_for_inductive_bias(models: Query) -> Iterator[Effect]:
    """Whether ViT overtakes ResNet is only noted, because that takes more images than small data
    have."""
    ahead = [
        with_share(models, "vit", share) - with_share(models, "resnet", share) for share in SHARES
    ]
    yield from _growth("gain of ViT on ResNet", ahead)
    yield noted("accuracy of ViT minus that of ResNet with all images, in points", ahead[-1])


@check("VIT-12")
def larger_models_need_more_data(models: Query) -> Iterator[Effect]:
    worth = [
        with_share(models, "vit", share, size="s") - with_share(models, "vit", share)
        for share in SHARES
    ]
    yield from _growth("gain of the next size on the standard one", worth)


@check("VIT-21")
def smaller_patches_cost_more(models: Query) -> Iterator[Effect]:
    """Whether they are also more accurate is judged by HDV-19, with another result on small data.

    Computed: operations of two ViTs (12 blocks, width 192, 3 heads, 32 x 32 images, mean of tokens,
    no class token) with patches of 4 and of 8, the first over the second:

        patch_linear_operations       of the linear maps of all blocks alone (queries, keys, values,
                                      projection, MLP)
        patch_attention_operations    of the two products of attention alone
    """
    exact = models("identities")
    linear = identity(exact, "patch_linear_operations")
    yield at_most(
        "distance from 4 of operations of linear maps, patch 4 over patch 8",
        (linear - 4).map(abs),
        1e-9,
    )
    products = identity(exact, "patch_attention_operations")
    yield noted("operations of attention's products, patch 4 over patch 8", products)


@check("VIT-24")
def dense_layers_on_pixels_are_huge(models: Query) -> Iterator[Effect]:
    """Computed: `dense_over_convolution_weights`, the number of weights of a linear map from all 3
    x 32 x 32 inputs to all 64 x 32 x 32 outputs over that of a 3 x 3 convolution from 3 to 64
    channels, both counted on real layers (the dense one on torch's meta device) and without biases.
    That is 32⁴ / 9, about 116,508; "vastly" means at least a thousand times."""
    ratio = identity(models("identities"), "dense_over_convolution_weights")
    yield more(
        "weights of the dense layer over those of the convolution", ratio, 1.0, matters=log(1000)
    )
