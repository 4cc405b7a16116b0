"""Pairs of layers, as CKA compares them. Stem and head belong to no part of a model (A4.13) and are
left out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vitreous.claims.evidence import Rows, Unreadable, reads
from vitreous.claims.quantity import Array

ENDS = ("stem", "head")


def _inner(rows: Rows) -> Rows:
    """Streams after units that are no ends; a unit that is the same for all images has no
    similarity."""
    site = handed_on(rows)
    chosen = ~np.isnan(rows.numbers())
    for which in ("", "other_"):
        chosen &= rows.entries(f"{which}site") == site
        for end in ENDS:
            chosen &= rows.entries(f"{which}kind") != end
    return rows.select(chosen)


def handed_on(rows: Rows) -> str:
    """The site of the tensors that units hand on: results from before there was `out` call it
    `after`."""
    return "out" if (rows.entries("site") == "out").any() else "after"


def _within_model(rows: Rows) -> Rows:
    """Every two units of the model once, the earlier one first."""
    inner = _inner(rows).where(within=True)
    return inner.select(inner.numbers("depth") < inner.numbers("other_depth"))


@reads("cka")
def similarities(rows: Rows) -> Array:
    """Of every two units of the model."""
    return _within_model(rows).draws()


@reads("cka")
def early_and_late(rows: Rows, part: float) -> Array:
    """Of every unit in the first part of the depth with every one in the last."""
    found = _within_model(rows)
    early, late = found.numbers("depth") <= part, found.numbers("other_depth") >= 1 - part
    return found.select(early & late).draws()


@reads("cka")
def across_the_cut(rows: Rows, block: int) -> Array:
    """Mean over pairs of a unit before a block and one from it on, minus mean over pairs on the
    same side. A block begins with its attention."""
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


class Cross(NamedTuple):
    """Similarity of all units of a model to all of the one it is looked at beside."""

    values: Array
    """(1 + REPLICATES, units, units of the other)."""
    depth: Array
    other: Array


def cross(rows: Rows) -> Cross:
    """Whichever of the two models stands first in the result."""
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
    return Cross(values.reshape(shape), places, other_places)


@reads("cka")
def counterpart(rows: Rows, low: float, high: float) -> Array:
    """Depth of the unit most similar to a unit of the other model, mean over those of it that are
    deeper than `low` and not deeper than `high`."""
    found = cross(rows)
    chosen = (found.other > low) & (found.other <= high)
    if not chosen.any():
        raise Unreadable(f"{rows.item.other!r} has no units between depths {low} and {high}")
    return np.asarray(found.depth[found.values[:, :, chosen].argmax(1)].mean(-1))


@reads("cka")
def closest(rows: Rows, low: float, high: float) -> Array:
    """Similarity to the most similar unit of the other model, mean over units between two
    depths."""
    found = cross(rows)
    chosen = (found.depth > low) & (found.depth <= high)
    if not chosen.any():
        raise Unreadable(f"{rows.item.name!r} has no units between depths {low} and {high}")
    return np.asarray(found.values[:, chosen].max(2).mean(-1))


@reads("cka")
def similarity_across(rows: Rows) -> Array:
    """Mean over all pairs of a unit of one model and a unit of the other."""
    return np.asarray(cross(rows).values.mean((1, 2)))
