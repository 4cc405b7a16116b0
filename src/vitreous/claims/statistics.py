"""The statistics of verdicts: intervals over images and trainings, equivalence, many effects, and
power.

*Numbers.* The value of training s on a sample of images is μ + a_s + b + c_s: a_s differs between
trainings, b is what the sampled images do to all of them alike, c_s what they do to one. Replicates
show b and c, differences between trainings show a and c. So the variance of the mean over k
trainings is

    B + I  =  s²/k  +  max(V − c²/k, 0)

with s² the variance between trainings, V the variance of the replicates of the mean, and c² the
variance between trainings of the replicates' deviations. B has k − 1 degrees of freedom, I as many
as there are replicates. The p-value of t = (mean − null) / √(B + I) is that of Student's t, with
each part's degrees of freedom in proportion to its part of the variance. (One t with the degrees of
freedom of Welch and Satterthwaite has 7.8 % false certainty at three trainings instead of 5 %,
because s² is small by chance just when it is most trusted.) With one training only images can be
resampled, which is why verdicts then say "seen once".

*Shares of units and correlations over settings* vary because there are few units or settings, by a
known function v of the true value (`FewUnits`). A value is tested with the variance φ v / k + I
that it would have if it were true (a score test). φ says how much more than v trainings differ; it
is moderated, because three trainings cannot tell.

*Ratios* are judged on a logarithmic scale. *Equivalence*: the whole interval lies within the bound,
which is two one-sided tests of 2.5 % each. *Many effects* are corrected by Holm's procedure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, isfinite, isnan, log, nan, sqrt
from typing import Any

import numpy as np

from vitreous.claims.quantity import Array, FewUnits, Quantity
from vitreous.claims.student_t import LEVEL, critical_value, part_between, two_sided_p

PRIOR = {"share": 4.0, "correlation": 8.0}
"""Degrees of freedom that the known variance of shares and correlations counts as, beside that
between trainings. Units of one network may have a common fate, so shares trust it less."""
EXACT = 20
"""Units of all trainings together up to which a share has to pass the exact binomial test, too. It
takes so few values then that an approximation may be far off."""
ALONE = 30.0
"""Degrees of freedom of the known variance of what is made of shares, with one training."""
MANY = 1e6
"""Degrees of freedom of a variance that is known."""
STEPS = 45
"""Of bisection: thirteen digits."""


@dataclass(frozen=True)
class Interval95:
    """A value with its 95 % interval, and what is needed to test it.

    Parameters
    ----------
    spread
        Standard error, on the scale on which the test is made: the logarithm, if `ratio`.
    freedom
        Degrees of freedom of the variance between trainings.
    weight
        Part of the variance that is between trainings.
    score
        Of a share or a correlation: its own test.
    """

    value: float
    low: float
    high: float
    spread: float = 0.0
    freedom: float = 1.0
    seeds: int = 0
    ratio: bool = False
    weight: float = 1.0
    score: ScoreTest | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high; the value itself where there is no interval."""
        low = self.value if isnan(self.low) else self.low
        return low, self.value if isnan(self.high) else self.high

    def p_value(self, null: float) -> float:
        """Two-sided, against `null`."""
        if not isfinite(self.value):
            return nan
        if self.score is not None:
            return float(self.score.p_value(null))
        distance = log(self.value / null) if self.ratio else self.value - null
        if self.spread == 0:
            return 0.0 if distance != 0 else 1.0
        return float(two_sided_p(abs(distance) / self.spread, self.freedom, self.weight))


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
    rows = rows[:, np.isfinite(rows).all(0)]
    if quantity.few is not None and not ratio:
        return _estimate_few(rows, quantity.few)
    known = float(np.mean(list(quantity.sampling.values()))) if quantity.sampling else None
    middle, reach, spread, freedom, weight = map(float, interval_of_mean(rows, known))
    value, low, high = middle, middle - reach, middle + reach
    if ratio:
        value, low, high = exp(value), exp(low), exp(high)
    return Interval95(value, low, high, spread, freedom, len(rows), ratio, weight)


def _estimate_few(rows: Array, few: FewUnits) -> Interval95:
    """A share or a correlation of (seeds, 1 + replicates)."""
    seeds = len(rows)
    _, images = variances_of_mean(rows)
    test = ScoreTest.of(rows[:, 0], few, images)
    value, known = float(test.value), float(test.known)
    low, high = map(float, test.interval())
    spread = sqrt(known * few.variance(few.shrink(value, seeds)) + float(images))
    return Interval95(value, low, high, spread, test.freedom, seeds, score=test)


def interval_of_mean(rows: Array, known: Any = None) -> tuple[Any, Any, Any, Any, Any]:
    """Mean over seeds of (..., seeds, 1 + replicates), with what its interval is made of.

    Parameters
    ----------
    rows
        For every seed the value as measured, then its replicates.
    known
        Variance of one training that is known beside what trainings show, if there is one.

    Returns
    -------
    tuple
        Mean, half the width of its 95 % interval, standard error, degrees of freedom, and the part
        of the variance that is between trainings.
    """
    seeds = rows.shape[-2]
    between, images = variances_of_mean(rows)
    freedom = seeds - 1.0
    if known is not None:
        between, freedom = _moderate(between, freedom, known / seeds)
    weight = part_between(between, images, freedom)
    spread = np.sqrt(between + images)
    return rows[..., 0].mean(-1), spread * critical_value(freedom, weight), spread, freedom, weight


