"""How sure a number is: 95 % intervals, each of the kind that holds for its statistic.

    mean, ratio, correlation, …   Student's t times the spread of the bootstrap replicates, moved by their skewness
    share of images               Wilson's score interval, which has a width at 0 and 1 too
    share within batches          the same with as many independent cases as the batches' spread leaves
    change of a share, paired     Bonett and Price's, a Wald interval with one more image of either sign
    mean over a few batches       Student's t

`tests/results/test_coverage.py` draws samples of each kind and counts how often the interval holds the truth. Those
from replicates do in 92 to 97 % of samples from 8 images on where single values are about normal, from 32 on where they
are as skewed as an exponential distribution, and from 128 on for heavy tails. Shares and changes have few outcomes:
Wilson's holds the truth in 95 % on average over shares, in 84 % at worst, where fewer than 0.2 cases are expected.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vitreous.errors import VitreousError

Z = 1.959963984540054
"""Standard deviations from the middle to an end of a 95 % interval."""
CHUNK = 1 << 22
"""Resampled images at a time, so that fifty thousand images need no more memory than five hundred."""


class Interval(NamedTuple):
    """A mean and the two ends of its interval; the ends are NaN where one image is all there is."""

    mean: Any
    low: Any
    high: Any


def bootstrap_mean(
    values: ArrayLike, *, confidence: float = 0.95, seed: int = 0, repeats: int = 1000
) -> Interval:
    """Mean over the first axis (images) with its bootstrap interval, for all other axes at once.

    Every column sees the same resampled images, so a difference of two columns keeps what they have in common, and a
    thousand resamplings are one matrix product (`scipy.stats.bootstrap` would hold repeats × images × columns numbers).
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim == 0 or len(sample) == 0:
        raise VitreousError(
            f"A mean over images was asked for an array of shape {sample.shape}; pass at least one image."
        )
    _tail(confidence)
    count, shape = len(sample), sample.shape[1:]
    flat = sample.reshape(count, -1)
    mean = flat.mean(axis=0)
    drawn = (
        _resampled_means(flat - mean, seed, repeats)
        if count > 1
        else np.full((2, flat.shape[1]), np.nan)
    )
    _, low, high = from_replicates(np.zeros_like(mean), drawn, count, confidence=confidence)
    return Interval(*(end.reshape(shape)[()] for end in (mean, mean + low, mean + high)))


def from_replicates(
    value: ArrayLike, replicates: ArrayLike, count: ArrayLike, *, confidence: float = 0.95
) -> Interval:
    """Interval of a statistic (…) of `count` images from its bootstrap replicates (repeats, …).

    Percentiles of the replicates are too narrow for few images (0.90 instead of 0.95 at eight) and noisy for a few
    hundred replicates, so their spread s is taken instead, with Student's t for the number of images,

        value + s √(n / (n - 1)) (κ (2 z² + 1) / 12 ± t)

    where κ is the skewness of the replicates. The first term is half of what an Edgeworth expansion of the studentised
    mean asks for (Hall 1992): all of it would be the replicates' own noise. A replicate that has no value, as one that
    drew no image, has no say. Fewer than two images have no interval.
    """
    from scipy.special import ndtri, stdtrit

    tail = _tail(confidence)
    values, drawn = np.asarray(value, dtype=np.float64), np.asarray(replicates, dtype=np.float64)
    number = np.asarray(count, dtype=np.float64)
    known = np.isfinite(drawn)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = known.sum(0)
        off = np.where(known, drawn - np.where(known, drawn, 0).sum(0) / kept, 0)
        spread = np.sqrt((off**2).sum(0) / (kept - 1))
        skewness = np.clip(np.nan_to_num((off**3).sum(0) / kept / spread**3), -1, 1)
        wide = np.where(number > 1, spread * np.sqrt(number / (number - 1)), np.nan)
        middle = skewness * (2 * ndtri(tail) ** 2 + 1) / 12
        reach = stdtrit(np.maximum(number - 1, 1), 1 - tail)
        low, high = values + wide * (middle - reach), values + wide * (middle + reach)
    return Interval(values[()], low[()], high[()])


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


