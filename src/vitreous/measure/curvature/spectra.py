"""Statistics of eigenvalues over batches: shares, means, traces and densities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitreous.measure.resampling import Array
from vitreous.results import Interval, clustered_share, mean_of_few, ratio_of_few

POINTS = 121
"""Points at which a density is evaluated."""


def summaries(values: Sequence[np.ndarray], traces: Sequence[np.ndarray]) -> dict[str, Interval]:
    """Return NEP, APE, mean largest eigenvalue and trace, with intervals over batches.

    Parameters
    ----------
    values, traces
        Eigenvalues, and draws of the trace, of each batch.
    """
    positive = [each[each > 0] for each in values]
    ape = ratio_of_few([each.sum() for each in positive], [len(each) for each in positive])
    means = [each.mean() for each in traces]
    return {
        "NEP": clustered_share([(each < 0).mean() for each in values], len(values[0])),
        "APE": Interval(ape.mean, np.maximum(ape.low, 0), ape.high),  # of positive numbers
        "largest": mean_of_few([each.max() for each in values]),
        "trace": mean_of_few(means if len(means) > 1 else traces[0]),
    }


def resampled_summaries(
    values: Sequence[np.ndarray], traces: Sequence[np.ndarray], drawn: Array
) -> dict[str, Array]:
    """Return the same statistics with batch b counted drawn[r, b] times, (1 + REPEATS,) each."""
    ones = np.ones(len(values))
    parts = {
        "NEP": ([(each < 0).mean() for each in values], ones),
        "APE": ([each[each > 0].sum() for each in values], [(each > 0).sum() for each in values]),
        "largest": ([each.max() for each in values], ones),
        "trace": ([each.mean() for each in traces], ones),
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            name: (drawn @ np.asarray(over, dtype=np.float64)) / (drawn @ np.asarray(under))
            for name, (over, under) in parts.items()
        }


def density(
    points: Sequence[tuple[np.ndarray, np.ndarray]], drawn: Array, width: float | None
) -> tuple[Array, Array]:
    """Estimate the density of eigenvalues with Gaussian kernels.

    Parameters
    ----------
    points
        Values and their weights, for each batch.
    drawn
        (1 + REPEATS, batches) how often each batch counts.
    width
        Of the kernels, as a share of the range (default: Silverman's rule).

    Returns
    -------
    Where it is evaluated, (POINTS,), and the densities there, (1 + REPEATS, POINTS).
    """
    pooled = np.concatenate([each for each, _ in points])
    low, high = float(pooled.min()), float(pooled.max())
    reach = max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-12)
    if width:
        kernel = reach * width
    else:
        deviation = float(pooled.std())
        quartiles = float(np.subtract(*np.quantile(pooled, [0.75, 0.25]))) / 1.34
        spread = min(deviation, quartiles) or deviation
        kernel = max(0.9 * spread * len(pooled) ** -0.2, 0.01 * reach)
    at = np.linspace(low - 3 * kernel, high + 3 * kernel, POINTS)
    bells = [np.exp(-0.5 * ((at[:, None] - each) / kernel) ** 2) @ share for each, share in points]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = drawn @ np.array(bells) / drawn.sum(1, keepdims=True)
    return at, means / (kernel * np.sqrt(2 * np.pi))
