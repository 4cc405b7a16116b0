"""Where tokens are, and how a model is told."""

from __future__ import annotations

from collections.abc import Iterator

from vitreous.claims.claim import Part, at_least, at_most, more, noted
from vitreous.claims.dosovitskiy_2021.book import claim
from vitreous.claims.evidence import Look, Rows, reads
from vitreous.claims.measure import Array, Measure, beside
from vitreous.claims.readings import accuracy, identity

KINDS = {"1d": {}, "2d": {"positions": "2d"}, "relative": {"positions": "relative"}}
"""Position embeddings of Table 8; a list of vectors is the standard."""


def spread(measures: Measure) -> Measure:
    """Of numbers side by side."""
    return measures.most() - measures.least()


def by_kind(look: Look) -> Measure:
    """Accuracies with each of the three embeddings, side by side."""
    return beside([accuracy(look("vit", **facts)) for facts in KINDS.values()])


@claim(
    "VIT-01",
    "Without any position embedding a ViT is clearly less accurate.",
    place="Table 8",
    reported="ViT-B/16, ImageNet 5-shot: 61.4 % without, 64.0 to 64.2 % with any of three kinds",
    study="sweeps",
    task="SYN-C",
    seeds=3,
    large=True,
)
def positions_are_needed(look: Look) -> Iterator[Part]:
    """On the embedded task that asks for a place, a model without positions can only guess among four answers; where a
    small motif may be anywhere, it lacks nothing."""
    without, kinds = accuracy(look("vit", positions="none")), by_kind(look)
    yield at_least("accuracy with the worst kind of positions minus without any, in points", kinds.least() - without, 2,
                   paper=2.62)  # fmt: skip
    if look.sanity:
        yield at_most(
            "accuracy without positions where a place is asked for, in percent", without, 30
        )
        yield at_least("accuracy with the worst kind of positions, in percent", kinds.least(), 95)
        anywhere = accuracy(look("vit", data="SYN-B")) - accuracy(
            look("vit", positions="none", data="SYN-B")
        )
        yield at_most(
            "accuracy that positions are worth where none is needed, in points", anywhere, 2
        )


@claim(
    "VIT-02",
    "Which kind of position embedding it is hardly matters.",
    place="Table 8",
    reported="a list of vectors 64.2 %, rows and columns 64.0 %, relative 64.0 %; without any 61.4 %",
    study="sweeps",
    task="SYN-C",
    seeds=3,
)
def kind_of_positions_hardly_matters(look: Look) -> Iterator[Part]:
    kinds = by_kind(look)
    gained = kinds.least() - accuracy(look("vit", positions="none"))
    yield at_most("range over the kinds minus a third of what the worst gains over none, in points",
                  spread(kinds) - gained / 3, 0, paper=-0.67)  # fmt: skip
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


@claim(
    "VIT-03",
    "Whether positions are added once, in every layer, or the same in every layer hardly matters.",
    place="Table 8",
    reported="a list: 64.2, 64.0 and 64.3 %; rows and columns: 64.0, 64.0 and 64.0 %",
    study="sweeps",
    task="SYN-C",
    seeds=3,
)
def where_positions_join_hardly_matters(look: Look) -> Iterator[Part]:
    for kind, name, reported in (("1d", "a list", 0.33), ("2d", "rows and columns", 0.05)):
        ways = [look("vit", **KINDS[kind], injection=way) for way in (None, "every", "shared")]
        found = beside([accuracy(seen) for seen in ways])
        yield at_most(
            f"range of accuracy over three ways to add {name}, in points",
            spread(found),
            0.5,
            paper=reported,
        )


@reads("position_similarity")
def index(rows: Rows, name: str) -> Array:
    """One of the indices that sum up how alike embeddings of positions are (A4.28)."""
    return rows.where(index=name).one()


@claim(
    "VIT-04",
    "Positions learned as a plain list come to know the grid: near ones are alike, and those in one row or column.",
    place="Fig. 7 centre, Fig. 10",
    reported="seen in the pictures of ViT-L/32 (7 x 7 patches); the pattern depends on the recipe",
    study="zoo",
    task="SYN-E",
)
def positions_learn_the_grid(look: Look) -> Iterator[Part]:
    """That a position is most like itself needs no check: its cosine with itself is 1."""
    vit = look("vit")
    yield at_most(
        "rank correlation of distance and cosine",
        index(vit, "distance"),
        look.at(-0.5, sanity=-0.3),
    )
    lines = (index(vit, "row") + index(vit, "column")) / 2
    yield more("mean cosine in one row or column minus that of others as far apart", lines)
    if look.sanity:
        before = index(look("vit", moment="start"), "distance").map(abs)
        yield at_most("size of the rank correlation before training", before, 0.1)


@claim(
    "VIT-05",
    "A ViT without positions does not notice if the patches of an image are shuffled, with a class token or with the "
    "mean of all tokens.",
    place="Sec. 3.1",
    reported="follows from the architecture",
    study="identities",
    sanity=True,
)
def without_positions_a_bag_of_patches(look: Look) -> Iterator[Part]:
    """Computed: a ViT of 4 blocks, width 64, 4 heads, patch 4, for 32 x 32 images and 10 classes, float32, in
    evaluation mode, seed 0, with the weights of its head drawn from N(0, 1/64), because zeros would answer alike to
    everything; 8 images of N(0, 1); their 64 patches in an order drawn once. The value is the largest absolute
    difference of any score:

        permutation_class        without positions, class token
        permutation_mean         without positions, mean of all tokens
        permutation_positions    with a list of positions as it is initialised, class token
    """
    exact = look("identities")
    yield at_most(
        "largest change of a score, class token", identity(exact, "permutation_class"), 1e-5
    )
    yield at_most(
        "largest change of a score, mean of tokens", identity(exact, "permutation_mean"), 1e-5
    )
    yield at_least(
        "largest change of a score with positions", identity(exact, "permutation_positions"), 1e-3
    )


@claim(
    "VIT-06",
    "With its positions interpolated, a trained ViT works on larger images of the same patch size.",
    place="Sec. 3.2",
    reported="used to go from 224 to 384 pixels in fine-tuning",
    study="masked",
    sanity=True,
)
def positions_can_be_interpolated(look: Look) -> Iterator[Part]:
    """At half as many pixels again a side. On two cores only what interpolation itself promises is computed: a table of
    8 x 8 positions of width 64 with a class row, float32, taken over to 12 x 12, bilinear; the largest absolute
    difference from what it should be:

        interpolation_constant    all positions one vector drawn from N(0, 1): the same vector everywhere
        interpolation_linear      a plane over rows and columns, from 0 to 1 along each: the same plane on the new grid
        interpolation_class       the row of the class token: as it was
    """
    if look.sanity:
        exact = look("identities")
        for name in ("constant", "linear", "class"):
            found = identity(exact, f"interpolation_{name}")
            yield at_most(f"largest change of a {name} field" if name != "class" else "change of the class row",
                          found, 0 if name == "class" else 1e-5)  # fmt: skip
        return
    larger = accuracy(look("vit", resolution=48))
    for other in ("truncated", "random"):
        found = larger - accuracy(look("vit", resolution=48, embedding=other))
        yield at_least(
            f"accuracy at 48 pixels with interpolated minus with {other} positions, in points",
            found,
            10,
        )
    tuned = accuracy(look("vit", resolution=48, tuned="whole")) - accuracy(look("vit"))
    yield at_least(
        "accuracy at 48 pixels after fine-tuning minus at 32 before, in points", tuned, 0
    )
