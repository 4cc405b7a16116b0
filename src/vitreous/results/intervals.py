"""Confidence intervals (95 %), one kind for each kind of statistic.

    mean, ratio, correlation, …   spread of bootstrap replicates times Student's t, and skewness
    share of images               Wilson's score interval, which has a width at 0 and 1 too
    share within batches          the same, with the effective number of independent cases
    change of a share, paired     Bonett and Price's: Wald's with one more image of either sign
    mean over a few batches       Student's t

`tests/results/test_coverage.py` draws samples of each kind and counts how often the interval covers
the truth. Those from replicates do in 92 to 97 % of samples: from 8 images on if single values
are about normal, from 32 on if they are as skewed as an exponential distribution, and from 128 on
for heavy tails. Shares and changes have few outcomes: Wilson's interval covers the truth in 95 % on
average over shares, and in 84 % at worst, where fewer than 0.2 cases are expected.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vitreous.errors import VitreousError

Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
CHUNK = 1 << 22
"""Resampled images at a time: fifty thousand images need no more memory than five hundred."""


class Interval(NamedTuple):
    """A mean and the two ends of its interval, which are NaN for a single image."""

    mean: Any
    low: Any
    high: Any

    def __repr__(self) -> str:
        return f"Interval(mean={self.mean}, low={self.low}, high={self.high})"


def bootstrap_mean(
    values: ArrayLike, *, confidence: float = 0.95, seed: int = 0, repeats: int = 1000
) -> Interval:
    """Return the mean over images and its bootstrap interval.

    All columns are resampled alike, so a difference of two columns keeps what they have in common,
    and a thousand resamples are one matrix product (`scipy.stats.bootstrap` would hold
    repeats × images × columns numbers).

    Parameters
    ----------
    values
        Array (images, …).
    confidence
        The share of samples in which the interval covers the truth.
    seed
        Random seed of the resamples.
    repeats
        Number of resamples.

    Returns
    -------
    Interval of arrays (…).

    Examples
    --------
    >>> float(bootstrap_mean([1.0, 2.0, 3.0, 4.0]).mean)
    2.5
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim == 0 or len(sample) == 0:
        raise VitreousError(
            f"An array of shape {sample.shape} has no mean over images; pass at least one image."
        )
    _tail(confidence)
    count, shape = len(sample), sample.shape[1:]
    flat = sample.reshape(count, -1)
    mean = flat.mean(axis=0)
    replicates = np.full((2, flat.shape[1]), np.nan)
    if count > 1:
        replicates = _resampled_means(flat - mean, seed, repeats)
    _, low, high = from_replicates(np.zeros_like(mean), replicates, count, confidence=confidence)
    return Interval(*(end.reshape(shape)[()] for end in (mean, mean + low, mean + high)))


def from_replicates(
    value: ArrayLike, replicates: ArrayLike, count: ArrayLike, *, confidence: float = 0.95
) -> Interval:
    """Return the interval of a statistic from its bootstrap replicates.

    Percentiles of the replicates are too narrow for few images (0.90 instead of 0.95 at eight) and
    noisy for a few hundred replicates. Their spread s is used instead, with Student's t:

        value + s √(n / (n - 1)) (κ (2 z² + 1) / 12 ± t)

    where n is the number of images and κ the skewness of the replicates. The first term is half of
    that in an Edgeworth expansion of the studentised mean (Hall 1992); the whole term would mostly
    be noise of the replicates.

    Parameters
    ----------
    value
        The statistic (…).
    replicates
        Array (repeats, …); replicates without a value are NaN and do not count.
    count
        Number of images (…); fewer than two have no interval.
    confidence
        The share of samples in which the interval covers the truth.

    Examples
    --------
    >>> inspection = vitreous.inspect("nano:vit", probes="variance", limit=16)
    >>> draws = inspection["variance"].draws()  # (201, rows): values, then 200 replicates
    >>> last = draws[:, -1] / draws[:, 0]
    >>> interval = from_replicates(last[0], last[1:], 16)
    >>> bool(interval.low < interval.mean < interval.high)
    True
    """
    from scipy.special import ndtri, stdtrit

    tail = _tail(confidence)
    values, drawn = np.asarray(value, dtype=np.float64), np.asarray(replicates, dtype=np.float64)
    number = np.asarray(count, dtype=np.float64)
    known = np.isfinite(drawn)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = known.sum(0)
        centred = np.where(known, drawn - np.where(known, drawn, 0).sum(0) / kept, 0)
        spread = np.sqrt((centred**2).sum(0) / (kept - 1))
        skewness = np.clip(np.nan_to_num((centred**3).sum(0) / kept / spread**3), -1, 1)
        scale = np.where(number > 1, spread * np.sqrt(number / (number - 1)), np.nan)
        shift = skewness * (2 * ndtri(tail) ** 2 + 1) / 12
        reach = stdtrit(np.maximum(number - 1, 1), 1 - tail)
        low, high = values + scale * (shift - reach), values + scale * (shift + reach)
    return Interval(values[()], low[()], high[()])