def variances_of_mean(rows: Array) -> tuple[Array, Array]:
    """B and I of the mean over seeds of (..., seeds, 1 + replicates): see the head of this file."""
    seeds = rows.shape[-2]
    between = np.zeros(rows.shape[:-2])
    if seeds > 1:
        between = rows[..., 0].var(-1, ddof=1) / seeds
    if rows.shape[-1] < 3:
        return between, np.zeros(rows.shape[:-2])
    deviations = rows[..., 1:] - rows[..., :1]
    images = deviations.mean(-2).var(-1, ddof=1)
    if seeds > 1:
        images = np.maximum(images - deviations.var(-2, ddof=1).mean(-1) / seeds, 0)
    return between, images


def _bisect(beyond: Callable[[Any], Any], inside: Any, outside: Any) -> Any:
    """The place between two ends from which on `beyond` is true."""
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        there = beyond(middle)
        inside, outside = np.where(there, inside, middle), np.where(there, middle, outside)
    return (inside + outside) / 2


def _moderate(between: Any, freedom: float, known: Any, prior: float = 4.0) -> tuple[Any, float]:
    """A variance between trainings together with the known one, and its degrees of freedom.

    They are between `freedom + prior`, if the known variance were an estimate as well, and the
    larger number that holds if it is exactly right.
    """
    if freedom == 0:
        return known, ALONE
    total = freedom + prior
    return (freedom * between + prior * known) / total, sqrt(total**3 / freedom)


@dataclass(frozen=True)
class ScoreTest:
    """Test of a share or a correlation, with the variance that the null would give it.

    Parameters
    ----------
    value
        Mean over trainings.
    known
        φ over the number of trainings, so that `known * few.variance(null)` is the variance of the
        mean if `null` were true.
    images
        Variance over images.
    """

    few: FewUnits
    seeds: int
    value: Any
    known: Any
    images: Any
    freedom: float

    @classmethod
    def of(cls, values: Array, few: FewUnits, images: Any = 0.0) -> ScoreTest:
        """The test of (..., seeds) values, one for each training."""
        seeds = values.shape[-1]
        phi, freedom = dispersion(values, few)
        return cls(few, seeds, values.mean(-1), phi / seeds, images, freedom)

    @property
    def weight(self) -> Any:
        """Part of the variance that is not over images."""
        value = self.few.shrink(self.value, self.seeds)
        return part_between(self.known * self.few.variance(value), self.images, self.freedom)

    def statistic(self, null: Any) -> Any:
        """Distance from the null in standard errors."""
        variance = self.known * self.few.variance(null) + self.images
        tiny = np.finfo(float).tiny  # at the bounds the variance is zero
        return np.abs(self.value - null) / np.sqrt(np.maximum(variance, tiny))

    def p_value(self, null: Any) -> Any:
        """Two-sided."""
        p_value = two_sided_p(self.statistic(null), self.freedom, self.weight)
        if self._is_exact:
            p_value = np.maximum(p_value, binomial_p(self._ones, self._units, null))
        return p_value

    def interval(self) -> tuple[Any, Any]:
        """All values that are not excluded at 5 %."""
        critical = critical_value(self.freedom, self.weight)

        def excluded(null: Any) -> Any:
            if self._is_exact:
                return self.p_value(null) < LEVEL
            return self.statistic(null) > critical  # the same, and faster

        ends = (np.full(np.shape(self.value), end) for end in self.few.bounds)
        low, high = (_bisect(excluded, self.value, end) for end in ends)
        return low, high

    @property
    def _units(self) -> int:
        return self.few.count * self.seeds

    @property
    def _ones(self) -> Any:
        return np.round(self.value * self._units)

    @property
    def _is_exact(self) -> bool:
        return self.few.kind == "share" and (self.seeds == 1 or self._units <= EXACT)


def binomial_p(ones: Any, units: int, null: Any) -> Any:
    """Exact and two-sided, the smaller tail doubled; its interval is that of Clopper and
    Pearson."""
    from scipy.special import bdtr, bdtrc

    fewer = bdtr(ones, units, null)
    more = np.where(ones > 0, bdtrc(np.maximum(ones - 1, 0), units, null), 1.0)
    return np.minimum(2 * np.minimum(fewer, more), 1.0)


def dispersion(values: Array, few: FewUnits) -> tuple[Array, float]:
    """φ of (..., seeds): how many times the known variance trainings differ by, and its degrees of
    freedom."""
    seeds = values.shape[-1]
    if seeds == 1:
        return np.ones(values.shape[:-1]), MANY
    prior = PRIOR[few.kind]
    expected = few.variance(few.shrink(values.mean(-1), seeds))
    phi, freedom = _moderate(values.var(-1, ddof=1) / expected, seeds - 1.0, 1.0, prior)
    # Of three settings it has four values only, of four eleven: two trainings tell too little more.
    few_values = few.count <= 3 or (few.count == 4 and seeds == 2)
    if few.kind == "correlation" and few_values:
        return np.maximum(phi, 1), seeds - 1 + prior
    return phi, freedom


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
    drawn = {seed: np.nan_to_num(rows[1:] - rows[:1]) for seed, rows in row.seeds.items()}
    between = 0.0
    if len(values) > 1:
        # Trainings also differ because images do another thing to each: replicates show that part.
        by_images = np.stack(list(drawn.values())).var(0, ddof=1).mean()
        between = sqrt(max(values.var(0, ddof=1).mean() - by_images, 0.0))
    generator = np.random.default_rng(values.shape[-1])
    corrected = {}
    for seed, rows in row.seeds.items():
        deviations = drawn[seed]
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
