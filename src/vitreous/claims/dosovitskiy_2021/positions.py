"""Position embeddings: whether they are needed, which kind, and what they learn."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.dosovitskiy_2021.book import check
from vitreous.claims.effects import Effect, at_least, at_most, less, more, noted
from vitreous.claims.evidence import Query, Rows, reads
from vitreous.claims.quantity import Array, Quantity, largest_difference, side_by_side
from vitreous.claims.readings import accuracy, identity

KINDS = {"1d": {}, "2d": {"positions": "2d"}, "relative": {"positions": "relative"}}
"""Facts of the three kinds of position embeddings in Table 8; 1-d is the standard."""


def by_kind(models: Query) -> Quantity:
    """Accuracies with each of the three kinds of embeddings, as a row."""
    return side_by_side([accuracy(models("vit", **facts)) for facts in KINDS.values()])


@check("VIT-01")
def positions_are_needed(models: Query) -> Iterator[Effect]:
    """Two points matter; the paper's 2.6 are for another task. On the generated task whose classes
    are positions, a model without positions can only guess among four classes. On the task of a
    motif that can be anywhere, it should lose nothing."""
    without, kinds = accuracy(models("vit", positions="none")), by_kind(models)
    yield more(
        "accuracy with positions, mean of three kinds, minus without any, in points",
        kinds.mean() - without,
        matters=2.0,
    )
    if models.sanity:
        yield at_most(
            "accuracy without positions where a place is asked for, in percent", without, 30
        )
        yield at_least("accuracy with the worst kind of positions, in percent", kinds.minimum(), 95)
        anywhere = accuracy(models("vit", data="SYN-B")) - accuracy(
            models("vit", positions="none", data="SYN-B")
        )
        yield at_most(
            "accuracy that positions are worth where none is needed, in points", anywhere, 2
        )


@check("VIT-02")
def kind_of_positions_hardly_matters(models: Query) -> Iterator[Effect]:
    """The bound is a third of the gain by positions. The best and the worst kind are those with the
    best and the worst mean over trainings."""
    kinds = by_kind(models)
    gained = kinds.mean() - accuracy(models("vit", positions="none"))
    yield at_most(
        "best minus worst kind, minus a third of what positions are worth, in points",
        largest_difference(kinds, gained / 3),
        0.0,
    )
    yield noted(
        "accuracy with rows and columns minus with a list, in points",
        kinds[1] - kinds[0],
        paper=-0.2,
    )
    yield noted(
        "accuracy with relative positions minus with a list, in points",
        kinds[2] - kinds[0],
        paper=-0.17,
    )


@check("VIT-03")
def where_positions_join_hardly_matters(models: Query) -> Iterator[Effect]:
    """The bound is half a point, between the ways with the best and the worst mean over
    trainings."""
    for kind, name, reported in (("1d", "a list", models.paper), ("2d", "rows and columns", 0.05)):
        ways = [models("vit", **KINDS[kind], injection=way) for way in (None, "every", "shared")]
        accuracies = side_by_side([accuracy(trainings) for trainings in ways])
        yield at_most(
            f"accuracy with the best of three ways to add {name} minus the worst, in points",
            largest_difference(accuracies),
            0.5,
            paper=reported,
        )


@reads("position_similarity")
def index(rows: Rows, name: str) -> Array:
    """An index that summarises the similarity of position embeddings (A4.28)."""
    return rows.where(index=name).one()


@check("VIT-04")
def positions_learn_the_grid(models: Query) -> Iterator[Effect]:
    """That a position is most similar to itself needs no check: its cosine with itself is 1."""
    vit = models("vit")
    yield less(
        "rank correlation of distance and cosine",
        index(vit, "distance"),
        matters=models.at(0.5, sanity=0.3),
    )
    lines = (index(vit, "row") + index(vit, "column")) / 2
    yield more("mean cosine in one row or column minus that of others as far apart", lines)


@check("VIT-05")
def without_positions_a_bag_of_patches(models: Query) -> Iterator[Effect]:
    """Computed: a ViT of 4 blocks, width 64, 4 heads, patch 4, for 32 x 32 images and 10 classes,
    float32, in evaluation mode, seed 0, with the weights of its head drawn from N(0, 1/64), because
    zeros would answer alike to everything; 8 images of N(0, 1); their 64 patches in an order drawn
    once. The value is the largest absolute difference of any score:

        permutation_class        without positions, class token
        permutation_mean         without positions, mean of all tokens
        permutation_positions    with a list of positions as it is initialised, class token
    """
    exact = models("identities")
    yield at_most(
        "largest change of a score, class token", identity(exact, "permutation_class"), 1e-5
    )
    yield at_most(
        "largest change of a score, mean of tokens", identity(exact, "permutation_mean"), 1e-5
    )
    yield at_least(
        "largest change of a score with positions", identity(exact, "permutation_positions"), 1e-3
    )


@check("VIT-06")
def positions_can_be_interpolated(models: Query) -> Iterator[Effect]:
    """At 1.5 times the side of the images. On two cores only exact properties of interpolation are
    computed. A table of 8 x 8 positions of width 64 with a class row, float32, is interpolated to
    12 x 12, bilinear. The numbers are largest absolute differences from the exact result:

        interpolation_constant    all positions one vector of N(0, 1): the same vector everywhere
        interpolation_linear      a plane, from 0 to 1 along rows and columns: the same plane on
                                  the new grid
        interpolation_class       the row of the class token: as it was
    """
    if models.sanity:
        exact = models("identities")
        for name in ("constant", "linear", "class"):
            change = identity(exact, f"interpolation_{name}")
            label = (
                "change of the class row"
                if name == "class"
                else f"largest change of a {name} field"
            )
            yield at_most(label, change, 0 if name == "class" else 1e-5)
        return
    larger = accuracy(models("vit", resolution=48))
    for other in ("truncated", "random"):
        yield more(
            f"accuracy at 48 pixels with interpolated minus with {other} positions, in points",
            larger - accuracy(models("vit", resolution=48, embedding=other)),
            matters=10.0,
        )
    tuned = accuracy(models("vit", resolution=48, tuned="whole")) - accuracy(models("vit"))
    yield more("accuracy at 48 pixels after fine-tuning minus at 32 before, in points", tuned)
