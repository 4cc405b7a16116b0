"""What linear probes read off a model."""

from __future__ import annotations

import numpy as np

from vitreous.claims.evidence import Rows, Unreadable, reads
from vitreous.claims.measure import Array

SHOTS = "10"
"""Images of a class that probes are fitted on, as in the paper."""


def _probes(rows: Rows, token: str) -> Rows:
    return rows.where(token=token, shots=SHOTS)


@reads("linear_probe")
def probe(rows: Rows, token: str, at: str | int = "last") -> Array:
    """Accuracy in percent of a probe of the last unit, of the one in the middle, or of the last one of a block."""
    found = _probes(rows, token)
    depth = found.table["depth"].to_numpy()
    if not len(depth):
        raise Unreadable(
            f"linear_probe of {rows.exhibit.name!r} has no probe of {token} with {SHOTS} images a class"
        )
    if isinstance(at, int):
        begins = np.sort(found.table.loc[found.table["kind"] == "attention", "depth"].unique())
        chosen = np.searchsorted(begins, depth, side="right") == at
        if not chosen.any():
            raise Unreadable(f"{rows.exhibit.name!r} has no block {at}")
        place = depth[chosen].max()
    else:
        place = depth.max() if at == "last" else depth[np.abs(depth - 0.5).argmin()]
    return 100 * Rows(rows.exhibit, rows.result, found.table[depth == place]).draws().mean(-1)


@reads("linear_probe")
def area(rows: Rows, token: str = "mean over positions") -> Array:
    """Accuracy in percent, mean over the depth of the model."""
    found = _probes(rows, token)
    depth = found.table["depth"].to_numpy(dtype=np.float64)
    return np.asarray(100 * np.trapezoid(found.draws(), depth, axis=-1) / np.ptp(depth))
