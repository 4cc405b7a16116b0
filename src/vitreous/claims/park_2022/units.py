"""Readings of single units: by kind, by stage, and by position in a stage.

Rows of a result are in the order of the units. Stages are counted from 1; stem and head belong to
no stage."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from vitreous.claims.evidence import Rows, Unreadable, reads
from vitreous.claims.quantity import Array, Quantity

POINTS = 100.0
"""Factor that converts a share to percentage points."""


def by_stage(rows: Rows, column: str = "value") -> dict[int, Array]:
    """(1 + REPLICATES, units) of a column, by stage."""
    body = rows.select((rows.numbers("stage") > 0) & (rows.entries("kind") != "head"))
    draws = body.draws(column)
    stages = body.entries("stage")
    return {int(stage): draws[:, stages == stage] for stage in dict.fromkeys(stages.tolist())}


def with_two_units(stages: dict[int, Array], rows: Rows) -> dict[int, Array]:
    """The stages with at least two units, so that the first and the last differ."""
    chosen = {stage: units for stage, units in stages.items() if units.shape[1] > 1}
    if not chosen:
        raise Unreadable(f"{rows.result.name} of {rows.item.name} has no stage with two such units")
    return chosen


def mean_of_first_quarter(steps: Quantity) -> Quantity:
    """Mean over the first quarter of the blocks."""
    return steps.map(lambda each: each[: _quarter_length(each)].mean())


def mean_of_rest(steps: Quantity) -> Quantity:
    """Mean over all but the first quarter; of twelve blocks, from the fourth on."""
    return steps.map(lambda each: each[_quarter_length(each) :].mean())


def _quarter_length(each: Array) -> int:
    return max(1, round(len(each) / 4))


# Frequencies.


@reads("fourier")
def sharpening(rows: Rows, kind: str) -> Array:
    """Change of the highest frequency of the map by each unit of a kind, in order (A4.07)."""
    return rows.where(kind=kind, highest=True).draws("change")


@reads("fourier")
def high_by_stage(rows: Rows) -> Array:
    """The highest frequency of maps, mean over each stage."""
    return np.stack([units.mean(1) for units in by_stage(rows.where(highest=True)).values()], 1)


@reads("fourier")
def high_in_first_stage(rows: Rows) -> Array:
    """Highest frequency after the last unit of the first stage minus that after its first unit."""
    stages = with_two_units(by_stage(rows.where(highest=True)), rows)
    first = stages[min(stages)]
    return first[:, -1] - first[:, 0]


@reads("fourier")
def high_from_stem(rows: Rows, frequency: str = "highest") -> Array:
    """Amplitude after the last unit minus that after the stem.

    `frequency` is "highest", the highest frequency of each map, or "common", the highest that all
    maps have.
    """
    draws = rows.where(**{frequency: True}).draws()
    return draws[:, -1] - draws[:, 0]


# Variance over positions.


@reads("variance")
def variance_ratios(rows: Rows, kind: str) -> Array:
    """Variance after each unit of a kind over that before it, in order (A4.09)."""
    return rows.where(kind=kind).draws("ratio")


@reads("variance")
def variance_by_half(rows: Rows, half: int) -> Array:
    """Relative change of the variance by attention, mean over the first (0) or second (1) half of
    every stage."""
    stages = with_two_units(by_stage(rows.where(kind="attention"), "ratio"), rows)
    parts = [
        units[:, : units.shape[1] // 2] if half == 0 else units[:, -(units.shape[1] // 2) :]
        for units in stages.values()
    ]
    return np.concatenate(parts, 1).mean(1) - 1


@reads("variance")
def variance_slopes(rows: Rows) -> Array:
    """Slope of the log variance over the units of each stage."""
    stages = with_two_units(by_stage(rows), rows)
    return np.stack(
        [np.polyfit(np.arange(units.shape[1]), np.log(units).T, 1)[0] for units in stages.values()],
        1,
    )


@reads("variance")
def variance_ends(rows: Rows, last_stage: int = 3) -> Array:
    """Variance after the last unit of each stage over that after its first unit."""
    stages = {k: units for k, units in by_stage(rows).items() if k <= last_stage}
    chosen = with_two_units(stages, rows)
    return np.stack([units[:, -1] / units[:, 0] for units in chosen.values()], 1)


@reads("variance")
def variance_peaks(rows: Rows, last_stage: int = 3) -> Array:
    """1 for each stage whose variance is largest after its last unit, else 0."""
    stages = {k: units for k, units in by_stage(rows).items() if k <= last_stage}
    chosen = with_two_units(stages, rows)
    return np.stack([units.argmax(1) == units.shape[1] - 1 for units in chosen.values()], 1)


@reads("variance")
def variance_transitions(rows: Rows) -> Array:
    """Variance after the first unit of a stage over that after the last of the stage before."""
    stages = list(by_stage(rows).values())
    if len(stages) < 2:
        raise Unreadable(f"{rows.item.name} has one stage only")
    return np.stack([after[:, 0] / before[:, -1] for before, after in pairwise(stages)], 1)


# Lesions.


@reads("lesion")
def lesion_trends(rows: Rows, kind: str, change: str = "taken out", first_stage: int = 1) -> Array:
    """Points lost without the last unit of a kind minus those without the first, for each stage
    from `first_stage` on."""
    stages = by_stage(rows.where(kind=kind, change=change))
    chosen = with_two_units({k: units for k, units in stages.items() if k >= first_stage}, rows)
    return np.stack([POINTS * (units[:, -1] - units[:, 0]) for units in chosen.values()], 1)


@reads("lesion")
def lesion_early_minus_late(rows: Rows, kind: str, change: str = "taken out") -> Array:
    """Points lost by a lesion in the first half of the stages minus those in the second half, to
    which a middle stage belongs."""
    stages = by_stage(rows.where(kind=kind, change=change))
    if len(stages) < 2:
        raise Unreadable(f"lesion of {rows.item.name} has one stage only")
    early = [units for k, units in stages.items() if 2 * k <= max(stages)]
    late = [units for k, units in stages.items() if 2 * k > max(stages)]
    return np.asarray(POINTS * (np.concatenate(early, 1).mean(1) - np.concatenate(late, 1).mean(1)))
