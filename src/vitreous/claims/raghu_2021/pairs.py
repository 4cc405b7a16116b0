"""CKA of pairs of units, without stem and head (A4.13)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vitreous.claims.evidence import Rows, Unreadable, reads
from vitreous.claims.quantity import Array

ENDS = ("stem", "head")


def _inner(rows: Rows) -> Rows:
    """The pairs of inner units, without those whose CKA is undefined.

    It is undefined for a unit whose output is the same for all images.
    """
    site = stream_site(rows)
    chosen = ~np.isnan(rows.numbers())
    for which in ("", "other_"):
        chosen &= rows.entries(f"{which}site") == site
        for end in ENDS:
            chosen &= rows.entries(f"{which}kind") != end
    return rows.select(chosen)


def stream_site(rows: Rows) -> str:
    """The name of the units' output in the column `site`: "out", or "after" in older results."""
    return "out" if (rows.entries("site") == "out").any() else "after"


def _within_model(rows: Rows) -> Rows:
    """Every two units of the model once, the earlier one first."""
    inner = _inner(rows).where(within=True)
    return inner.select(inner.numbers("depth") < inner.numbers("other_depth"))


@reads("cka")
def similarities(rows: Rows) -> Array:
    """CKA of every pair of units of the model."""
    return _within_model(rows).draws()


@reads("cka")
def early_and_late(rows: Rows, part: float) -> Array:
    """CKA of every unit in the first `part` of the depth with every unit in the last `part`."""
    pairs = _within_model(rows)
    early, late = pairs.numbers("depth") <= part, pairs.numbers("other_depth") >= 1 - part
    return pairs.select(early & late).draws()


@reads("cka")
def across_the_cut(rows: Rows, block: int) -> Array:
    """Mean CKA of pairs across the beginning of a block, minus that of pairs on the same side.

    A block begins with its attention.
    """
    pairs = _within_model(rows)
    begins = np.unique(rows.where(kind="attention").numbers("depth"))
    if len(begins) < block:
        raise Unreadable(
            f"{rows.item.name} has {len(begins)} blocks, and its block {block} is asked for"
        )
    cut = begins[block - 1]
    crossing = (pairs.numbers("depth") < cut) & (pairs.numbers("other_depth") >= cut)
    across, same = pairs.select(crossing), pairs.select(~crossing)
    return across.draws().mean(-1) - same.draws().mean(-1)


class CrossSimilarity(NamedTuple):
    """CKA of all units of a model with all units of the second model."""

    values: Array
    """(1 + REPLICATES, units, units of the other)."""
    depth: Array
    other: Array


def cross_similarity(rows: Rows) -> CrossSimilarity:
    """The CKA between the models of a result; which of the two is listed first does not matter."""
    whole, (name, other) = Rows(rows.item, rows.result), (rows.item.name, rows.item.other)
    straight = _inner(whole.where(model=name, other_model=other))
    turned = _inner(whole.where(model=other, other_model=name))
    if name == other:
        turned = turned.select([])
    depth = np.concatenate([straight.numbers("depth"), turned.numbers("other_depth")])
    others = np.concatenate([straight.numbers("other_depth"), turned.numbers("depth")])
    assert straight.positions is not None
    assert turned.positions is not None
    positions = np.concatenate([straight.positions, turned.positions])
    places, other_places = np.unique(depth), np.unique(others)
    if not len(positions) or len(positions) != len(places) * len(other_places):
        raise Unreadable(f"cka of {name!r} beside {other!r} has {len(positions)} pairs of units")
    values = whole.select(positions[np.lexsort((others, depth))]).draws()
    shape = (len(values), len(places), len(other_places))
    return CrossSimilarity(values.reshape(shape), places, other_places)


@reads("cka")
def counterpart(rows: Rows, low: float, high: float) -> Array:
    """Depth of the unit most similar to a unit of the other model, mean over units of the other
    model with depths in (`low`, `high`]."""
    similarity = cross_similarity(rows)
    chosen = (similarity.other > low) & (similarity.other <= high)
    if not chosen.any():
        raise Unreadable(f"{rows.item.other!r} has no units between depths {low} and {high}")
    return np.asarray(similarity.depth[similarity.values[:, :, chosen].argmax(1)].mean(-1))


@reads("cka")
def closest(rows: Rows, low: float, high: float) -> Array:
    """CKA with the most similar unit of the other model, mean over units with depths in
    (`low`, `high`]."""
    similarity = cross_similarity(rows)
    chosen = (similarity.depth > low) & (similarity.depth <= high)
    if not chosen.any():
        raise Unreadable(f"{rows.item.name!r} has no units between depths {low} and {high}")
    return np.asarray(similarity.values[:, chosen].max(2).mean(-1))


@reads("cka")
def similarity_across(rows: Rows) -> Array:
    """Mean CKA over all pairs of a unit of one model and a unit of the other."""
    return np.asarray(cross_similarity(rows).values.mean((1, 2)))
