"""Quantities: one value per training, each with its bootstrap replicates over images.

A claim is judged on a statistic of measurements: a difference of two accuracies, the share of
attention units that smooth, a rank correlation over models. `Quantity` does arithmetic on values
and replicates together, so every statistic has replicates as well. Replicate r is the same resample
of the images for every unit, model and training, so comparisons stay paired.
`statistics.estimate_effect` turns the final quantity into a value with a 95 % interval.
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
"""Number of bootstrap replicates, which is that of stored results."""
NORMAL_95 = 1.959963984540054
"""Half the width of a normal 95 % interval, in standard deviations."""
SATURATED = 99.0
"""Accuracy in percent above which models hardly differ."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FewUnits:
    """The number of units of a share (or settings of a correlation), and the variance due to it.

    The variance is a known function of the true value. `statistics` therefore tests a value with
    the variance that it would have if it were true, as Wilson's interval does. This is also right
    at 0 and 1, where an estimate from twelve units out of twelve would be zero.

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
        """The smallest and the largest possible value."""
        return (0.0, 1.0) if self.kind == "share" else (-1.0, 1.0)

    def variance(self, value: Any) -> Any:
        """The variance of one training, if `value` is the true value.

        p (1 - p) / n for a share, and (1 - ρ²)² / (n - 1) for a correlation. The latter is exact
        for rank correlations at ρ = 0. With few settings it falls too fast near one, so ρ is
        shrunk a little.
        """
        if self.kind == "share":
            return value * (1 - value) / self.count
        shrunk = value * (1 - 0.5 / self.count**2)
        return np.square(1 - np.square(shrunk)) / max(self.count - 1, 1)

    def shrink(self, mean: Any, seeds: int) -> Any:
        """A mean over trainings, moved away from the bounds, where the variance would be zero."""
        if self.kind == "share":  # add one unit of each kind
            return (mean * seeds * self.count + 1) / (seeds * self.count + 2)
        return mean


@dataclass(frozen=True, eq=False)
class Quantity:
    """One number, or a row of k numbers, for every training.

    Parameters
    ----------
    seeds
        For every seed an array (1 + replicates,), or (1 + replicates, k) for a row of k numbers:
        the value as measured first, then its replicates. Empty if nothing was measured.
    saturated
        Whether all accuracies that it is computed from are at least `SATURATED` percent.
    few
        For a share of units or a correlation over settings: their number. A share of twelve units
        out of twelve has no spread over images or trainings, but still rests on only twelve.
    sampling
        The variance due to few units, by seed; also for numbers computed from shares and
        correlations, such as their difference.
    indicator
        Whether its entries are 0 or 1, so that its mean is a share.
    among
        Number of numbers of which it was chosen as the largest, or, with a minus sign, as the
        smallest: more than one make it large or small by chance.

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
    among: int = 1

    @classmethod
    def exactly(cls, value: ArrayLike, seed: int = 0) -> Quantity:
        """A quantity without uncertainty, such as a count."""
        number = np.asarray(value, dtype=np.float64)
        return cls({seed: np.broadcast_to(number, (1 + REPLICATES, *number.shape)).copy()})

    @property
    def known(self) -> bool:
        return bool(self.seeds)

    @property
    def values(self) -> Array:
        """The measured values, (seeds,) or (seeds, k), without replicates."""
        return np.array([rows[0] for rows in self.seeds.values()], dtype=np.float64)

    def map(self, function: Callable[[Array], Any]) -> Quantity:
        """Apply a function to the value and to every replicate."""
        return self._apply(lambda rows: np.stack([function(each) for each in rows]))

    def _apply(self, function: Callable[[Array], Any]) -> Quantity:
        """Apply a function to all rows of a seed at once."""
        applied = {seed: function(rows) for seed, rows in self.seeds.items()}
        return Quantity(applied, self.saturated)

    def __getitem__(self, part: Any) -> Quantity:
        """Select numbers of a row."""
        return self._apply(lambda rows: rows[:, part])

    def mean(self) -> Quantity:
        """Mean over the row; for an indicator it is a share of units."""
        mean = self._reduce(np.mean)
        if not self.indicator:
            return mean
        values = self.values
        few = FewUnits("share", values.shape[-1])  # 0 units if nothing was measured
        sampling = dict.fromkeys(self.seeds, _share_variance(values))
        return Quantity(mean.seeds, self.saturated, sampling, few=few)

    def minimum(self) -> Quantity:
        return self._reduce(np.min)

    def maximum(self) -> Quantity:
        return self._reduce(np.max)

    def _reduce(self, function: Callable[..., Any]) -> Quantity:
        """Reduce each row to one number; NaN for an empty row."""

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
        """1 where `self < other`, else 0, so that `(a < b).mean()` is a share."""
        return _compare(lt, self, other)

    def __le__(self, other: Quantity | float) -> Quantity:
        return _compare(le, self, other)

    def __gt__(self, other: Quantity | float) -> Quantity:
        return _compare(gt, self, other)

    def __ge__(self, other: Quantity | float) -> Quantity:
        return _compare(ge, self, other)


