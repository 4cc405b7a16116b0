"""How sure a mean over images is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vitreous.errors import VitreousError

CHUNK = 1 << 22
"""Resampled images at a time, so that fifty thousand images need no more memory than five hundred."""


class Interval(NamedTuple):
    """A mean and the two ends of its interval; the ends are NaN where one image is all there is."""

    mean: Any
    low: Any
    high: Any


def bootstrap_mean(values: ArrayLike, *, confidence: float = 0.95, seed: int = 0, repeats: int = 1000) -> Interval:
    """Mean over the first axis (images) with its percentile bootstrap interval, for all other axes at once.

    Every column sees the same resampled images, so a difference of two columns keeps what they have in common, and a
    thousand resamplings are one matrix product (`scipy.stats.bootstrap` would hold repeats × images × columns numbers).
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim == 0 or len(sample) == 0:
        raise VitreousError(
            f"A mean over images was asked for an array of shape {sample.shape}; pass at least one image."
        )
    tail = _tail(confidence)
    count, shape = len(sample), sample.shape[1:]
    flat = sample.reshape(count, -1)
    mean = flat.mean(axis=0)
    if count == 1:
        low = high = np.full_like(mean, np.nan)
    else:
        low, high = np.quantile(_resampled_means(flat - mean, seed, repeats), [tail, 1 - tail], axis=0) + mean
    return Interval(*(end.reshape(shape)[()] for end in (mean, low, high)))


def _resampled_means(flat: NDArray[np.float64], seed: int, repeats: int) -> NDArray[np.float64]:
    """Means of `repeats` draws with replacement: how often each image was drawn, times the images."""
    rng, count = np.random.default_rng(seed), len(flat)
    means = np.empty((repeats, flat.shape[1]))
    step = max(CHUNK // count, 1)
    for start in range(0, repeats, step):
        rows = min(step, repeats - start)
        drawn = rng.integers(count, size=(rows, count)) + count * np.arange(rows)[:, None]
        times = np.bincount(drawn.ravel(), minlength=rows * count).reshape(rows, count)
        means[start : start + rows] = times @ flat / count
    return means


def mean_of_sums(total: ArrayLike, squares: ArrayLike, count: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Mean and Student's interval from sums alone: of the values, of their squares, and their number.

    For probes, whose whole state is sums. Where the spread is below about 1e-8 of the mean the squares have lost it,
    and the interval has no width.
    """
    from scipy.special import stdtrit

    tail = _tail(confidence)
    sums, powers, number = (np.asarray(each, dtype=np.float64) for each in (total, squares, count))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = sums / number
        spread = np.sqrt(np.maximum(powers / number - mean**2, 0) / (number - 1))
        reach = np.where(number > 1, stdtrit(np.maximum(number - 1, 1), 1 - tail) * spread, np.nan)
    return Interval(mean[()], (mean - reach)[()], (mean + reach)[()])


def listed(replicates: ArrayLike) -> list[float | None]:
    """Resamplings of one number as JSON can hold them: None where one has no value, as when it drew no image."""
    values = np.asarray(replicates, dtype=np.float64)
    return [float(value) if np.isfinite(value) else None for value in values]


def _tail(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise VitreousError(
            f"An interval of confidence {confidence} was asked for; it lies between 0 and 1, such as 0.95."
        )
    return (1 - confidence) / 2
