"""Accuracy of linear probes."""

from __future__ import annotations

import numpy as np

from vitreous.claims.evidence import Rows, Unreadable, reads
from vitreous.claims.quantity import Array

SHOTS = "10"
"""Images per class on which probes are fitted, as in the paper."""


def _probes(rows: Rows, token: str) -> Rows:
    return rows.where(token=token, shots=SHOTS)


@reads("linear_probe")
def probe(
    rows: Rows, token: str, at: str | int | float = "last", above_chance: bool = False
) -> Array:
    """Accuracy in percent of a probe.

    Parameters
    ----------
    token
        What it reads: "class token", "first position", "mean over positions", ...
    at
        "last" or "middle"; the number of a block, whose last unit counts; or a depth in (0, 1).
    above_chance
        Subtract the accuracy of guessing.
    """
    probes = _probes(rows, token)
    depth = probes.numbers("depth")
    if not len(depth):
        raise Unreadable(
            f"linear_probe of {rows.item.name!r} has no probe of {token} with {SHOTS} images a "
            "class"
        )
    if isinstance(at, int):
        begins = np.unique(probes.where(kind="attention").numbers("depth"))
        chosen = np.searchsorted(begins, depth, side="right") == at
        if not chosen.any():
            raise Unreadable(f"{rows.item.name!r} has no block {at}")
        place = depth[chosen].max()
    elif at == "last":
        place = depth.max()
    else:
        wanted = 0.5 if isinstance(at, str) else at
        place = depth[np.abs(depth - wanted).argmin()]
    accuracy = 100 * probes.select(depth == place).draws().mean(-1)
    if not above_chance:
        return accuracy
    classes = rows.item.count_classes()
    if not classes:
        raise Unreadable(
            f"linear_probe of {rows.item.name!r} does not say how many classes there are"
        )
    return accuracy - 100 / classes


@reads("linear_probe")
def area(rows: Rows, token: str = "mean over positions") -> Array:
    """Accuracy in percent, mean over the depth of the model."""
    probes = _probes(rows, token)
    depth = probes.numbers("depth")
    return np.asarray(100 * np.trapezoid(probes.draws(), depth, axis=-1) / np.ptp(depth))