def _share_variance(rows: Array) -> float:
    """Variance of the share of ones in a row, from (seeds, k) with one unit of each kind added."""
    share = (rows.sum() + 1) / (rows.size + 2)
    return float(share * (1 - share) / rows.shape[-1]) if rows.size else 0.0


def _combine(
    function: Callable[[Any, Any], Any], one: Quantity, other: Quantity | float
) -> Quantity:
    """Apply a binary function to the values and replicates of the same seed.

    If the two have no seed in common, seeds are paired in their order.
    """
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
    """Apply a function to two arrays; a single number is combined with every number of a row."""
    if isinstance(other, np.ndarray) and one.ndim != other.ndim:
        one, other = (each[:, None] if each.ndim == 1 else each for each in (one, other))
    return np.asarray(function(one, other), dtype=np.float64)


def side_by_side(quantities: Sequence[Quantity]) -> Quantity:
    """Stack the numbers of several models to a row, for the seeds that all of them have.

    If they have no seed in common, the first seeds of all are one row, the second seeds the next,
    and so on.
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
    """The quantity with the smallest mean over trainings, for a claim about all of them.

    It decides for all: if it is more than zero for certain, so are the others. The smallest number
    of every single training would be too small by chance alone. This one still is, a little, so it
    is certainly below something only if it would be as one of all of them (Bonferroni).
    """
    if not quantities or not all(each.known for each in quantities):
        return Quantity({})
    least = min(quantities, key=lambda each: float(each.values.mean()))
    return replace(least, among=-len(quantities))


def best_of(row: Quantity) -> Quantity:
    """The number of a row with the largest mean over trainings, as accuracy at the best rate."""
    return row[int(row.values.mean(0).argmax())] if row.known else row


def largest_difference(row: Quantity, beyond: Quantity | float = 0.0) -> Quantity:
    """Difference of those two numbers of a row whose means over trainings are farthest apart, minus
    what it is allowed to be.

    Which two that is, all trainings decide together. The range of each single training would be
    too large by chance alone. This one still is, a little, so that it is certainly above zero only
    if it would be as one of all the differences that there are (Bonferroni).
    """
    if not row.known:
        return row
    means = row.values.mean(0)
    largest = row[int(means.argmax())] - row[int(means.argmin())] - beyond
    return replace(largest, among=len(means) * (len(means) - 1) // 2)


def geometric_mean(row: Quantity) -> Quantity:
    """Geometric mean over a row of ratios."""

    def reduce(rows: Array) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.exp(np.log(rows).mean(-1))

    return row._apply(reduce)


def spearman(one: Quantity | Sequence[float], other: Quantity) -> Quantity:
    """Rank correlation of two rows of numbers, with ties at their mean rank."""

    def rank(rows: Array) -> Array:
        """Ranks from all pairwise comparisons: rows are short, and scipy.stats imports slowly."""
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
    rho = product._apply(lambda rows: np.clip(rows.sum(-1), -1, 1))
    if not rho.known:
        return Quantity({}, few=FewUnits("correlation", 0))
    few = FewUnits("correlation", next(iter(product.seeds.values())).shape[-1])
    sampling = {
        seed: float(np.nan_to_num(few.variance(rows[0]))) for seed, rows in rho.seeds.items()
    }
    return replace(rho, sampling=sampling, few=few)


def replicates_from_interval(name: str, value: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """Simulate (1 + REPLICATES, ...) for a number of which only the interval is stored.

    They are normal, with different standard deviations below and above the value. The same name
    gives the same replicates, and different names independent ones. An unknown end adds no
    uncertainty on its side.
    """
    middle, bottom, top = (np.asarray(each, dtype=np.float64) for each in (value, low, high))
    noise = named_generator(name).standard_normal((REPLICATES, *middle.shape))
    below, above = (np.nan_to_num(np.abs(end - middle) / NORMAL_95) for end in (bottom, top))
    return np.concatenate([middle[None], middle + noise * np.where(noise < 0, below, above)])


def share_replicates(value: float, replicates: Array, clusters: int) -> Array:
    """Replicates of a share, with a spread also at 0 and 1.

    Replicates of a share that is 0 (or 1) in all of `clusters` independent batches do not vary, but
    its exact 95 % interval has the width 1 − 0.025^(1/clusters). They are spread to that width.
    """
    if 0 < value < 1 or clusters < 1 or np.ptp(replicates) > 0:
        return replicates
    width = 1 - 0.025 ** (1 / clusters)
    quantiles = (np.arange(len(replicates)) + 0.5) / len(replicates)
    offsets = -np.log1p(-quantiles)  # exponentially distributed
    offsets *= width / NORMAL_95 / np.sqrt(np.mean(np.square(offsets)))
    np.random.default_rng(clusters).shuffle(offsets)
    return replicates + offsets if value <= 0 else replicates - offsets
