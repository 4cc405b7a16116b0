"""Attention distance of heads, and receptive fields of early layers."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import numpy as np

from vitreous.claims.effects import Effect, at_least, less, more, noted
from vitreous.claims.evidence import Query, Rows, Trainings, reads
from vitreous.claims.quantity import Array, Quantity, spearman
from vitreous.claims.raghu_2021.book import check, few_images, larger
from vitreous.claims.readings import column, head_distances, unit_distances


@reads("local_heads")
def window_distances(rows: Rows) -> Array:
    """Mean attention distance of each window of heads of the first block, from the most local to
    the most global."""
    windowed = _windows(rows)
    _, first = np.unique(windowed.numbers("window"), return_index=True)
    return column(windowed.select(first), "distance")


@reads("local_heads")
def window_similarities(rows: Rows) -> Array:
    """CKA of each window of heads with the other model's first stage, mean over its units."""
    windowed = _windows(rows)
    windows = windowed.numbers("window")
    each = [windowed.select(windows == window).draws().mean(-1) for window in np.unique(windows)]
    return np.stack(each or [windowed.draws()], -1)


def _windows(rows: Rows) -> Rows:
    """The rows of pairs of a window of heads and a unit of the other model's first stage."""
    pairs = rows.where(other_model=rows.item.other)
    stage = pairs.numbers("other_stage")
    return pairs.select(stage == stage.min(initial=np.inf))


@reads("erf")
def radius(rows: Rows, depth: float, name: str = "value") -> Array:
    """Radius (or another column) of the effective receptive field of the centre at a depth,
    interpolated between units."""
    centre = rows.where(position="centre")
    values = centre.draws(name)
    depths = centre.numbers("depth")
    return np.array([np.interp(depth, depths, each) for each in values])


@reads("attention_distance")
def most_local_of_last(rows: Rows, blocks: int = 2) -> Array:
    """Distance of the most local head of the last attention units, relative to uniform
    attention."""
    units = tuple(dict.fromkeys(rows.entries("unit")))
    chosen = rows.where(unit=units[-blocks:])
    return np.asarray((chosen.draws() / column(chosen, "uniform")).min(1))


@check("SLC-09")
def low_heads_are_local_and_global(models: Query) -> Iterator[Effect]:
    """In any network the most global head has a larger distance than the most local one. A factor
    of 1.5 matters, and the untrained network shows how much of it is chance."""
    heads = head_distances(models("vit", **larger(models)))
    yield more(
        "distance of the most global head over that of the most local, block 1",
        heads.maximum() / heads.minimum(),
        1.0,
        matters=log(1.5),
    )
    yield less(
        "distance of the most local head of block 1, relative to uniform attention",
        heads.minimum(),
        1.0,
        matters=-log(0.7),
    )


@check("SLC-10")
def high_heads_are_global(models: Query) -> Iterator[Effect]:
    """The sentence is about all heads, so the most local one decides. Heads of a network that has
    learned little are global as well, as they were before: hence the least accuracy."""
    network = models("vit", **larger(models))
    yield at_least(
        "distance of the most local head of the last two blocks, relative to uniform attention",
        most_local_of_last(network),
        0.85,
    )
    yield noted("mean distance in the last two blocks", unit_distances(network)[-2:].mean())


def _lost_locality(models: Query, **size: str) -> Quantity:
    """Increase of the distance of the most local head of the first two blocks when the model is
    trained on few images."""
    few, all_images = models("vit", **size, **few_images(models)), models("vit", **size)
    return head_distances(few, blocks=2).minimum() - head_distances(all_images, blocks=2).minimum()


@check("SLC-11")
def locality_takes_data(models: Query) -> Iterator[Effect]:
    lost = _lost_locality(models, **larger(models))
    yield more(
        "most local head, few images minus all, in parts of uniform attention", lost, matters=0.1
    )


@check("SLC-12")
def small_models_stay_local(models: Query) -> Iterator[Effect]:
    small, large = _lost_locality(models), _lost_locality(models, size="s")
    yield less("locality lost with few images, small minus larger ViT", small - large)


@check("SLC-13")
def local_heads_are_convolutions(models: Query) -> Iterator[Effect]:
    """The two ends of the paper's axes decide, 0.60 and 0.25. Windows of heads overlap, so the rank
    correlation over them is weaker evidence than it seems."""
    model = models("vit", beside="resnet", **larger(models))
    distance, alike = window_distances(model), window_similarities(model)
    yield more(
        "CKA with ResNet's first stage, most local heads minus most global ones",
        alike[0] - alike[-1],
        paper=models.paper,
    )
    yield less("rank correlation of distance and that CKA", spearman(distance, alike))


@check("SLC-31")
def fields_are_large_early(models: Query) -> Iterator[Effect]:
    vit: Trainings = models("vit")
    yield more(
        "radius at a quarter of the depth in pixels, ViT minus ResNet",
        radius(vit, 0.25) - radius(models("resnet"), 0.25),
    )
    yield noted(
        "radius at half the depth of ViT, relative to a field that is the same everywhere",
        radius(vit, 0.5, "relative"),
    )
    yield noted("part of the image that has half of the gradient there", radius(vit, 0.5, "area"))
