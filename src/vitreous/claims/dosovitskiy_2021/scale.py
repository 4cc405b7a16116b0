"""What more data, more computing and another learning rate change."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from vitreous.claims.claim import Part, at_least, at_most, more, noted
from vitreous.claims.dosovitskiy_2021.book import claim
from vitreous.claims.evidence import Look, Rows, reads
from vitreous.claims.measure import Array, Measure, beside
from vitreous.claims.readings import accuracy, identity

RATES = (0.3, None, 3)
"""Multiples of the recipe's learning rate; None is the recipe's own."""
SHARES = (0.1, 0.3, None)
"""Of the training images; None is all. Every model sees as many images in all."""


@claim(
    "VIT-07",
    "Mean pooling only seems much worse than a class token: it needs another learning rate.",
    place="Fig. 9, App. D.3",
    reported="class token at 8e-4 is as good as the mean at 3e-4, and better than the mean at 8e-4",
    study="sweeps",
    task="SYN-B",
    seeds=3,
    large=True,
)
def pooling_needs_its_own_rate(look: Look) -> Iterator[Part]:
    """Something is lost at the other's best rate if the best rates differ, or if the mean is worse there."""
    token, pooled = (
        beside([accuracy(look("vit", pool=pool, rate=rate)) for rate in RATES])
        for pool in (None, "gap")
    )
    apart = (token.most() - pooled.most()).map(abs)
    yield at_most("difference of the two at their best rates, in points", apart, 1.5)
    yield more("what the mean loses at the class token's best rate against the better of both, in points",
               _lost(token, pooled))  # fmt: skip


def _lost(token: Measure, pooled: Measure) -> Measure:
    def of(row: Array) -> Any:
        one, other = row[: len(RATES)], row[len(RATES) :]
        return row.max() - other[one.argmax()]

    columns = [each[number] for each in (token, pooled) for number in range(len(RATES))]
    return beside(columns).map(of)


@reads("cost")
def gflops(rows: Rows) -> Array:
    """Billions of operations for one image."""
    return rows.one("gflops")


@claim(
    "VIT-09",
    "A ViT on the maps of a small ResNet beats a plain ViT where little is computed, and the advantage fades as models "
    "and trainings grow.",
    place="Fig. 5, Table 6",
    reported="ImageNet: 84.9 % against 80.7 % with B/32, 85.6 against 84.2 % with B/16, 87.1 % both with L/16",
    study="masked",
    task="SYN-B",
    large=True,
)
def hybrids_win_where_computing_is_scarce(look: Look) -> Iterator[Part]:
    """Scarce is a quarter of the training; it grows to a whole one, or the model by a size. The paper's axis is
    computing, not data."""

    def gap(**facts: Any) -> Measure:
        return accuracy(look("hybrid", **facts)) - accuracy(look("vit", **facts))

    scarce = gap(epochs=0.25)
    yield at_least(
        "accuracy of the hybrid minus that of ViT after a short training, in points",
        scarce,
        2,
        paper=4.17,
    )
    yield more(
        "how much less that is after a training four times as long, in points", scarce - gap()
    )
    yield more(
        "how much less that is for the larger size, in points",
        scarce - gap(epochs=0.25, size="s"),
        paper=4.17,
    )
    cost = gflops(look("hybrid", epochs=0.25)) / gflops(look("vit", epochs=0.25))
    yield noted("operations of the hybrid over those of ViT", cost)


@claim(
    "VIT-10",
    "A ViT needs half the computing of a ResNet, or less, to be as accurate.",
    place="Sec. 4.4, Fig. 5",
    reported="two to four times less computing before transfer, mean of five data sets",
    study="zoo",
    large=True,
)
def vits_need_less_computing(look: Look) -> Iterator[Part]:
    """The paper compares curves over models trained on 300 million images. Small data have no such curve, so what is
    asked is plain: as accurate as the ResNet of the study, after as many epochs, at half its operations an image."""
    vit, resnet = look("vit"), look("resnet")
    yield at_least(
        "accuracy of ViT minus that of ResNet, in points", accuracy(vit) - accuracy(resnet), 0
    )
    yield at_least(
        "operations of ResNet over those of ViT", gflops(resnet) / gflops(vit), 2, paper=2, versus=1
    )


