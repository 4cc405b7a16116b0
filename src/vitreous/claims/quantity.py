"""A number as a claim reads it: one value per training, each with its bootstrap replicates over
images.

A claim is judged on a statistic of what was measured: a difference of two accuracies, the share of
attention units that smooth, a rank correlation over models. `Quantity` does arithmetic on values
and replicates together, so that whatever comes out at the end has replicates as well. Replicate r
is the same resample of the images for every unit, model and training, so comparisons stay paired.
`statistics.estimate_effect` turns the result into a value with a 95 % interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add, ge, gt, le, lt, mul, sub, truediv
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vitreous.random_numbers import named_generator

REPLICATES = 200
"""As many as results keep."""
NORMAL_95 = 1.959963984540054
"""Standard deviations from the middle to an end of a normal 95 % interval."""
SATURATED = 99.0
"""Accuracy in percent from which on a model can hardly be told from a better one."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FewUnits:
    """How few things a share or a correlation is made of, and how much it varies because of that.

    The variance is a known function of the true value. `statistics` therefore tests a value with
    the variance that would hold if it were true, as Wilson's interval does: that is right at 0 and
    1, too, where the variance estimated from twelve units of twelve would be zero.

    Parameters
    ----------
    kind
        A "share" of units, or a "correlation" over settings (of values or of ranks).
    count
        Number of units or settings in each training.

    Examples
    --------
    >>> FewUnits("share", 12).variance(0.5)
    0.0208...
    """

    kind: Literal["share", "correlation"]
    count: int

    @property
    def bounds(self) -> tuple[float, float]:
        """Values that it cannot lie beyond."""
        return (0.0, 1.0) if self.kind == "share" else (-1.0, 1.0)

    def variance(self, value: Any) -> Any:
        """Of one training, if this were the true value.

        p (1 - p) / n of a share, and (1 - ρ²)² / (n - 1) of a correlation. The latter is exact at
        ρ = 0 for ranks in any order; near one it falls too fast for few settings, so ρ is moved
        towards zero by a little.
        """
        if self.kind == "share":
            return value * (1 - value) / self.count
        moved = value * (1 - 0.5 / self.count**2)
        return np.square(1 - np.square(moved)) / max(self.count - 1, 1)

    def shrink(self, mean: Any, seeds: int) -> Any:
        """A mean over trainings, moved from the bounds, where the variance would be zero."""
        if self.kind == "share":  # with one of each added
            return (mean * seeds * self.count + 1) / (seeds * self.count + 2)
        return mean


