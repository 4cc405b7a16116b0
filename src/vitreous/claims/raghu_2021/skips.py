"""The ratio of skip and branch, and ViTs trained without some skips."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import numpy as np

from vitreous.claims.effects import Effect, at_most, less, more, noted
from vitreous.claims.evidence import Query, Rows, Unreadable, reads
from vitreous.claims.quantity import Array, side_by_side
from vitreous.claims.raghu_2021.book import check
from vitreous.claims.raghu_2021.pairs import across_the_cut
from vitreous.claims.readings import error

SKIPLESS = (2, 6, 9)
"""Blocks trained without skips, in networks of twelve blocks."""
SKIPLESS_SMALL = (2, 4)
"""Blocks trained without skips, in the small networks."""


@reads("skip_ratio")
def class_over_spatial(rows: Rows, low: float, high: float) -> Array:
    """Log of the ratio of skip over branch for the class token to that for spatial tokens, of each
    unit with a depth in [`low`, `high`)."""
    depth = rows.numbers("depth")
    part = rows.select((depth >= low) & (depth < high))
    one, other = (part.where(token=token) for token in ("class", "spatial"))
    if list(one.entries("unit")) != list(other.entries("unit")):
        raise Unreadable(
            f"skip_ratio of {rows.item.name} has units without a class token or without spatial "
            "ones"
        )
    return _log(one.draws()) - _log(other.draws())


def _log(ratios: Array) -> Array:
    return np.asarray(np.log(np.maximum(ratios, np.finfo(np.float64).tiny)))


@reads("skip_ratio")
def spatial_ratio(rows: Rows) -> Array:
    """Skip over branch of spatial tokens, mean over units.

    The first unit of each later stage, which reduces the resolution, is left out.
    """
    spatial = rows.where(token="spatial")
    stages, first = np.unique(spatial.numbers("stage"), return_index=True)
    shrinks = np.isin(np.arange(len(spatial)), first[stages > stages.min(initial=np.inf)])
    return spatial.select(~shrinks).draws().mean(-1)


@reads("skip_ratio")
def class_over_spatial_means(rows: Rows, low: float, high: float) -> Array:
    """Mean skip over branch of the class token divided by that of spatial tokens, over units with
    depths in [`low`, `high`)."""
    depth = rows.numbers("depth")
    part = rows.select((depth >= low) & (depth < high))
    one, other = (part.where(token=token).draws().mean(-1) for token in ("class", "spatial"))
    return np.asarray(one / other)


@check("SLC-14")
def class_token_waits(models: Query) -> Iterator[Effect]:
    """The ratio of means over units decides. A geometric mean, which is noted, is dominated by the
    first attention, where the class token has its initial value and the ratio is near zero."""
    vit = models("vit")
    yield more(
        "skip over branch, class token over spatial tokens, first half",
        class_over_spatial_means(vit, 0.0, 0.5),
        1.0,
    )
    geometric = class_over_spatial(vit, 0.0, 0.5).mean().map(np.exp)
    yield noted("the same, geometric mean over units", geometric)


@check("SLC-15")
def then_it_is_worked_on(models: Query) -> Iterator[Effect]:
    """The claimed transition is that the ratio is above one first, and below one later."""
    vit = models("vit")
    yield less(
        "skip over branch, class token over spatial tokens, last quarter",
        class_over_spatial_means(vit, 0.75, 1.0),
        1.0,
    )
    yield more("the same in the first half", class_over_spatial_means(vit, 0.0, 0.5), 1.0)


@check("SLC-16")
def skips_carry_more(models: Query) -> Iterator[Effect]:
    """A factor of 1.5 matters. The branches of an untrained ResNet may be zero; then the ratio is
    undefined, and there is no control."""
    vit, resnet = spatial_ratio(models("vit")), spatial_ratio(models("resnet"))
    yield more("mean of skip over branch, ViT over ResNet", vit / resnet, 1.0, matters=log(1.5))


@check("SLC-17")
def without_skips_it_falls_apart(models: Query) -> Iterator[Effect]:
    """Distant layers are less similar in any model, so the difference from an intact model decides.
    A tenth matters."""
    blocks = SKIPLESS_SMALL if models.sanity else SKIPLESS
    cuts = [across_the_cut(models("vit", skipless=block), block) for block in blocks]
    intact = [across_the_cut(models("vit"), block) for block in blocks]
    label = "CKA across the cut minus on its sides"
    yield less(
        f"{label}, without skips in a block minus that of an intact ViT, mean over blocks",
        side_by_side(cuts).mean() - side_by_side(intact).mean(),
        matters=0.1,
    )
    for block, cut, whole in zip(blocks, cuts, intact, strict=True):
        yield less(f"{label}, no skips in block {block}", cut)
        yield noted(f"{label}, of an intact ViT, at block {block}", whole, paper=0)


@check("SLC-18")
def middle_skips_are_worth_a_few_percent(models: Query) -> Iterator[Effect]:
    drops = [error(models("vit", skipless=block)) - error(models("vit")) for block in SKIPLESS[1:]]
    label = "accuracy lost without the skips of a middle block, in points"
    yield more(f"{label}, mean", side_by_side(drops).mean(), paper=models.paper)
    for block, drop in zip(SKIPLESS[1:], drops, strict=True):
        yield at_most(f"{label}, block {block}", drop, 10, paper=4.0)