def mean_of_sums(
    total: ArrayLike, squares: ArrayLike, count: ArrayLike, *, confidence: float = 0.95
) -> Interval:
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


def mean_of_few(values: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Mean over the first axis, of a few batches or draws, and Student's interval; without ends for a single one."""
    from scipy.special import stdtrit

    sample = np.asarray(values, dtype=np.float64)
    count = len(sample)
    mean = sample.mean(0)
    if count < 2:
        return Interval(mean[()], *(np.full_like(mean, np.nan)[()] for _ in range(2)))
    reach = stdtrit(count - 1, 1 - _tail(confidence)) * sample.std(0, ddof=1) / np.sqrt(count)
    return Interval(mean[()], (mean - reach)[()], (mean + reach)[()])


def ratio_of_few(over: ArrayLike, under: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Σ over / Σ under, one of each for every batch, and Student's interval of its linearisation."""
    tops, bottoms = np.asarray(over, dtype=np.float64), np.asarray(under, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = tops.sum() / bottoms.sum()
        ends = mean_of_few((tops - value * bottoms) / bottoms.mean(), confidence=confidence)
    return Interval(value, value + ends.low, value + ends.high)


def wilson(right: ArrayLike, count: ArrayLike) -> Interval:
    """A share of `count` independent cases and its 95 % score interval (Wilson 1927); NaN where there are none."""
    hits, number = np.asarray(right, dtype=np.float64), np.asarray(count, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return _score(hits / number, number)


def _score(share: NDArray[np.float64], number: NDArray[np.float64]) -> Interval:
    middle = (share + Z**2 / (2 * number)) / (1 + Z**2 / number)
    reach = Z / (1 + Z**2 / number) * np.sqrt(share * (1 - share) / number + Z**2 / (4 * number**2))
    low = np.where(
        share == 0, 0.0, np.maximum(middle - reach, 0)
    )  # where rounding would leave 1e-19
    high = np.where(share == 1, 1.0, np.minimum(middle + reach, 1))
    return Interval(share[()], low[()], high[()])


def clustered_share(shares: ArrayLike, within: int) -> Interval:
    """Mean of shares, one for each of a few batches (or images) with `within` cases each, and its 95 % interval.

    Cases of one batch are no independent ones. Wilson's interval is that of the number of independent cases whose
    share would have the spread that the batches' have, fewer where few batches tell it (Korn and Graubard 1998). Where
    all cases agree there is no spread to go by, and each batch counts once.
    """
    from scipy.special import stdtrit

    sample = np.asarray(shares, dtype=np.float64)
    count, share = len(sample), sample.mean()
    if count < 2:
        return Interval(share, np.nan, np.nan)
    alike = share * (1 - share)
    if not alike > 0:
        return _score(share, np.asarray(float(count)))
    spread = max(float(sample.var(ddof=1)), alike / within)
    return _score(share, np.asarray(count * alike / spread * (Z / stdtrit(count - 1, 0.975)) ** 2))


def paired_change(differences: ArrayLike) -> Interval:
    """Mean of differences (n, …), each between -1 and 1, and its 95 % interval.

    For the change of a share when the same images are asked again, where an image changes by -1, 0 or 1. One image of
    +1 and one of -1 are added before Wald's interval is taken (Bonett and Price 2012), so that it has a width also
    where no image changes or all do.
    """
    sample = np.asarray(differences, dtype=np.float64)
    return change_of_sums(sample.sum(0), (sample**2).sum(0), len(sample))


def change_of_sums(total: ArrayLike, squares: ArrayLike, count: float) -> Interval:
    """`paired_change` from the sum of the differences, of their squares, and their number; one has no interval."""
    sums, powers = np.asarray(total, dtype=np.float64), np.asarray(squares, dtype=np.float64)
    if count < 2:
        return Interval((sums / count)[()], *(np.full_like(sums, np.nan)[()] for _ in range(2)))
    middle = sums / (count + 2)
    reach = Z * np.sqrt((powers + 2) / (count + 2) - middle**2) / np.sqrt(count + 2)
    ends = (np.clip(end, -1, 1)[()] for end in (middle - reach, middle + reach))
    return Interval((sums / count)[()], *ends)


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
