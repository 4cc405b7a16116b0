"""Numbers as claims read them off results: one small function for each, named after what it is.

Each takes a model that was asked for and gives a `Quantity`; which result it reads stands in front
of it, and that is also how a study knows what to measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vitreous.claims.evidence import Rows, Trainings, Unreadable, reads
from vitreous.claims.quantity import (
    REPLICATES,
    SATURATED,
    Array,
    Quantity,
    replicates_from_interval,
    share_replicates,
)
from vitreous.claims.student_t import few_clusters

# How well it does.


def _resampled(rows: Rows, measure: str) -> Array:
    """The only row of a measure, by its replicates if it has any: on the same images those of two
    models are paired."""
    row = rows.where(measure=measure, overall=True)
    found = row.replicates()
    if found is None:  # results of version 0.1 have them elsewhere
        kept = rows.result.about.get("replicates", {}).get(rows.item.name)
        kept = kept.get(measure) if isinstance(kept, dict) else kept
        found = (
            np.asarray(kept, dtype=np.float64)[:, None]
            if kept and len(kept) == 1 + REPLICATES
            else None
        )
    return row.one() if found is None else found[:, 0]


@reads("accuracy")
def _accuracy(rows: Rows) -> Array:
    return 100 * _resampled(rows, "top-1")


def accuracy(trainings: Trainings) -> Quantity:
    """In percent. On the same images two models stay paired."""
    found = _accuracy(trainings)
    return replace(found, saturated=found.known and bool((found.values >= SATURATED).all()))


def error(trainings: Trainings) -> Quantity:
    """Test error in percent."""
    return 100 - accuracy(trainings)


@reads("calibration")
def calibration(rows: Rows, measure: str) -> Array:
    """ECE, signed ECE (confidence minus accuracy), Brier or NLL of the test images, paired as
    accuracy is."""
    return _resampled(rows, measure)


@reads("corruption")
def robustness(rows: Rows) -> Array:
    """Mean accuracy over corruptions and severities, in percent (A4.16)."""
    return 100 * rows.where(overall=True).one()


@reads("training")
def recorded(rows: Rows, measure: str) -> Array:
    """What the record of a training has in its last epoch."""
    chosen = rows.where(measure=measure)
    epochs = chosen.numbers("epoch")
    return chosen.select(epochs == epochs.max(initial=0)).one()


def train_nll(trainings: Trainings) -> Quantity:
    """Mean loss on the images as training shows them, augmented, in the last epoch (A4.01)."""
    return recorded(trainings, "train_nll")


# How sharp its loss is.


def _batch_weights(batches: int) -> Array:
    """(1 + REPLICATES, batches) how often each batch counts: once, then as in each resample.

    The same for all models: batch number b has the same images in all of them.
    """
    drawn = np.random.default_rng(batches).poisson(1.0, (REPLICATES, batches))
    return np.concatenate([np.ones((1, batches)), drawn])


def _resampled_batches(rows: Rows, counted: Callable[[Array], Any], values: bool) -> Array:
    """Mean over the eigenvalues of all batches, with batches resampled as a whole; wider than that
    by as much as so few batches say too little of how they differ.

    `counted` says which eigenvalues are averaged over (`values`), or which share of them is taken.
    """
    found = rows.where(measure="eigenvalue")
    if not len(found):
        raise Unreadable(f"hessian of {rows.item.name} has no eigenvalues")
    numbers = found.entries("batch").astype(np.int64)
    eigenvalues = found.numbers()
    chosen = counted(eigenvalues).astype(np.float64)
    total = np.bincount(numbers, chosen * eigenvalues if values else chosen)
    count = np.bincount(numbers, chosen if values else np.ones_like(chosen))
    weights = _batch_weights(len(total))
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = np.asarray((weights @ total) / (weights @ count))
        wider = few_clusters(len(total))
        if values:  # which are positive, and stay so
            return np.asarray(drawn[0] * (drawn / drawn[0]) ** wider)
        return np.asarray(drawn[0] + wider * (drawn - drawn[0]))


@reads("hessian")
def nep(rows: Rows) -> Array:
    """Share of negative ones among the largest Hessian eigenvalues (in absolute value) of
    batches."""
    found = _resampled_batches(rows, lambda each: each < 0, values=False)
    batches = len(set(rows.where(measure="eigenvalue").entries("batch")))
    return np.concatenate([found[:1], share_replicates(found[0], found[1:], batches)])


@reads("hessian")
def ape(rows: Rows) -> Array:
    """Mean of the positive ones."""
    return _resampled_batches(rows, lambda each: each > 0, values=True)


# What units do.


@reads("variance")
def variances(rows: Rows, kind: str | tuple[str, ...] | None = None) -> Array:
    """Of the maps after every unit, in order; of one kind if it is given."""
    return (rows if kind is None else rows.where(kind=kind)).draws()


def column(rows: Rows, name: str) -> Array:
    """A column that is no measurement, such as depth, for every reading the same."""
    if not len(rows):
        raise Unreadable(f"{rows.result.name} of {rows.item.name} has no such rows")
    return np.broadcast_to(rows.numbers(name), (1 + REPLICATES, len(rows)))


@reads("identities")
def identity(rows: Rows, measure: str) -> Array:
    """An exact property that was computed."""
    return rows.where(measure=measure).one()


# How alike representations are.


@reads("cka")
def cka_block_structure(rows: Rows) -> Array:
    """Mean CKA of units of one stage minus that of two; of thirds where there is one stage only
    (A4.13)."""
    model = rows.item.name
    stored = rows.result.about.get("block_structure", {}).get(model, {})
    return replicates_from_interval(
        f"{model}/block structure", *of_model(rows, "block_structure", model, stored)
    )


def of_model(
    rows: Rows, column: str, model: str, stored: Mapping[str, float | None]
) -> tuple[float, float, float]:
    """Value, low and high of a number that a model has once, the same in all of its rows.

    `stored` has it in results of version 0.1, whose tables lack the column.
    """
    if column in rows.result.column_names:
        known = Rows(rows.item, rows.result).where(model=model)
        known = known.select(~np.isnan(known.numbers(column)))
        ends_of = {"value": column, "low": f"{column}_low", "high": f"{column}_high"}
        stored = {end: known.numbers(name)[0] for end, name in ends_of.items() if len(known)}
    ends = (stored.get(end) for end in ("value", "low", "high"))
    value, low, high = (np.nan if end is None else float(end) for end in ends)
    if np.isnan(value):
        raise Unreadable(f"{rows.result.name} of {model!r} has no {column}")
    return value, low, high


# How far attention looks.


@reads("attention_distance")
def head_distances(rows: Rows, blocks: int = 1) -> Array:
    """Of every head of the first attention units, relative to uniform attention, which looks
    everywhere alike."""
    units = tuple(dict.fromkeys(rows.entries("unit")))
    chosen = rows.where(unit=units[:blocks])
    return chosen.draws() / column(chosen, "uniform")


@reads("attention_distance")
def unit_distances(rows: Rows) -> Array:
    """Mean over heads of every attention unit, in order, relative to uniform attention."""
    units = rows.entries("unit")
    first = np.arange(len(units)) == [list(units).index(unit) for unit in units]
    chosen = rows.select(first)
    return chosen.draws("mean") / column(chosen, "uniform")