@dataclass(frozen=True, eq=False)
class Quantity:
    """One number, or a row of k numbers, for every training.

    Parameters
    ----------
    seeds
        For every seed an array (1 + replicates,), or (1 + replicates, k) for a row of k numbers:
        the value as measured first, then its replicates. Empty where nothing was measured.
    saturated
        Whether all accuracies that it is made of are at least `SATURATED` percent.
    few
        Of a share of units and of a correlation over settings: how many there are. Twelve units of
        twelve have no spread over images or trainings, and still are only twelve.
    sampling
        The variance that comes from this, for every seed; also of what is computed from shares and
        correlations, such as their difference.
    indicator
        Whether its entries are 0 or 1, so that its mean is a share.

    Examples
    --------
    >>> accuracy = Quantity({0: np.array([0.91, 0.90, 0.92]), 1: np.array([0.93, 0.92, 0.93])})
    >>> (100 * accuracy - 90).values
    array([1., 3.])
    """

    seeds: Mapping[int, Array]
    saturated: bool = False
    sampling: Mapping[int, float] = field(default_factory=dict)
    indicator: bool = False
    few: FewUnits | None = None

    @classmethod
    def exactly(cls, value: ArrayLike, seed: int = 0) -> Quantity:
        """Something without uncertainty, such as a count."""
        number = np.asarray(value, dtype=np.float64)
        return cls({seed: np.broadcast_to(number, (1 + REPLICATES, *number.shape)).copy()})

    @property
    def known(self) -> bool:
        return bool(self.seeds)

    @property
    def values(self) -> Array:
        """(seeds,) or (seeds, k) as measured, without replicates."""
        return np.array([rows[0] for rows in self.seeds.values()], dtype=np.float64)

    def map(self, function: Callable[[Array], Any]) -> Quantity:
        """Apply a function to the value and to every replicate."""
        return self._apply(lambda rows: np.stack([function(each) for each in rows]))

    def _apply(self, function: Callable[[Array], Any]) -> Quantity:
        """Apply a function to all rows of a seed at once."""
        applied = {seed: function(rows) for seed, rows in self.seeds.items()}
        return Quantity(applied, self.saturated)

    def __getitem__(self, part: Any) -> Quantity:
        """Some of the numbers of a row."""
        return self._apply(lambda rows: rows[:, part])

    def mean(self) -> Quantity:
        """Mean over the row; of zeros and ones it is a share."""
        mean = self._reduce(np.mean)
        if not self.indicator:
            return mean
        values = self.values
        few = FewUnits("share", values.shape[-1])  # of none, where nothing was measured
        sampling = dict.fromkeys(self.seeds, _share_variance(values))
        return Quantity(mean.seeds, self.saturated, sampling, few=few)

    def minimum(self) -> Quantity:
        return self._reduce(np.min)

    def maximum(self) -> Quantity:
        return self._reduce(np.max)

    def _reduce(self, function: Callable[..., Any]) -> Quantity:
        """One number of each row; NaN of an empty row."""

        def reduce(rows: Array) -> Any:
            if rows.shape[-1] == 0:
                return np.full(rows.shape[:-1], np.nan)
            return function(rows, axis=-1)

        return self._apply(reduce)

    def __add__(self, other: Quantity | float) -> Quantity:
        return _combine(add, self, other)

    def __sub__(self, other: Quantity | float) -> Quantity:
        return _combine(sub, self, other)

    def __rsub__(self, other: float) -> Quantity:
        return -self + other

    def __mul__(self, other: Quantity | float) -> Quantity:
        return _combine(mul, self, other)

    def __truediv__(self, other: Quantity | float) -> Quantity:
        with np.errstate(divide="ignore", invalid="ignore"):
            return _combine(truediv, self, other)

    def __neg__(self) -> Quantity:
        return self * -1.0

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other: Quantity | float) -> Quantity:
        """1 where it is so and 0 where not, so that `(a < b).mean()` is a share."""
        return _compare(lt, self, other)

    def __le__(self, other: Quantity | float) -> Quantity:
        return _compare(le, self, other)

    def __gt__(self, other: Quantity | float) -> Quantity:
        return _compare(gt, self, other)

    def __ge__(self, other: Quantity | float) -> Quantity:
        return _compare(ge, self, other)


def _share_variance(rows: Array) -> float:
    """Variance of the share of ones in a row of (seeds, k), estimated with one of each added."""
    share = (rows.sum() + 1) / (rows.size + 2)
    return float(share * (1 - share) / rows.shape[-1]) if rows.size else 0.0


def _combine(
    function: Callable[[Any, Any], Any], one: Quantity, other: Quantity | float
) -> Quantity:
    """Seed by seed; in the order of seeds where the two have none in common."""
    if not isinstance(other, Quantity):
        combined = {seed: _elementwise(function, rows, other) for seed, rows in one.seeds.items()}
        factor = other**2 if function is mul else 1 / other**2 if function is truediv else 1.0
        sampling = {seed: variance * factor for seed, variance in one.sampling.items()}
        return Quantity(combined, one.saturated, sampling)
    if not (one.known and other.known):
        return Quantity({})
    shared = [(seed, seed) for seed in one.seeds if seed in other.seeds]
    pairs = shared or list(zip(sorted(one.seeds), sorted(other.seeds), strict=False))
    combined = {a: _elementwise(function, one.seeds[a], other.seeds[b]) for a, b in pairs}
    sampling = {}
    if function in (add, sub) and (one.sampling or other.sampling):
        sampling = {a: one.sampling.get(a, 0.0) + other.sampling.get(b, 0.0) for a, b in pairs}
    return Quantity(combined, one.saturated and other.saturated, sampling)


def _compare(
    function: Callable[[Any, Any], Any], one: Quantity, other: Quantity | float
) -> Quantity:
    compared = _combine(function, one, other)
    return Quantity(compared.seeds, compared.saturated, indicator=True)


def _elementwise(function: Callable[[Any, Any], Any], one: Array, other: Any) -> Array:
    """A single number combined with a row belongs to each of the row's numbers."""
    if isinstance(other, np.ndarray) and one.ndim != other.ndim:
        one, other = (each[:, None] if each.ndim == 1 else each for each in (one, other))
    return np.asarray(function(one, other), dtype=np.float64)


def side_by_side(quantities: Sequence[Quantity]) -> Quantity:
    """The numbers of several models as one row, for the seeds that all of them have.

    Where they have no seed in common, the first seeds of all make the first row, and so on.
    """
    if not quantities or not all(each.known for each in quantities):
        return Quantity({})
    saturated = all(each.saturated for each in quantities)
    shared = [seed for seed in quantities[0].seeds if all(seed in q.seeds for q in quantities)]
    if shared:
        rows = {seed: np.stack([q.seeds[seed] for q in quantities], 1) for seed in shared}
    else:
        columns = zip(*(q.seeds.values() for q in quantities), strict=False)
        rows = {number: np.stack(column, 1) for number, column in enumerate(columns)}
    return Quantity(rows, saturated)


