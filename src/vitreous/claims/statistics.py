"""The statistics of verdicts: intervals over images and trainings, tests, and their correction.

*Numbers.* The value of training s on a sample of images is μ + a_s + b + c_s: a_s differs between
trainings, b is the effect of the sampled images on all trainings alike, c_s their effect on one.
The variance of replicates is that of b + c, the variance between trainings that of a + c. So the
variance of the mean over k trainings is

    B + I  =  s²/k  +  max(V − c²/k, 0)

with s² the variance between trainings, V the variance of the replicates of the mean, and c² the
variance between trainings of the replicates' deviations. B has k − 1 degrees of freedom, I as many
as there are replicates. The p-value of t = (mean − null) / √(B + I) is the mean of Student's
p-values with the one and the other degrees of freedom, weighted by the shares of B and I
(`student_t`). (A single t with the degrees of freedom of Welch and Satterthwaite has 7.8 % false
positives at three trainings instead of 5 %, because it trusts s² most when it is small by chance.)
With one training only the images can be resampled, so verdicts then say "seen once".

*Shares of units and correlations over settings* also vary because the units or settings are few.
That variance is a known function v of the true value (`FewUnits`). A value is tested with the
variance φ v / k + I that it would have if it were true (a score test). φ is the dispersion: how
many times v the trainings differ by. Three trainings cannot estimate it, so it is moderated.

*The largest of several numbers* is large by chance, too: to be certainly above a value, it has to
be so as one of all of them (Bonferroni). To stay below a bound it needs no more than any other. The
smallest likewise.

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
from vitreous.claims.student_t import LEVEL, between_share, critical_value, two_sided_p

PRIOR = {"share": 4.0, "correlation": 8.0}
"""Weight, in degrees of freedom, of the known variance of shares and correlations against the
variance between trainings. Units of one network may depend on each other, so shares trust it
less."""
MAX_EXACT_UNITS = 20
"""Number of units of all trainings up to which a share also has to pass the exact binomial test. It
has so few possible values then that the approximation may be far off."""
FREEDOM_OF_ONE = 30.0
"""Degrees of freedom, with one training, of numbers computed from shares or correlations."""
FREEDOM_OF_KNOWN = 1e6
"""Degrees of freedom of a variance that is known."""
STEPS = 45
"""Steps of bisection, enough for thirteen digits."""


@dataclass(frozen=True)
class Interval95:
    """A value with its 95 % interval, and everything needed to test it against a null.

    Parameters
    ----------
    spread
        Standard error on the scale of the test, which is logarithmic if `ratio`.
    freedom
        Degrees of freedom of the variance between trainings.
    weight
        Share of the variance that is between trainings.
    score
        Of a share or a correlation: its own test.
    among
        Number of numbers of which it is the largest, or, with a minus sign, the smallest. Its lower
        end, or its upper end, and the p-value of whatever lies beyond allow for all of them.
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
    among: int = 1

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high; the value itself if there is no interval."""
        low = self.value if isnan(self.low) else self.low
        return low, self.value if isnan(self.high) else self.high

    def p_value(self, null: float) -> float:
        """Two-sided p-value against `null`."""
        if not isfinite(self.value):
            return nan
        if self.score is not None:
            return float(self.score.p_value(null))
        distance = log(self.value / null) if self.ratio else self.value - null
        if self.spread == 0:
            return 0.0 if distance != 0 else 1.0
        p_value = float(two_sided_p(abs(distance) / self.spread, self.freedom, self.weight))
        return min(p_value * abs(self.among), 1.0) if distance * self.among > 0 else p_value


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
    among = quantity.among
    if abs(among) > 1:
        reach = spread * float(critical_value(freedom, weight, LEVEL / abs(among)))
        low, high = (middle - reach, high) if among > 1 else (low, middle + reach)
    if ratio:
        value, low, high = exp(value), exp(low), exp(high)
    return Interval95(value, low, high, spread, freedom, len(rows), ratio, weight, among=among)


def _estimate_few(rows: Array, few: FewUnits) -> Interval95:
    """The interval of a share or a correlation, from (seeds, 1 + replicates)."""
    seeds = len(rows)
    _, images = variances_of_mean(rows)
    test = ScoreTest.of(rows[:, 0], few, images)
    value, known = float(test.value), float(test.known)
    low, high = map(float, test.interval())
    spread = sqrt(known * few.variance(few.shrink(value, seeds)) + float(images))
    return Interval95(value, low, high, spread, test.freedom, seeds, score=test)


def interval_of_mean(rows: Array, known: Any = None) -> tuple[Any, Any, Any, Any, Any]:
    """Mean over seeds of (..., seeds, 1 + replicates), with the parts of its interval.

    Parameters
    ----------
    rows
        For every seed the value as measured, then its replicates.
    known
        The known variance of one training, that of shares and correlations, if there is one.

    Returns
    -------
    tuple
        Mean, half the width of its 95 % interval, standard error, degrees of freedom, and the share
        of the variance that is between trainings.
    """
    seeds = rows.shape[-2]
    between, images = variances_of_mean(rows)
    freedom = seeds - 1.0
    if known is not None:
        between, freedom = _moderate(between, freedom, known / seeds)
    weight = between_share(between, images, freedom)
    spread = np.sqrt(between + images)
    return rows[..., 0].mean(-1), spread * critical_value(freedom, weight), spread, freedom, weight


def variances_of_mean(rows: Array) -> tuple[Array, Array]:
    """B and I of the mean over seeds of (..., seeds, 1 + replicates), as defined above."""
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


def _bisect(excluded: Callable[[Any], Any], inside: Any, outside: Any) -> Any:
    """The value between `inside` and `outside` at which `excluded` becomes true."""
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        is_out = excluded(middle)
        inside, outside = np.where(is_out, inside, middle), np.where(is_out, middle, outside)
    return (inside + outside) / 2


def _moderate(between: Any, freedom: float, known: Any, prior: float = 4.0) -> tuple[Any, float]:
    """The weighted mean of the variance between trainings and the known one, with its degrees of
    freedom.

    These lie between `freedom + prior`, which would hold if the known variance were an estimate as
    well, and the larger number that holds if it is exactly right.
    """
    if freedom == 0:
        return known, FREEDOM_OF_ONE
    total = freedom + prior
    return (freedom * between + prior * known) / total, sqrt(total**3 / freedom)


@dataclass(frozen=True)
class ScoreTest:
    """Score test of a share or a correlation: the variance is that under the null.

    Parameters
    ----------
    value
        Mean over trainings.
    known
        φ divided by the number of trainings: `known * few.variance(null)` is the variance of the
        mean if `null` is true.
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
        """Share of the variance that is not over images."""
        value = self.few.shrink(self.value, self.seeds)
        return between_share(self.known * self.few.variance(value), self.images, self.freedom)

    def statistic(self, null: Any) -> Any:
        """Distance from the null in standard errors."""
        variance = self.known * self.few.variance(null) + self.images
        tiny = np.finfo(float).tiny  # at the bounds the variance is zero
        return np.abs(self.value - null) / np.sqrt(np.maximum(variance, tiny))

    def p_value(self, null: Any) -> Any:
        """Two-sided p-value against `null`."""
        p_value = two_sided_p(self.statistic(null), self.freedom, self.weight)
        if self._is_exact:
            p_value = np.maximum(p_value, binomial_p(self._ones, self._units, null))
        return p_value

    def interval(self) -> tuple[Any, Any]:
        """Ends of the 95 % interval: the values that are not excluded at 5 %."""
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
        return self.few.kind == "share" and (self.seeds == 1 or self._units <= MAX_EXACT_UNITS)


