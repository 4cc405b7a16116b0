"""The numbers that claims read off results: one small function for each.

Each takes the trainings of a model and returns a `Quantity`. The decorator names the result that it
reads, and this is also how a study knows what to measure."""

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
from vitreous.claims.student_t import widening_factor

# Accuracy, calibration, training loss.


def _resampled(rows: Rows, measure: str) -> Array:
    """(1 + REPLICATES,) of the overall row of a measure, from its replicates if it has any."""
    row = rows.where(measure=measure, overall=True)
    replicates = row.replicates()
    if replicates is not None:
        return replicates[:, 0]
    stored = rows.result.about.get("replicates", {}).get(rows.item.name)  # version 0.1
    stored = stored.get(measure) if isinstance(stored, dict) else stored
    if stored and len(stored) == 1 + REPLICATES:
        return np.asarray(stored, dtype=np.float64)
    return row.one()


@reads("accuracy")
def _accuracy(rows: Rows) -> Array:
    return 100 * _resampled(rows, "top-1")


def accuracy(trainings: Trainings) -> Quantity:
    """Test accuracy in percent; models measured on the same images are paired."""
    percent = _accuracy(trainings)
    return replace(percent, saturated=percent.known and bool((percent.values >= SATURATED).all()))


def error(trainings: Trainings) -> Quantity:
    """Test error in percent."""
    return 100 - accuracy(trainings)


@reads("calibration")
def calibration(rows: Rows, measure: str) -> Array:
    """ECE, signed ECE (confidence minus accuracy), Brier score or NLL of the test images."""
    return _resampled(rows, measure)


@reads("corruption")
def robustness(rows: Rows) -> Array:
    """Mean accuracy over corruptions and severities, in percent (A4.16)."""
    return 100 * rows.where(overall=True).one()


@reads("training")
def recorded(rows: Rows, measure: str) -> Array:
    """A measure in the last epoch that has it in a training's record."""
    chosen = rows.where(measure=measure)
    epochs = chosen.numbers("epoch")
    return chosen.select(epochs == epochs.max(initial=0)).one()


@reads("training")
def warmup_steps(rows: Rows) -> Array:
    """Steps up to the end of the warm-up, where the checkpoint of that name is taken."""
    chosen = rows.where(measure="steps")
    last = rows.result.about.get("recipe", {}).get("warmup", np.nan)
    return chosen.select(chosen.numbers("epoch") == last).one()


def train_nll(trainings: Trainings) -> Quantity:
    """Mean loss on the augmented training images in the last epoch (A4.01)."""
    return recorded(trainings, "train_nll")


# Curvature of the loss.


def _batch_weights(batches: int) -> Array:
    """(1 + REPLICATES, batches) bootstrap weights; those of the value itself are ones.

    They are the same for all models, because batch number b has the same images for all of them.
    """
    weights = np.random.default_rng(batches).poisson(1.0, (REPLICATES, batches))
    return np.concatenate([np.ones((1, batches)), weights])


def _resampled_batches(rows: Rows, select: Callable[[Array], Any], values: bool) -> Array:
    """(1 + REPLICATES,) of a statistic of Hessian eigenvalues, with batches resampled as a whole.

    The statistic is the mean of the eigenvalues that `select` returns True for (`values`), or their
    share among all eigenvalues. With few batches the replicates are widened by `widening_factor`.
    """
    entries = rows.where(measure="eigenvalue")
    if not len(entries):
        raise Unreadable(f"hessian of {rows.item.name} has no eigenvalues")
    batches = entries.entries("batch").astype(np.int64)
    eigenvalues = entries.numbers()
    selected = select(eigenvalues).astype(np.float64)
    total = np.bincount(batches, selected * eigenvalues if values else selected)
    count = np.bincount(batches, selected if values else np.ones_like(selected))
    weights = _batch_weights(len(total))
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = np.asarray((weights @ total) / (weights @ count))
        factor = widening_factor(len(total))
        if values:  # on the logarithmic scale, so that positive means stay positive
            return np.asarray(draws[0] * (draws / draws[0]) ** factor)
        return np.asarray(draws[0] + factor * (draws - draws[0]))


@reads("hessian")
def nep(rows: Rows) -> Array:
    """Share of negative eigenvalues (NEP) among the Hessian's largest by absolute value."""
    draws = _resampled_batches(rows, lambda each: each < 0, values=False)
    batches = len(set(rows.where(measure="eigenvalue").entries("batch")))
    return np.concatenate([draws[:1], share_replicates(draws[0], draws[1:], batches)])


@reads("hessian")
def ape(rows: Rows) -> Array:
    """Mean of the positive eigenvalues (APE) among the Hessian's largest by absolute value."""
    return _resampled_batches(rows, lambda each: each > 0, values=True)


# Units.


@reads("variance")
def variances(rows: Rows, kind: str | tuple[str, ...] | None = None) -> Array:
    """Variance of the feature map after every unit, or every unit of a kind, in order."""
    return (rows if kind is None else rows.where(kind=kind)).draws()


def column(rows: Rows, name: str) -> Array:
    """(1 + REPLICATES, rows) of a column without uncertainty, such as depth."""
    if not len(rows):
        raise Unreadable(f"{rows.result.name} of {rows.item.name} has no such rows")
    return np.broadcast_to(rows.numbers(name), (1 + REPLICATES, len(rows)))


@reads("identities")
def identity(rows: Rows, measure: str) -> Array:
    """An exact property that was computed."""
    return rows.where(measure=measure).one()


# Similarity of representations.


@reads("cka")
def cka_block_structure(rows: Rows) -> Array:
    """Mean CKA of two units of one stage minus that of units of two stages (A4.13).

    For a model with one stage, thirds of its depth are compared instead.
    """
    model = rows.item.name
    stored = rows.result.about.get("block_structure", {}).get(model, {})
    return replicates_from_interval(
        f"{model}/block structure", *model_statistic(rows, "block_structure", model, stored)
    )


def model_statistic(
    rows: Rows, column: str, model: str, stored: Mapping[str, float | None]
) -> tuple[float, float, float]:
    """Value, low and high of a number that is the same in all rows of a model.

    `stored` has it for results of version 0.1, whose tables lack the column.
    """
    if column in rows.result.column_names:
        known = Rows(rows.item, rows.result).where(model=model)
        known = known.select(~np.isnan(known.numbers(column)))
        columns = {"value": column, "low": f"{column}_low", "high": f"{column}_high"}
        stored = {end: known.numbers(name)[0] for end, name in columns.items() if len(known)}
    ends = (stored.get(end) for end in ("value", "low", "high"))
    value, low, high = (np.nan if end is None else float(end) for end in ends)
    if np.isnan(value):
        raise Unreadable(f"{rows.result.name} of {model!r} has no {column}")
    return value, low, high


# Attention distance.


@reads("attention_distance")
def head_distances(rows: Rows, blocks: int = 1) -> Array:
    """Mean attention distance of every head of the first `blocks` attention units, relative to
    uniform attention."""
    units = tuple(dict.fromkeys(rows.entries("unit")))
    chosen = rows.where(unit=units[:blocks])
    return chosen.draws() / column(chosen, "uniform")


@reads("attention_distance")
def unit_distances(rows: Rows) -> Array:
    """Attention distance of every attention unit, mean over its heads, relative to uniform
    attention."""
    units = rows.entries("unit")
    first_row_of_unit = np.arange(len(units)) == [list(units).index(unit) for unit in units]
    chosen = rows.select(first_row_of_unit)
    return chosen.draws("mean") / column(chosen, "uniform")
