"""Readings for this paper's claims: measures over a training, lesions of gates and positions, and
throughput."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from vitreous.claims.evidence import Rows, Unreadable, reads
from vitreous.claims.quantity import REPLICATES, Array, Quantity

When = Literal["start", "early", "least", "end"] | float
"""A time in a training: "start" is before it, "end" after it, and a number after that share of the
epochs. "early" is the minimum over the first tenth of the epochs (at least five), "least" the
minimum over all epochs."""
EARLY_EPOCHS, EARLY_SHARE = 5, 0.107

# Measures over a training. Its record has no intervals, so these numbers have none.


class Course(NamedTuple):
    """A measure by epoch and layer of a training."""

    epochs: Array
    layers: Array
    values: Array
    """(epochs, layers); NaN where nothing was recorded."""

    def of_layers(self, layers: Array) -> Course:
        """The same for some of the layers."""
        kept = np.isin(self.layers, layers)
        return Course(self.epochs, self.layers[kept], self.values[:, kept])


def course(
    rows: Rows, measure: str, reading: str = "", heads: Literal["mean", "max"] = "mean"
) -> Course:
    """A measure by epoch and layer, with the mean or maximum over heads."""
    entries = rows.where(measure=measure, reading=reading)
    if not len(entries):
        raise Unreadable(f"The record of {rows.item.name} has no {f'{reading} {measure}'.strip()}")
    epochs, row = np.unique(entries.numbers("epoch"), return_inverse=True)
    layers, column = np.unique(entries.numbers("layer"), return_inverse=True)
    cells = row * len(layers) + column
    count = len(epochs) * len(layers)
    if heads == "max":
        values = np.full(count, np.nan)
        np.fmax.at(values, cells, entries.numbers())
    else:
        with np.errstate(invalid="ignore"):
            sums = np.bincount(cells, entries.numbers(), minlength=count)
            values = sums / np.bincount(cells, minlength=count)
    return Course(epochs, layers, values.reshape(len(epochs), len(layers)))


def at(course: Course, when: When) -> Array:
    """The values of a course at a time, one number per layer."""
    epochs = course.epochs
    if isinstance(when, float):
        after = np.where(epochs > 0, np.abs(epochs - when * epochs[-1]), np.inf)
        return np.asarray(course.values[int(after.argmin())])
    if when in ("start", "end"):
        return np.asarray(course.values[0 if when == "start" else -1])
    last_early = max(EARLY_EPOCHS, round(EARLY_SHARE * epochs[-1]))
    chosen = (epochs >= 1) & (epochs <= last_early) if when == "early" else epochs >= 0
    return np.asarray(np.fmin.reduce(course.values[chosen], axis=0, initial=np.nan))


def without_interval(values: Array | float) -> Array:
    """(1 + REPLICATES, ...) of numbers without uncertainty: every replicate is the same."""
    return np.broadcast_to(
        np.asarray(values, dtype=np.float64), (1 + REPLICATES, *np.shape(values))
    )


@reads("training")
def nonlocality(
    rows: Rows, when: When = "end", reading: str = "true", gated: bool = False
) -> Array:
    """Nonlocality D_loc of every layer, or of the gated ones, in patches (A4.19).

    `reading` "true" gives each layer its own input, "official" gives all of them the bare patch
    embedding (X-22).
    """
    layers = course(rows, "nonlocality", reading)
    if gated:
        layers = layers.of_layers(course(rows, "gate").layers)
    return without_interval(at(layers, when))


@reads("training")
def gates(rows: Rows, when: When = "end", heads: Literal["mean", "max"] = "mean") -> Array:
    """Gate σ(λ) of every gated layer, with the mean or maximum over heads (A4.20)."""
    return without_interval(at(course(rows, "gate", heads=heads), when))


@reads("training")
def accuracy_after(rows: Rows, share: float) -> Array:
    """Test accuracy in percent after a share of the epochs."""
    return without_interval(100 * (1 - at(course(rows, "test_error"), share)[0]))


@reads("training")
def accuracy_within(rows: Rows, share: float) -> Array:
    """Test accuracy in percent, mean over the first `share` of the epochs (at least one)."""
    tests = course(rows, "test_error")
    errors = tests.values[tests.epochs > 0, 0]
    return without_interval(100 * (1 - errors[: count_of(len(errors), share)].mean()))


@reads("training")
def rise_of_test_loss(rows: Rows) -> Array:
    """NLL of the test images at the end minus its minimum over epochs."""
    losses = course(rows, "test_nll")
    return without_interval((at(losses, "end") - at(losses, "least"))[0])


# Lesions of trained models: of gates, positions and attention.


@reads("lesion")
def lost_without(rows: Rows, cue: Literal["content", "position"], share: float = 1.0) -> Array:
    """Points of accuracy lost by masking a cue in the first `share` of the gated layers (at least
    one): content by gates of one, position by gates of zero (A4.31)."""
    lost = 100 * rows.where(change=f"{cue} masked up to here").draws()
    return lost[:, count_of(lost.shape[1], share) - 1]


@reads("lesion")
def lost_without_embedding(rows: Rows) -> Array:
    """Points of accuracy lost by setting the absolute position embedding to zero (A4.31)."""
    return 100 * rows.where(change="masked").one()


@reads("lesion")
def lost_without_content(rows: Rows) -> Array:
    """Points of accuracy lost if the attention of one layer is replaced by its mean over images, so
    that content no longer matters (A2.26).

    Mean over the lower half of the attention layers, all of which use positions.
    """
    lost = 100 * rows.where(change="mean over images", kind="attention").draws()
    return lost[:, : count_of(lost.shape[1], 1 / 2)].mean(-1)


@reads("head_diversity")
def head_diversity(rows: Rows) -> Array:
    """KL divergence between heads, mean over pairs, of every attention layer in order."""
    return rows.draws()


@reads("nonlocality")
def mean_nonlocality(rows: Rows) -> Array:
    """D_loc at the end in patches, mean over all heads and layers."""
    return rows.draws().mean(-1)


@reads("cost")
def throughput(rows: Rows) -> Array:
    """Images a second."""
    return rows.one()


# Selecting layers.


def count_of(count: int, share: float) -> int:
    """A share of a number, rounded, and at least one."""
    return max(1, round(share * count))


def lower(layers: Quantity, share: float) -> Quantity:
    """The first `share` of the layers."""
    return layers.map(lambda row: row[: count_of(len(row), share)])


def upper(layers: Quantity, share: float) -> Quantity:
    """The last `share` of the layers."""
    return layers.map(lambda row: row[-count_of(len(row), share) :])


def as_deep_as(layers: Quantity, other: Quantity) -> Quantity:
    """The first layers of a model, as many as the other quantity has."""
    return layers[: min((rows.shape[1] for rows in other.seeds.values()), default=None)]