def with_share(look: Look, model: str, share: float | None, **facts: Any) -> Measure:
    """Accuracy of a model that learned from a share of the images."""
    return accuracy(look(model, fraction=share, schedule="samples" if share else None, **facts))


def steps(says: str, effects: list[Measure], paper: tuple[float | None, ...]) -> Iterator[Part]:
    """One part for every step from a share to the next larger one."""
    for (small, large), (before, after), reported in zip(
        pairwise(SHARES), pairwise(effects), paper, strict=True
    ):
        shares = " to ".join(f"{100 * (share or 1):.0f} %" for share in (small, large))
        yield more(f"{says} from {shares} of the images, in points", after - before, paper=reported)


@claim(
    "VIT-11",
    "A ResNet is better with few images, and the more there are the more a ViT catches up.",
    place="Fig. 3, 4",
    reported="ViT-B/32 is far below ResNet-50 with 9 million images of JFT and above it from 90 million on",
    study="data",
    task="SYN-E",
    large=True,
)
def data_stand_in_for_inductive_bias(look: Look) -> Iterator[Part]:
    """Whether ViT overtakes is noted only: that takes more images than small sets have."""
    ahead = [with_share(look, "vit", share) - with_share(look, "resnet", share) for share in SHARES]
    yield from steps("gain of ViT on ResNet", ahead, (None, None))
    yield noted("accuracy of ViT minus that of ResNet with all images, in points", ahead[-1])


@claim(
    "VIT-12",
    "The larger a ViT the more data it needs: what the next size is worth grows with the number of images.",
    place="Table 5",
    reported="ImageNet after training on ImageNet, 21k, JFT: L/16 76.5, 85.2, 87.1 %; B/16 77.9, 84.0, 84.2 %",
    study="data",
    large=True,
)
def larger_models_need_more_data(look: Look) -> Iterator[Part]:
    worth = [
        with_share(look, "vit", share, size="s") - with_share(look, "vit", share)
        for share in SHARES
    ]
    yield from steps("gain of the next size on the standard one", worth, (2.56, 1.79))


@claim(
    "VIT-21",
    "The smaller the patches the longer the sequence and the higher the cost: half the side is four times the work.",
    place="Sec. 3.1, App. D.2",
    reported="the number of tokens goes with one over the square of the side; smaller patches do better on JFT",
    study="identities",
    sanity=True,
    large=True,
)
def smaller_patches_cost_more(look: Look) -> Iterator[Part]:
    """Whether they also do better is HDV-19's question, and its answer on small data is another.

    Computed: operations of two ViTs (12 blocks, width 192, 3 heads, 32 x 32 images, mean of tokens, no class token)
    with patches of 4 and of 8, the first over the second:

        patch_linear_operations       of the linear maps of all blocks (queries, keys, values, projection, MLP) alone
        patch_attention_operations    of the two products of attention alone
    """
    exact = look("identities")
    linear = identity(exact, "patch_linear_operations")
    yield at_most(
        "distance from 4 of operations of linear maps, patch 4 over patch 8",
        (linear - 4).map(abs),
        1e-9,
    )
    products = identity(exact, "patch_attention_operations")
    yield noted("operations of attention's products, patch 4 over patch 8", products)


@claim(
    "VIT-24",
    "A dense layer on pixels needs vastly more weights than a convolution from the same map to the same map.",
    place="Sec. 1",
    reported="follows from counting",
    study="identities",
    sanity=True,
)
def dense_layers_on_pixels_are_huge(look: Look) -> Iterator[Part]:
    """Computed: `dense_over_convolution_weights`, the number of weights of a linear map from all 3 x 32 x 32 inputs to
    all 64 x 32 x 32 outputs over that of a 3 x 3 convolution from 3 to 64 channels, both counted on real layers (the
    dense one on torch's meta device) and without biases. That is 32⁴ / 9, about 116,508; vastly is a thousand times."""
    found = identity(look("identities"), "dense_over_convolution_weights")
    yield at_least(
        "weights of the dense layer over those of the convolution", found, 1000, versus=1
    )