def least_of(quantities: Sequence[Quantity]) -> Quantity:
    """The one with the smallest mean over trainings, where a sentence holds of all of them.

    It decides for all: if it is more than zero for certain, so are the others. The smallest number
    of every single training would be too small by chance alone.
    """
    if not quantities or not all(each.known for each in quantities):
        return Quantity({})
    return min(quantities, key=lambda each: float(each.values.mean()))


def best_of(row: Quantity) -> Quantity:
    """That number of a row whose mean over trainings is largest: accuracy at the best rate."""
    return row[int(row.values.mean(0).argmax())] if row.known else row


def largest_difference(row: Quantity) -> Quantity:
    """Difference of those two numbers of a row whose means over trainings are farthest apart.

    Which two that is, all trainings decide together. The range of each single training would be
    too large by chance alone.
    """
    if not row.known:
        return row
    means = row.values.mean(0)
    return row[int(means.argmax())] - row[int(means.argmin())]


def geometric_mean(row: Quantity) -> Quantity:
    """Geometric mean over a row of ratios."""

    def reduce(rows: Array) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.exp(np.log(rows).mean(-1))

    return row._apply(reduce)


def spearman(one: Quantity | Sequence[float], other: Quantity) -> Quantity:
    """Rank correlation of two rows of numbers, with ties at their mean rank."""

    def rank(rows: Array) -> Array:
        """By comparing every two, which is fast enough for few; scipy.stats is slow to import."""
        below = (rows[:, None, :] < rows[:, :, None]).sum(-1)
        same = (rows[:, None, :] == rows[:, :, None]).sum(-1)
        return np.where(np.isnan(rows), np.nan, below + (same + 1) / 2)

    if not isinstance(one, Quantity):
        if not other.known:
            return Quantity({}, few=FewUnits("correlation", len(one)))
        settings = np.asarray([list(one)], dtype=np.float64)
        one = Quantity(dict.fromkeys(other.seeds, settings), other.saturated)
    return correlation(one._apply(rank), other._apply(rank))


def correlation(one: Quantity, other: Quantity) -> Quantity:
    """Pearson correlation of two rows of numbers; NaN where one of them is constant."""

    def standardise(rows: Array) -> Array:
        centred = rows - rows.mean(-1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(centred / np.sqrt(np.square(centred).sum(-1, keepdims=True)))

    product = one._apply(standardise) * other._apply(standardise)
    found = product._apply(lambda rows: np.clip(rows.sum(-1), -1, 1))
    if not found.known:
        return Quantity({}, few=FewUnits("correlation", 0))
    few = FewUnits("correlation", next(iter(product.seeds.values())).shape[-1])
    sampling = {
        seed: float(np.nan_to_num(few.variance(rows[0]))) for seed, rows in found.seeds.items()
    }
    return replace(found, sampling=sampling, few=few)


def replicates_from_interval(name: str, value: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """(1 + REPLICATES, ...) made up for a number of which only the interval was kept.

    Normal, with a side of its own below and above; the same for the same name, and independent of
    every other name. Results of version 0.1 have nothing better. An end that is not known adds no
    uncertainty.
    """
    middle, bottom, top = (np.asarray(each, dtype=np.float64) for each in (value, low, high))
    noise = named_generator(name).standard_normal((REPLICATES, *middle.shape))
    below, above = (np.nan_to_num(np.abs(end - middle) / NORMAL_95) for end in (bottom, top))
    return np.concatenate([middle[None], middle + noise * np.where(noise < 0, below, above)])


def share_replicates(value: float, replicates: Array, clusters: int) -> Array:
    """Replicates of a share that are right at 0 and 1, too.

    A share of 0 (or 1) in all of `clusters` independent batches has no spread, yet its exact 95 %
    interval ends at 1 − 0.025^(1/clusters) from it. There the replicates are spread as far as that.
    """
    if 0 < value < 1 or clusters < 1 or np.ptp(replicates) > 0:
        return replicates
    reach = 1 - 0.025 ** (1 / clusters)
    quantiles = (np.arange(len(replicates)) + 0.5) / len(replicates)
    away = -np.log1p(-quantiles)
    away *= reach / NORMAL_95 / np.sqrt(np.mean(np.square(away)))
    np.random.default_rng(clusters).shuffle(away)
    return replicates + away if value <= 0 else replicates - away