def binomial_p(ones: Any, units: int, null: Any) -> Any:
    """Exact two-sided p-value: twice the smaller tail, as for Clopper-Pearson intervals."""
    from scipy.special import bdtr, bdtrc

    fewer = bdtr(ones, units, null)
    more = np.where(ones > 0, bdtrc(np.maximum(ones - 1, 0), units, null), 1.0)
    return np.minimum(2 * np.minimum(fewer, more), 1.0)


def dispersion(values: Array, few: FewUnits) -> tuple[Array, float]:
    """φ of (..., seeds) values, the variance between trainings relative to the known one, and its
    degrees of freedom."""
    seeds = values.shape[-1]
    if seeds == 1:
        return np.ones(values.shape[:-1]), FREEDOM_OF_KNOWN
    prior = PRIOR[few.kind]
    expected = few.variance(few.shrink(values.mean(-1), seeds))
    phi, freedom = _moderate(values.var(-1, ddof=1) / expected, seeds - 1.0, 1.0, prior)
    # A rank correlation of three settings has four possible values, one of four settings eleven:
    # too few to estimate a dispersion below one.
    few_values = few.count <= 3 or (few.count == 4 and seeds == 2)
    if few.kind == "correlation" and few_values:
        return np.maximum(phi, 1), seeds - 1 + prior
    return phi, freedom


def beyond_chance(row: Quantity, statistic: Any) -> Quantity:
    """A statistic that noise biases upwards, minus the value that noise alone gives it.

    The range of k equal numbers, for example, is positive by chance. That bias is computed on rows
    of k equal numbers with the noise of the real ones: the deviations of replicates, and with
    several trainings the differences between trainings.

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
        # Without the part of the differences that is due to images, which replicates contain.
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
    """Holm's procedure: which effects stay certain when all are judged together.

    The smallest p-value is compared with level / n, the next with level / (n − 1), and so on up to
    the first that fails. The probability of any false positive is then at most `level`.
    """
    certain = [False] * len(p_values)
    for rank, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[number] > level / (len(p_values) - rank):
            break
        certain[number] = True
    return certain