def _resampled_means(flat: NDArray[np.float64], seed: int, repeats: int) -> NDArray[np.float64]:
    """Return means (repeats, columns) of resamples with replacement of `flat` (images, columns)."""
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
    """Return mean and Student's interval from the sums of values and squares and their number.

    For probes, whose state is sums. Where the spread is below about 1e-8 of the mean the squares
    have lost it, and the interval has no width.

    Examples
    --------
    >>> float(mean_of_sums(total=10.0, squares=30.0, count=4).mean)
    2.5
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
    """Return the mean over the first axis, a few batches or draws, and Student's interval."""
    from scipy.special import stdtrit

    sample = np.asarray(values, dtype=np.float64)
    count = len(sample)
    mean = sample.mean(0)
    if count < 2:
        return Interval(mean[()], *(np.full_like(mean, np.nan)[()] for _ in range(2)))
    reach = stdtrit(count - 1, 1 - _tail(confidence)) * sample.std(0, ddof=1) / np.sqrt(count)
    return Interval(mean[()], (mean - reach)[()], (mean + reach)[()])


def ratio_of_few(over: ArrayLike, under: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Return Σ over / Σ under, both (batches,), and Student's interval of its linearisation."""
    tops, bottoms = np.asarray(over, dtype=np.float64), np.asarray(under, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = tops.sum() / bottoms.sum()
        ends = mean_of_few((tops - value * bottoms) / bottoms.mean(), confidence=confidence)
    return Interval(value, value + ends.low, value + ends.high)


def wilson(right: ArrayLike, count: ArrayLike) -> Interval:
    """Return the share of `right` among `count` independent cases and its 95 % score interval.

    Wilson (1927); NaN where there are no cases.
    """
    hits, number = np.asarray(right, dtype=np.float64), np.asarray(count, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return _score(hits / number, number)


def _score(share: NDArray[np.float64], number: NDArray[np.float64]) -> Interval:
    middle = (share + Z**2 / (2 * number)) / (1 + Z**2 / number)
    reach = Z / (1 + Z**2 / number) * np.sqrt(share * (1 - share) / number + Z**2 / (4 * number**2))
    # where rounding would leave 1e-19 instead of 0, or the same below 1
    low = np.where(share == 0, 0.0, np.maximum(middle - reach, 0))
    high = np.where(share == 1, 1.0, np.minimum(middle + reach, 1))
    return Interval(share[()], low[()], high[()])


def clustered_share(shares: ArrayLike, within: int) -> Interval:
    """Return the mean of the shares of a few batches and its 95 % interval.

    Cases of one batch are not independent. This is Wilson's interval for the effective number of
    independent cases: that whose share would have the spread of the batches, less for few batches
    (Korn and Graubard 1998). Where all cases agree there is no spread, and each batch counts once.

    Parameters
    ----------
    shares
        One for each batch, or image.
    within
        Number of cases in each.
    """
    from scipy.special import stdtrit

    sample = np.asarray(shares, dtype=np.float64)
    count, share = len(sample), sample.mean()
    if count < 2:
        return Interval(share, np.nan, np.nan)
    variance = share * (1 - share)
    if not variance > 0:
        return _score(share, np.asarray(float(count)))
    between = max(float(sample.var(ddof=1)), variance / within)
    effective = count * variance / between * (Z / stdtrit(count - 1, 0.975)) ** 2
    return _score(share, np.asarray(effective))


def paired_change(differences: ArrayLike) -> Interval:
    """Return the mean of differences (n, …), each between -1 and 1, and its 95 % interval.

    For the change of an accuracy measured twice on the same images, each of which changes by -1, 0
    or 1. One image of +1 and one of -1 are added before Wald's interval is taken (Bonett and Price
    2012), so that it has a width also where no image changes or all do.
    """
    sample = np.asarray(differences, dtype=np.float64)
    return change_of_sums(sample.sum(0), (sample**2).sum(0), len(sample))


def change_of_sums(total: ArrayLike, squares: ArrayLike, count: float) -> Interval:
    """Return `paired_change` from the sums of differences and squares, and their number."""
    sums, powers = np.asarray(total, dtype=np.float64), np.asarray(squares, dtype=np.float64)
    if count < 2:
        return Interval((sums / count)[()], *(np.full_like(sums, np.nan)[()] for _ in range(2)))
    middle = sums / (count + 2)
    reach = Z * np.sqrt((powers + 2) / (count + 2) - middle**2) / np.sqrt(count + 2)
    ends = (np.clip(end, -1, 1)[()] for end in (middle - reach, middle + reach))
    return Interval((sums / count)[()], *ends)


def _tail(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise VitreousError(
            f"The confidence of an interval is {confidence}; it lies between 0 and 1, such as 0.95."
        )
    return (1 - confidence) / 2
