"""The statistics of verdicts: intervals over images and trainings, equivalence, and many effects.

*Intervals.* The value of training s on a sample of images is μ + a_s + b + c_s: a_s differs between
trainings, b is what the sampled images do to all of them alike, c_s what they do to one. Replicates
show b and c, differences between trainings show a and c. So the variance of the mean over k
trainings is

    s²/k  +  max(V − c²/k, 0)

with s² the variance between trainings, V the variance of the replicates of the mean, and c² the
variance between trainings of the replicates' deviations. The first term has k − 1 degrees of
freedom; both are combined by Welch and Satterthwaite, and the interval is Student's. With one
training only images can be resampled, which is why verdicts then say "seen once".

*Ratios* are judged on a logarithmic scale. *Equivalence* is two one-sided tests. *Many effects* are
corrected by Holm's procedure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, isnan, log, nan, sqrt
from typing import Any

import numpy as np

from vitreous.claims.quantity import Array, Quantity

LEVEL = 0.05
"""Two-sided: an effect is certain if its 95 % interval leaves out the null."""


@dataclass(frozen=True)
class Interval95:
    """A value with its 95 % interval, and what is needed to test it.

    `spread` is the standard error and `freedom` its degrees of freedom, both on the scale on which
    the test is made: the logarithm, if `ratio`.
    """

    value: float
    low: float
    high: float
    spread: float = 0.0
    freedom: float = 1.0
    seeds: int = 0
    ratio: bool = False

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high; the value itself where there is no interval."""
        low = self.value if isnan(self.low) else self.low
        return low, self.value if isnan(self.high) else self.high

    def p_value(self, null: float) -> float:
        """Two-sided, against `null`."""
        if not isfinite(self.value):
            return nan
        distance = _distance(self.value, null, self.ratio)
        if self.spread == 0:
            return 0.0 if distance != 0 else 1.0
        return 2 * _survival(abs(distance) / self.spread, self.freedom)

    def at_level(self, level: float) -> tuple[float, float]:
        """The interval of another confidence: `at_level(0.1)` is the 90 % interval."""
        middle = log(self.value) if self.ratio else self.value
        reach = _quantile(1 - level / 2, self.freedom) * self.spread
        ends = (middle - reach, middle + reach)
        return (exp(ends[0]), exp(ends[1])) if self.ratio else ends


PRIOR = 4.0
"""Degrees of freedom that the sampling variance of a share or a rank correlation counts as, beside
the variance between trainings (a moderated t). Without it three shares of 12/12 would be certain to
any digit."""
RANK_PRIOR = 0.05
"""The same for rank correlations, which differ enough between trainings to need little of it."""
ALONE = 30.0
"""Degrees of freedom of a share's sampling variance with one training, where it is all there is."""
UNKNOWN = Interval95(nan, nan, nan)


def estimate_effect(quantity: Quantity, *, ratio: bool = False) -> Interval95:
    """Mean over trainings with its 95 % interval over images and trainings.

    Parameters
    ----------
    quantity
        One number for every training.
    ratio
        Judge the logarithm, as suits a ratio.

    Examples
    --------
    >>> estimate_effect(Quantity({0: np.array([1.0]), 1: np.array([2.0]), 2: np.array([3.0])}))
    Interval95(value=2.0, low=-0.484..., high=4.484..., ...)
    """
    if not quantity.known:
        return UNKNOWN
    rows = np.stack([np.asarray(each, dtype=np.float64) for each in quantity.seeds.values()])
    if rows.ndim != 2:
        raise ValueError(f"An interval is of one number, not of {rows.shape[2:]}.")
    if ratio:
        with np.errstate(invalid="ignore", divide="ignore"):
            rows = np.log(rows)
    if not np.isfinite(rows[:, 0]).all():
        return UNKNOWN
    spread, freedom = _standard_error(rows, quantity)
    middle = float(rows[:, 0].mean())
    reach = _quantile(1 - LEVEL / 2, freedom) * spread
    value, low, high = middle, middle - reach, middle + reach
    if ratio:
        value, low, high = exp(value), exp(low), exp(high)
    if quantity.bounds is not None:
        low, high = max(low, quantity.bounds[0]), min(high, quantity.bounds[1])
    return Interval95(value, low, high, spread, freedom, len(rows), ratio)


def _standard_error(rows: Array, quantity: Quantity) -> tuple[float, float]:
    """Of the mean over seeds of (seeds, 1 + replicates), with its degrees of freedom."""
    count = len(rows)
    deviations = rows[:, 1:] - rows[:, :1]
    deviations = deviations[:, np.isfinite(deviations).all(0)]
    replicates = deviations.shape[1]
    over_images = float(deviations.mean(0).var(ddof=1)) if replicates > 1 else 0.0
    between, freedom = 0.0, count - 1.0
    interaction = 0.0
    if count > 1:
        between = float(rows[:, 0].var(ddof=1))
        interaction = float(deviations.var(0, ddof=1).mean()) / count if replicates > 1 else 0.0
    if quantity.sampling and count == 1:
        between = float(np.mean(list(quantity.sampling.values())))
        freedom = max(quantity.settings - 2.0, 1.0) if quantity.settings else ALONE
    elif quantity.sampling:
        expected = float(np.mean(list(quantity.sampling.values())))
        prior = RANK_PRIOR if quantity.settings else PRIOR
        between = (freedom * between + prior * expected) / (freedom + prior)
        freedom += 0.0 if quantity.settings else prior
    between /= count
    images = max(over_images - interaction, 0.0)
    variance = between + images
    if variance == 0:
        return 0.0, max(freedom, 1.0)
    shares = images**2 / max(replicates - 1, 1)
    shares += between**2 / freedom if freedom else 0.0
    return sqrt(variance), variance**2 / shares


def _distance(value: float, null: float, ratio: bool) -> float:
    return log(value / null) if ratio else value - null


def _quantile(probability: float, freedom: float) -> float:
    from scipy.special import stdtrit  # within the function: judging starts without scipy

    return float(stdtrit(freedom, probability))


def _survival(statistic: float, freedom: float) -> float:
    from scipy.special import stdtr

    return float(stdtr(freedom, -statistic))


def beyond_chance(row: Quantity, statistic: Any) -> Quantity:
    """A statistic of a row that noise alone makes positive, minus what noise alone makes of it.

    The range of k equal numbers, their largest difference and so on are positive by chance. Here
    the same statistic is computed on rows without differences (every column moved to the common
    mean) that have the noise of the real ones: the deviations of replicates, and with several
    trainings the differences between them.

    Parameters
    ----------
    row
        k numbers for every training.
    statistic
        Function of an array (..., k) that reduces the last axis, such as `np.ptp`.
    """
    if not row.known:
        return row
    values = row.values
    between = sqrt(values.var(0, ddof=1).mean()) if len(values) > 1 else 0.0
    generator = np.random.default_rng(values.shape[-1])
    corrected = {}
    for seed, rows in row.seeds.items():
        deviations = np.nan_to_num(rows[1:] - rows[:1])
        noise = deviations + between * generator.standard_normal(deviations.shape)
        by_chance = statistic(rows[0].mean() + noise, axis=-1).mean()
        corrected[seed] = statistic(rows, axis=-1) - by_chance
    return Quantity(corrected, row.saturated)


def holm(p_values: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which effects stay certain when all are judged together.

    The smallest p-value is compared with level / n, the next with level / (n − 1), and so on up to
    the first that fails; all together then err with a probability of at most `level`.
    """
    certain = [False] * len(p_values)
    for rank, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[number] > level / (len(p_values) - rank):
            break
        certain[number] = True
    return certain
