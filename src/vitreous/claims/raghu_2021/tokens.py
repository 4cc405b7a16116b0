"""Single tokens: how well they encode their position, and the class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vitreous.claims.effects import Effect, at_least, at_most, less, more, noted, within
from vitreous.claims.evidence import Query, Rows, Unreadable, reads
from vitreous.claims.quantity import (
    Array,
    Quantity,
    best_of,
    replicates_from_interval,
    side_by_side,
)
from vitreous.claims.raghu_2021.book import check
from vitreous.claims.raghu_2021.probes import probe
from vitreous.claims.readings import accuracy, model_statistic
from vitreous.results import mean_of_few

RATES = (None, 0.4)
"""Learning rates, as multiples of the recipe's; the better one counts. None is the recipe's own."""


def _index(rows: Rows, measure: str, model: str) -> Array:
    """An index of the similarity of final tokens to patches: `hit_rate` (of interior tokens) or
    `contrast`."""
    stored = rows.result.about.get("indices", {}).get(model, {}).get(measure, {})
    return replicates_from_interval(
        f"{model}/localisation/{measure}", *model_statistic(rows, measure, model, stored)
    )


def _cells(rows: Rows, model: str) -> int | None:
    """Number of cells of the grid that a model was compared on."""
    if "chance" in rows.result.column_names:
        chances = Rows(rows.item, rows.result).where(model=model).numbers("chance")
        return round(1 / chances[0]) if len(chances) else None
    grid = rows.result.about.get("indices", {}).get(model, {}).get("grid")
    return None if grid is None else grid[0] * grid[1]  # a result of version 0.1


@reads("localisation")
def own_patch_contrast(rows: Rows) -> Array:
    """Similarity of tokens to the patch at their position minus that to the others (A4.22)."""
    return _index(rows, "contrast", rows.item.name)


@reads("localisation")
def localised(rows: Rows, measure: str, times: float = 1.0) -> Array:
    """An index of a model minus `times` that of the second model.

    Both have to be measured on the same grid, the coarser of the two (the option `grid`), because
    chance depends on the grid.
    """
    names = rows.item.name, rows.item.other
    cells = [_cells(rows, name) for name in names]
    if cells[0] != cells[1]:
        raise Unreadable(
            f"localisation of {names[0]!r} and {names[1]!r} is on grids of {cells[0]} and "
            f"{cells[1]} cells"
        )
    one, other = (_index(rows, measure, name) for name in names)
    return one - times * other


@reads("localisation")
def edge_to_edge(rows: Rows) -> Array:
    """Similarity of edge tokens to other edge patches minus that to inner patches.

    Its interval is over tokens.
    """
    maps = rows.result.arrays.get(rows.item.name)
    if maps is None or min(maps.shape) < 3:
        raise Unreadable(f"localisation of {rows.item.name!r} has no map with an inside")
    height, width = maps.shape[:2]
    inside = np.zeros((height, width), dtype=bool)
    inside[1:-1, 1:-1] = True
    tokens = np.asarray(maps, dtype=np.float64).reshape(height * width, height * width)
    np.fill_diagonal(tokens, np.nan)
    edge = tokens[~inside.ravel()]
    each = np.nanmean(edge[:, ~inside.ravel()], 1) - np.nanmean(edge[:, inside.ravel()], 1)
    return replicates_from_interval(f"{rows.item.name}/edge", *mean_of_few(each))


@check("SLC-19")
def tokens_keep_their_place(models: Query) -> Iterator[Effect]:
    """The contrast decides: if the coarser of the two grids has only four inner tokens, there are
    few hits."""
    pair = models("vit", beside="resnet")
    yield more(
        "similarity to the own patch minus the others, ViT minus ResNet",
        localised(pair, "contrast"),
        matters=0.05,
    )
    yield more(
        "share of inner tokens most like their own patch, ViT minus ResNet",
        localised(pair, "hit_rate"),
    )


@check("SLC-20")
def edges_resemble_edges(models: Query) -> Iterator[Effect]:
    yield more(
        "CKA of edge tokens with other edge patches minus with inner ones",
        edge_to_edge(models("vit")),
    )


@check("SLC-21")
def pooling_loses_places(models: Query) -> Iterator[Effect]:
    pooled, with_class = (
        own_patch_contrast(models("vit", pool="gap")),
        own_patch_contrast(models("vit")),
    )
    yield less("contrast of own patch and others, pooled minus class token", pooled - with_class)
    yield noted("contrast of own patch and others with a class token", with_class)


@check("SLC-22")
def single_tokens_know_if_pooled(models: Query) -> Iterator[Effect]:
    """Accuracies are above chance, which is a tenth for ten classes."""
    networks = models("vit", pool="gap"), models("vit"), models("resnet")
    pooled, with_class, resnet = (
        probe(each, "each position alone", above_chance=True) for each in networks
    )
    label = "accuracy of single tokens at the end, above chance"
    yield more(f"{label}, pooled over class token", pooled / with_class, 1.0, paper=models.paper)
    yield noted(f"{label}, ResNet over ViT with a class token", resnet / with_class, paper=6.0)


@check("SLC-23")
def class_token_is_essential(models: Query) -> Iterator[Effect]:
    """Three points matter. That pooled tokens stop improving means a gain of at most one point from
    three quarters of the depth to the end."""
    vit = models("vit")
    token, pooled = (probe(vit, name) for name in ("class token", "mean over positions"))
    yield more(
        "accuracy of class token minus pooled tokens at the end, in points",
        token - pooled,
        matters=3.0,
    )
    earlier = probe(vit, "mean over positions", 0.75)
    yield at_most(
        "what pooled tokens gain in the last quarter of the depth, in points", pooled - earlier, 1.0
    )
    middle = probe(vit, "class token", "middle") - probe(vit, "mean over positions", "middle")
    yield noted("accuracy of class token minus pooled tokens in the middle, in points", middle)


@check("SLC-24")
def one_token_is_all(models: Query) -> Iterator[Effect]:
    """Shares of the accuracy above chance. "Early" is the second block, or the first for generated
    images, whose networks may have only two."""
    pooled = models("vit", pool="gap")

    def share(at: str | int) -> Quantity:
        first = probe(pooled, "first position", at, above_chance=True)
        return first / probe(pooled, "mean over positions", at, above_chance=True)

    early = 1 if models.sanity else 2
    yield more(
        f"what the first token knows of all tokens pooled, at the end minus after block {early}",
        share("last") - share(early),
        matters=0.4,
    )
    yield at_least("the same at the end", share("last"), 0.8)


@check("SLC-25")
def either_way_of_reading_out(models: Query) -> Iterator[Effect]:
    """Park and Kim contradict this claim: with mean pooling they gain 2.7 points."""
    with_class, pooled = (
        best_of(side_by_side([accuracy(models("vit", pool=pool, rate=rate)) for rate in RATES]))
        for pool in (None, "gap")
    )
    yield within(
        "accuracy of pooling minus class token, each at its better rate, in points",
        pooled - with_class,
        1.5,
    )
