"""Units gathered for the eye: stages as panels, and runs of identical blocks folded into one block and a number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from vitreous.specimen.anatomy import Unit

Slot = tuple[Unit, ...]
"""The units one box or row stands for: a single one, or the identical ones of a fold."""
Fold = tuple[Slot, ...]
"""Slots that are repeated together, as often as each has units."""
Panel = tuple[Fold, ...]
"""A stage, or the part of it between stem, head and changes of the prefix tokens."""


def panels(units: Iterable[Unit], *, fold: bool) -> list[Panel]:
    """Stages in order; stem and head stand apart, and so do units before and after a change of the prefix tokens."""
    groups = groupby(
        units, lambda u: (u.stage, u.kind if u.kind in ("stem", "head") else "", u.prefix)
    )
    return [tuple(folds(tuple(group), longest=8 if fold else 0)) for _, group in groups]


def folds(units: Sequence[Unit], longest: int = 8) -> Iterator[Fold]:
    """Blocks of at most `longest` units that repeat, gathered; units that do not repeat come alone."""
    marks = [
        (u.kind, u.grid, u.channels, u.prefix, u.heads, u.reach, u.skip, u.parameters)
        for u in units
    ]
    start = 0
    while start < len(units):
        period, stop = 1, start + 1
        for trial in range(1, longest + 1):
            end = start + trial
            while marks[end : end + trial] == marks[start : start + trial]:
                end += trial
            if end > max(stop, start + trial):
                period, stop = trial, end
        yield tuple(tuple(units[first:stop:period]) for first in range(start, start + period))
        start = stop


def slot_name(slot: Slot) -> str:
    """The path of a slot's units: `blocks.0…11.attn` where they differ in one place."""
    first, last = slot[0].name, slot[-1].name
    ones, others = first.split("."), last.split(".")
    differ = [i for i, (one, other) in enumerate(zip(ones, others, strict=False)) if one != other]
    if len(ones) != len(others) or len(differ) > 1:
        return f"{first} … {last}"
    return ".".join(
        f"{one}…{other}" if one != other else one for one, other in zip(ones, others, strict=True)
    )
