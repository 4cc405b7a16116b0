"""How far heads look, and what early layers see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from vitreous.claims.claim import Part, at_least, at_most, less, more, noted
from vitreous.claims.evidence import Look, Rows, Seen, reads
from vitreous.claims.measure import Array, Measure, spearman
from vitreous.claims.raghu_2021.book import claim, few_images, larger
from vitreous.claims.readings import column, head_distances, unit_distances

if TYPE_CHECKING:
    import pandas as pd


@reads("local_heads")
def window_distances(rows: Rows) -> Array:
    """Mean attention distance of each window of heads of the first block, from the most local to the most global."""
    return column(
        Rows(rows.exhibit, rows.result, _windows(rows).drop_duplicates("window")), "distance"
    )


@reads("local_heads")
def window_similarities(rows: Rows) -> Array:
    """CKA of each window with the units of the convolutional model's first stage, mean over those."""
    table = _windows(rows)
    found = [
        Rows(rows.exhibit, rows.result, part).draws().mean(-1)
        for _, part in table.groupby("window", sort=True)
    ]
    return np.stack(found or [Rows(rows.exhibit, rows.result, table).draws()], -1)


def _windows(rows: Rows) -> pd.DataFrame:
    table = rows.table[rows.table["other_model"] == rows.exhibit.other]
    return table[table["other_stage"] == table["other_stage"].min()].sort_values(
        "window", kind="stable"
    )


@reads("erf")
def radius(rows: Rows, depth: float, name: str = "value") -> Array:
    """Of the effective receptive field of the centre at a depth, between the units around it."""
    centre = rows.where(position="centre")
    values = centre.draws(name)
    return np.array([np.interp(depth, centre.table["depth"], each) for each in values])


@claim(
    "SLC-09",
    "In the lowest layer of a ViT some heads look at their surroundings and others at the whole image.",
    place="Fig. 3",
    reported="distances of heads in the two lowest blocks cover most of the axis from 0 to 120 pixels",
    study="zoo",
    task="SYN-B",
    large=True,
)
def low_heads_are_local_and_global(look: Look) -> Iterator[Part]:
    heads = head_distances(look("vit", **larger(look)))
    yield at_least(
        "distance of the most global head over that of the most local, block 1",
        _span(heads),
        1.5,
        versus=1,
    )
    yield at_most(
        "distance of the most local head of block 1, relative to uniform attention",
        heads.least(),
        0.7,
        versus=1,
    )


def _span(heads: Measure) -> Measure:
    return heads.most() / heads.least()


@claim(
    "SLC-10",
    "In the highest layers of a ViT all heads look at the whole image.",
    place="Fig. 3",
    reported="all heads of the two highest blocks lie near the upper end of the axis",
    study="zoo",
    task="SYN-B",
)
def high_heads_are_global(look: Look) -> Iterator[Part]:
    blocks = unit_distances(look("vit", **larger(look)))
    yield at_least(
        "mean distance in the last two blocks, relative to uniform attention",
        blocks[-2:].mean(),
        0.85,
    )
    yield at_least(
        "rank correlation of depth and mean distance", spearman(_order(blocks), blocks), 0.6
    )


def _order(row: Measure) -> Measure:
    return row.map(lambda each: np.arange(len(each)))


def _lost_locality(look: Look, **size: str) -> Measure:
    """How much farther the most local head of the two lowest blocks looks after training on few images."""
    few, all_images = look("vit", **size, **few_images(look)), look("vit", **size)
    return head_distances(few, blocks=2).least() - head_distances(all_images, blocks=2).least()


@claim(
    "SLC-11",
    "With little data the lowest layers of a ViT do not learn to look at their surroundings.",
    place="Fig. 4",
    reported="ViT-L/16 and H/14 trained on ImageNet alone have no local heads in the two lowest blocks",
    study="data",
    task="SYN-B",
    large=True,
)
def locality_takes_data(look: Look) -> Iterator[Part]:
    lost = _lost_locality(look, **larger(look))
    yield at_least(
        "most local head, few images minus all, in parts of uniform attention", lost, 0.1
    )


@claim(
    "SLC-12",
    "A small ViT still learns to look at surroundings from little data, where a larger one does not.",
    place="Fig. C.5",
    reported="ViT-B/32 trained on ImageNet keeps local heads",
    study="data",
)
def small_models_stay_local(look: Look) -> Iterator[Part]:
    small, large = _lost_locality(look), _lost_locality(look, size="s")
    yield less("locality lost with few images, small minus larger ViT", small - large)


@claim(
    "SLC-13",
    "Local heads of the first block of a ViT compute what the first layers of a ResNet do, and the less so the "
    "farther they look.",
    place="Fig. 5",
    reported="CKA falls steadily with distance, from about 0.60 to 0.25",
    study="zoo",
    task="SYN-B",
    large=True,
)
def local_heads_are_convolutions(look: Look) -> Iterator[Part]:
    model = look("vit", beside="resnet", **larger(look))
    distance, alike = window_distances(model), window_similarities(model)
    yield at_most(
        "rank correlation of distance and CKA with ResNet's first stage",
        spearman(distance, alike),
        -0.7,
    )
    yield at_least(
        "CKA of the most local heads minus that of the most global",
        alike[0] - alike[-1],
        0.1,
        paper=0.35,
    )


@claim(
    "SLC-31",
    "Receptive fields of a ViT are larger than those of a ResNet already in lower layers.",
    place="Fig. 6, App. C",
    reported="large early and global in the middle of ViT, with a strong centre; growing slowly in ResNet",
    study="zoo",
    task="SYN-B",
)
def fields_are_large_early(look: Look) -> Iterator[Part]:
    vit: Seen = look("vit")
    yield more(
        "radius at a quarter of the depth in pixels, ViT minus ResNet",
        radius(vit, 0.25) - radius(look("resnet"), 0.25),
    )
    yield noted(
        "radius at half the depth of ViT, relative to a field that is the same everywhere",
        radius(vit, 0.5, "relative"),
    )
    yield noted("part of the image that has half of the gradient there", radius(vit, 0.5, "area"))
