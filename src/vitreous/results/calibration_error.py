"""The expected calibration error (ECE) without its bias, and an interval that holds.

    plain ECE = Σ_bins |ĝ|,   ĝ = Σ_images of the bin (confidence − right) / n

is never below zero, so noise raises it: 40 images of a perfectly calibrated model give 0.08 to 0.16. What
is wanted is Σ |g| with g the mean of ĝ over samples, the plain ECE of infinitely many images.

A hypothesis is a value T of Σ |g|. The gaps that go with it are those nearest to the measured ones: g minimises
Σ (|g| − |ĝ|)² / variance with Σ |g| = T, so each gap moves in proportion to its variance and stops at zero. Under them
ĝ is about normal, with the covariance of means of n images, (E[(confidence − right)²; bin] δ − g gᵀ) / n. Then

    value        the T for which the plain ECE is expected to be what was measured; 0 if even that of T = 0 is larger
    low, high    the smallest and largest T under which a plain ECE that large, or that small, has a chance above 2.5 %

which is a test inverted, as Wilson's interval of a share is. Of a calibrated model the value is 0 about every other
time, and `low` is 0 in at least 95 % of samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vitreous.results.intervals import Interval

DRAWS = 800
STEPS = 14
"""Halvings of [0, 1]: an end is known to 0.00003."""

Array = NDArray[np.float64]


def expected_calibration_error(
    count: ArrayLike, confidence: ArrayLike, squares: ArrayLike, right: ArrayLike
) -> Interval:
    """Debiased ECE and its 95 % interval from the sums in every bin (bins,): images, confidences, their squares, and
    how many the model has right. Without an interval for a single image, NaN for none."""
    sums = (np.asarray(each, dtype=np.float64) for each in (count, confidence, squares, right))
    inside, sure, square, hits = sums
    filled = inside > 0
    n = float(inside.sum())
    if not n or not np.isfinite(sure).all():
        return Interval(np.nan, np.nan, np.nan)
    bins = _Bins(
        n,
        inside[filled] / n,
        sure[filled] / inside[filled],
        square[filled] / inside[filled],
        hits[filled],
    )
    plain = float(np.abs(bins.gaps).sum())
    if n < 2:
        return Interval(plain, np.nan, np.nan)
    value = _crossing(lambda total: bins.expected(total) - plain)
    low = _crossing(lambda total: float(np.quantile(bins.drawn(total), 0.975)) - plain)
    high = _crossing(lambda total: float(np.quantile(bins.drawn(total), 0.025)) - plain)
    return Interval(value, min(low, value), max(high, value))


def _crossing(rising: Callable[[float], float]) -> float:
    """Where a rising function of [0, 1] passes zero; the nearer end if it does not."""
    if rising(0.0) >= 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) >= 0 else (middle, high)
    return (low + high) / 2


@cache
def _normal(bins: int) -> Array:
    """(DRAWS, bins) the same whenever asked for, and symmetric."""
    half = np.random.default_rng(bins).standard_normal((DRAWS // 2, bins))
    return np.concatenate([half, -half])


@dataclass(frozen=True)
class _Bins:
    """Bins that hold images, (bins,) each."""

    n: float
    share: Array
    confidence: Array
    """Mean."""
    square: Array
    """Mean square of the confidence."""
    right: Array
    """Images that the model has right."""

    @property
    def gaps(self) -> Array:
        return self.share * self.confidence - self.right / self.n

    def hypothesis(self, total: float) -> tuple[Array, Array]:
        """Sizes of the gaps that add up to `total`, nearest to those measured, and n times their variances before the
        mean is taken off."""
        accuracy = (self.right + self.confidence) / (self.share * self.n + 1)
        sizes = nearest(
            np.abs(self.gaps), self.share * np.maximum(accuracy * (1 - accuracy), 1e-6), total
        )
        over = self.gaps >= 0
        room = self.share * np.where(over, self.confidence, 1 - self.confidence)
        over = np.where(
            sizes > room, ~over, over
        )  # an accuracy above 1 or below 0: the gap is one the other way
        sizes = np.minimum(sizes, self.share * np.where(over, self.confidence, 1 - self.confidence))
        wanted = np.clip(self.confidence - np.where(over, 1, -1) * sizes / self.share, 0, 1)
        powers = (
            self.square - 2 * self.confidence * wanted + wanted
        )  # mean of (confidence − right)²
        return sizes, self.share * np.maximum(powers, 1e-12)

    def expected(self, total: float) -> float:
        """Mean of the plain ECE: of the sizes of normal numbers (the folded normal distribution)."""
        from scipy.special import ndtr

        sizes, powers = self.hypothesis(total)
        spread = np.sqrt(np.maximum(powers - sizes**2, 1e-15) / self.n)
        at = sizes / spread
        folded = spread * np.sqrt(2 / np.pi) * np.exp(-(at**2) / 2) + sizes * (1 - 2 * ndtr(-at))
        return float(folded.sum())

    def drawn(self, total: float) -> Array:
        """(DRAWS,) plain ECEs as they might have come out."""
        sizes, powers = self.hypothesis(total)
        length = min(float((sizes**2 / powers).sum()), 1.0)
        part = (
            (1 - np.sqrt(1 - length)) / length if length > 1e-12 else 0.5
        )  # leaves the covariance powers − g gᵀ
        normal = _normal(len(sizes))
        along = normal @ (sizes / np.sqrt(powers))
        off = normal * np.sqrt(powers) - part * along[:, None] * sizes
        found: Array = np.abs(sizes + off / np.sqrt(self.n)).sum(1)
        return found


def nearest(sizes: Array, variances: Array, total: float) -> Array:
    """Numbers of at least 0 that add up to `total` with the least Σ (number − size)² / variance."""
    missing = total - sizes.sum()
    if missing >= 0:
        return sizes + missing * variances / variances.sum()
    order = np.argsort(-sizes / variances)
    shift = (total - np.cumsum(sizes[order])) / np.cumsum(
        variances[order]
    )  # if so many stay above zero
    stay = np.flatnonzero((sizes / variances)[order] + shift > 0)
    found: Array = np.maximum(sizes + (shift[stay[-1]] if len(stay) else -np.inf) * variances, 0)
    return found
