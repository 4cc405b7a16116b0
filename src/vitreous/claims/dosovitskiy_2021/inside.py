"""Inside a ViT: its patch filters, attention distance, and attention rollout."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import numpy as np

from vitreous.claims.dosovitskiy_2021.book import check
from vitreous.claims.effects import Effect, at_least, more
from vitreous.claims.evidence import Query, Rows, Unreadable, reads
from vitreous.claims.quantity import REPLICATES, Array, spearman
from vitreous.claims.readings import head_distances, unit_distances

STRONGEST = 8
"""Number of principal components of the filters that claims read."""


@reads("filters")
def strongest(rows: Rows, column: str) -> Array:
    """A column of the strongest components of the patch filters, the first rows (A4.29)."""
    return rows.select(np.arange(min(STRONGEST, len(rows)))).draws(column)


@check("VIT-08")
def filters_are_smooth(models: Query) -> Iterator[Effect]:
    """Filters that are mostly those of the start cannot show what is learned. Decay alone leaves
    exp(-decay · Σ rate) of them: with a decay of 0.05 less than a tenth from 50 on. Of the paper's
    training, where the rates add up to more than 100, nothing is left.

    On two cores with patches of 8, where there is more to see than in 4 x 4 pixels."""
    patch = 8 if models.sanity else None
    vit, untrained = models("vit", patch=patch), models("vit", patch=patch, checkpoint="start")
    slower = 1 - strongest(vit, "frequency").mean() / strongest(untrained, "frequency").mean()
    yield more(
        "how much lower the mean frequency of eight components is than before training, as a share",
        slower,
        matters=0.3,
    )
    energy = strongest(vit, "value").mean() * STRONGEST
    yield at_least("share of the filters' energy in them", energy, 0.7)
    yield at_least(
        "share of them that lies within the main components of patches of the images",
        strongest(vit, "overlap").mean(),
        0.6,
    )


@check("VIT-13")
def attention_looks_farther_with_depth(models: Query) -> Iterator[Effect]:
    distances = unit_distances(models("vit"))
    layers = distances.map(lambda row: np.arange(len(row)))
    yield more(
        "rank correlation of layer and mean attention distance",
        spearman(layers, distances),
        matters=0.6,
    )


@check("VIT-14")
def some_heads_are_global_at_once(models: Query) -> Iterator[Effect]:
    """Heads of an untrained network attend uniformly, so they are global as well."""
    farthest = head_distances(models("vit")).maximum()
    yield at_least(
        "distance of the farthest head in the first layer, relative to uniform attention",
        farthest,
        0.9,
    )


@check("VIT-15")
def hybrids_look_far_from_the_start(models: Query) -> Iterator[Effect]:
    hybrid, vit = (head_distances(models(model)).mean() for model in ("hybrid", "vit"))
    yield more(
        "mean distance in the first layer relative to uniform attention, hybrid minus ViT",
        hybrid - vit,
    )


@reads("rollout")
def on_the_object(rows: Rows) -> Array:
    """Share of rollout inside the object's box divided by the box's share of the image.

    Images are resampled here, in the same way for all models with as many images.
    """
    tiles = rows.where(tile=True)
    if "inside" in rows.result.column_names:
        tiles = tiles.select(~np.isnan(tiles.numbers("inside")))
    count = len(tiles)
    if not count or "inside" not in rows.result.column_names:
        raise Unreadable(
            f"rollout of {rows.item.name} does not say what lies inside the boxes of objects"
        )
    chosen = np.random.default_rng(count).integers(count, size=(REPLICATES, count))
    chosen = np.concatenate([np.arange(count)[None], chosen])
    inside, box = (tiles.numbers(name)[chosen].mean(1) for name in ("inside", "box"))
    return np.asarray(inside / box)


@check("VIT-16")
def rollout_finds_the_object(models: Query) -> Iterator[Effect]:
    """Always on the generated task of motifs, because it knows where the object is. Rollout runs on
    256 of its images (`images=tuple(range(256))`)."""
    yield more(
        "share of rollout within the object's box over the box's share of the image",
        on_the_object(models("vit", data="SYN-B")),
        1.0,
        matters=log(1.5),
    )
