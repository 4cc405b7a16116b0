"""The Poisson bootstrap: how often each image counts in each replicate, and weighted sums.

Weights depend on the number of an image and the seed alone, so replicate r of every probe and of
every analysis is the same resample of the same images. Probes add weighted sums while images pass;
analyses, which hold one number per image (or batch) until the end, use the functions below.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vitreous.random_numbers import row_generators

Array = NDArray[np.float64]
REPEATS = 200
"""Bootstrap replicates; with 200, their standard deviation is known to 5 %."""
CHUNK = 1 << 20
"""Number of weights or values in memory at a time: 8 MB, for any number of images."""


def poisson_weights(rows: Sequence[int], seed: int) -> Array:
    """Return how often each image counts in each replicate, (n, REPEATS): Poisson, mean 1."""
    drawn = np.empty((len(rows), REPEATS))
    for place, generator in enumerate(row_generators(seed, rows)):
        drawn[place] = generator.poisson(1.0, REPEATS)
    return drawn


def bootstrap_weights(rows: Sequence[int], seed: int) -> Array:
    """Return weights of images, (1 + REPEATS, n): ones, then Poisson weights per replicate."""
    weights = np.ones((1 + REPEATS, len(rows)))  # in row order: BLAS rounds differently otherwise
    weights[1:] = poisson_weights(rows, seed).T
    return weights


def resampled_sums(values: ArrayLike, rows: Sequence[int], seed: int) -> Array:
    """Sum values over images, as measured and in each resample.

    Parameters
    ----------
    values
        (n, …) one number, or array of numbers, per image.
    rows
        (n,) number of each image in its dataset, which decides how often it is drawn.

    Returns
    -------
    (1 + REPEATS, …) sums; the first is over the images as they are.
    """
    each = np.asarray(values)
    flat = each.reshape(len(each), -1)
    total = np.zeros((1 + REPEATS, flat.shape[1]))
    step = max(1, CHUNK // max(flat.shape[1], REPEATS))
    for start in range(0, len(flat), step):
        part = slice(start, start + step)
        total += bootstrap_weights(rows[part], seed) @ flat[part].astype(np.float64)
    return total.reshape(-1, *each.shape[1:])


def resampled_ratios(over: ArrayLike, under: ArrayLike, rows: Sequence[int], seed: int) -> Array:
    """Divide two sums over images, (1 + REPEATS, …); NaN where the second is zero."""
    tops, bottoms = (resampled_sums(each, rows, seed) for each in (over, under))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bottoms != 0, tops / bottoms, np.nan)


def resampled_means(values: ArrayLike, rows: Sequence[int], seed: int) -> Array:
    """Average values (n, …) over images: Σ w·x / Σ w, (1 + REPEATS, …)."""
    each = np.asarray(values)
    return resampled_ratios(each, np.ones((len(each), *(1,) * (each.ndim - 1))), rows, seed)
