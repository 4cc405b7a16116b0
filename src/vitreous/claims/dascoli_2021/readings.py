"""What this paper's claims read: courses of a training, gates and positions forced, and how fast a
model is."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from vitreous.claims.evidence import Rows, Unreadable, reads
from vitreous.claims.quantity import REPLICATES, Array, Quantity

When = Literal["start", "early", "least", "end"] | float
"""Before training; the least of the first tenth of the epochs, five at least; the least of all; the
end; or after that share of the epochs."""
EARLY_EPOCHS, EARLY_SHARE = 5, 0.107

# Courses. The record of a training states no intervals, so these numbers have none.


class Course(NamedTuple):
    """A measure in the course of a training."""

    epochs: Array
    layers: Array
    values: Array
    """(epochs, layers); NaN where nothing was recorded."""

    def of_layers(self, layers: Array) -> Course:
        """The course of some layers."""
        kept = np.isin(self.layers, layers)
        return Course(self.epochs, self.layers[kept], self.values[:, kept])


def course(
    rows: Rows, measure: str, reading: str = "", heads: Literal["mean", "max"] = "mean"
) -> Course:
    """A measure by epoch and layer, over heads as their mean or 'max'."""
    found = rows.where(measure=measure, reading=reading)
    if not len(found):
        raise Unreadable(f"The record of {rows.item.name} has no {f'{reading} {measure}'.strip()}")
    epochs, row = np.unique(found.numbers("epoch"), return_inverse=True)
    layers, column = np.unique(found.numbers("layer"), return_inverse=True)
    cells = row * len(layers) + column
    count = len(epochs) * len(layers)
    if heads == "max":
        values = np.full(count, np.nan)
        np.fmax.at(values, cells, found.numbers())
    else:
        with np.errstate(invalid="ignore"):
            sums = np.bincount(cells, found.numbers(), minlength=count)
            values = sums / np.bincount(cells, minlength=count)
    return Course(epochs, layers, values.reshape(len(epochs), len(layers)))


def at(course: Course, when: When) -> Array:
    """What a course was then, one number a layer."""
    epochs = course.epochs
    if isinstance(when, float):
        after = np.where(epochs > 0, np.abs(epochs - when * epochs[-1]), np.inf)
        return np.asarray(course.values[int(after.argmin())])
    if when in ("start", "end"):
        return np.asarray(course.values[0 if when == "start" else -1])
    last_early = max(EARLY_EPOCHS, round(EARLY_SHARE * epochs[-1]))
    chosen = (epochs >= 1) & (epochs <= last_early) if when == "early" else epochs >= 0
    return np.asarray(np.fmin.reduce(course.values[chosen], axis=0, initial=np.nan))


def certain(values: Array | float) -> Array:
    """The same in every reading."""
    return np.broadcast_to(
        np.asarray(values, dtype=np.float64), (1 + REPLICATES, *np.shape(values))
    )


@reads("training")
def nonlocality(
    rows: Rows, when: When = "end", reading: str = "true", gated: bool = False
) -> Array:
    """D_loc of every layer, or of the gated ones, in patches (A4.19). 'true' gives each layer its
    own input, 'official' the bare patch embedding to all of them (X-22)."""
    found = course(rows, "nonlocality", reading)
    return certain(at(found.of_layers(course(rows, "gate").layers) if gated else found, when))


@reads("training")
def gates(rows: Rows, when: When = "end", heads: Literal["mean", "max"] = "mean") -> Array:
    """σ(λ) of every gated layer, over heads as their mean or 'max' (A4.20)."""
    return certain(at(course(rows, "gate", heads=heads), when))


@reads("training")
def accuracy_after(rows: Rows, share: float) -> Array:
    """Test accuracy in percent after a share of the epochs."""
    return certain(100 * (1 - at(course(rows, "test_error"), share)[0]))


@reads("training")
def accuracy_within(rows: Rows, share: float) -> Array:
    """Test accuracy in percent, mean over the first epochs, such a share of all, one at least."""
    found = course(rows, "test_error")
    errors = found.values[found.epochs > 0, 0]
    return certain(100 * (1 - errors[: some(len(errors), share)].mean()))


@reads("training")
def rise_of_test_loss(rows: Rows) -> Array:
    """NLL of the test images at the end, minus its least in all epochs."""
    losses = course(rows, "test_nll")
    return certain((at(losses, "end") - at(losses, "least"))[0])


# Trained models that were changed in one place: `lesion` with what = gates, positions and
# attention.


@reads("lesion")
def lost_without(rows: Rows, cue: Literal["content", "position"], share: float = 1.0) -> Array:
    """Points of accuracy that masking a cue in the first gated layers costs, such a share of them,
    one at least (A4.31): content is masked by gates of one, position by gates of zero."""
    lost = 100 * rows.where(change=f"{cue} masked up to here").draws()
    return lost[:, some(lost.shape[1], share) - 1]


@reads("lesion")
def lost_without_embedding(rows: Rows) -> Array:
    """Points of accuracy that setting the absolute position embedding to zero costs (A4.31)."""
    return 100 * rows.where(change="masked").one()


@reads("lesion")
def lost_without_content(rows: Rows) -> Array:
    """Points of accuracy that it costs if one layer attends to every image as to the mean of all
    images, so that keys no longer matter (A2.26); mean over the lower half of the attention layers,
    all of which know positions."""
    lost = 100 * rows.where(change="mean over images", kind="attention").draws()
    return lost[:, : some(lost.shape[1], 1 / 2)].mean(-1)


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


# Of layers side by side.


def some(count: int, share: float) -> int:
    """That share of so many, one at least."""
    return max(1, round(share * count))


def lower(layers: Quantity, share: float) -> Quantity:
    """Such a share of the layers, from the first."""
    return layers.map(lambda row: row[: some(len(row), share)])


def upper(layers: Quantity, share: float) -> Quantity:
    """Such a share of the layers, up to the last."""
    return layers.map(lambda row: row[-some(len(row), share) :])


def as_deep_as(layers: Quantity, other: Quantity) -> Quantity:
    """Of one model's layers as many as there are of the other's, from the first."""
    return layers[: min((rows.shape[1] for rows in other.seeds.values()), default=None)]
