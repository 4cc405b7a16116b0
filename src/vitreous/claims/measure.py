"""A number as evidence gives it: once for each training, each time with how else it might have come out.

A claim is judged on a statistic of what was measured: a difference of two accuracies, the share of attention units that
smooth, a rank correlation over models. Its interval has to follow from those of the measurements, whatever the
statistic. So a `Measure` holds for every seed 1 + `DRAWS` readings of its numbers: the first as measured, the others as
other images might have given it. Arithmetic works reading by reading; the interval of whatever comes out at the end is
that of its readings, with seeds drawn anew as well where there are several.

Where a result keeps its resamplings, readings are those, and two models on the same images stay paired; elsewhere they
are drawn from the interval that the result states, a normal distribution with a side of its own below and above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add, ge, gt, le, lt, mul, sub, truediv
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vitreous.random_numbers import named_generator

DRAWS = 200
"""As many as probes keep resamplings."""
REACH = 1.959963984540054
"""Standard deviations from the middle to an end of a 95 % interval."""
FULL = 99.0
"""Percent of the images from which on a model can hardly be told from a better one."""

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Measure:
    """(1 + DRAWS,) readings for every seed, or (1 + DRAWS, k) of k numbers side by side. Without seeds: not known."""

    seeds: Mapping[int, Array]
    full: bool = False
    """Whether all that it is made of are accuracies of `FULL` and more, which leave nothing to differ in."""

    @classmethod
    def drawn(
        cls, seed: int, name: str, value: ArrayLike, low: ArrayLike, high: ArrayLike
    ) -> Measure:
        return cls({seed: draw(name, value, low, high)})

    @classmethod
    def exactly(cls, value: ArrayLike, seed: int = 0) -> Measure:
        """Something that leaves no doubt, such as a count."""
        found = np.asarray(value, dtype=np.float64)
        return cls({seed: np.broadcast_to(found, (1 + DRAWS, *found.shape)).copy()})

    @property
    def known(self) -> bool:
        return bool(self.seeds)

    def map(self, function: Callable[[Array], Any]) -> Measure:
        """Of every reading: a number or a row of numbers."""
        return self._with(lambda rows: np.stack([function(each) for each in rows]))

    def _with(self, function: Callable[[Array], Any]) -> Measure:
        """Of all readings of a seed together."""
        return Measure({seed: function(rows) for seed, rows in self.seeds.items()}, self.full)

    def __getitem__(self, part: Any) -> Measure:
        """Some of the numbers that stand side by side."""
        return self._with(lambda rows: rows[:, part])

    def mean(self) -> Measure:
        return self._reduced(np.mean)

    def least(self) -> Measure:
        return self._reduced(np.min)

    def most(self) -> Measure:
        return self._reduced(np.max)

    def _reduced(self, function: Callable[..., Any]) -> Measure:
        """One number of each row; of a row of none, such as the rises of a model of one stage, it is not a number."""
        return self._with(
            lambda rows: (
                function(rows, axis=-1) if rows.shape[-1] else np.full(rows.shape[:-1], np.nan)
            )
        )

    def __add__(self, other: Measure | float) -> Measure:
        return _pairwise(add, self, other)

    def __sub__(self, other: Measure | float) -> Measure:
        return _pairwise(sub, self, other)

    def __rsub__(self, other: float) -> Measure:
        return -self + other

    def __mul__(self, other: Measure | float) -> Measure:
        return _pairwise(mul, self, other)

    def __truediv__(self, other: Measure | float) -> Measure:
        with np.errstate(divide="ignore", invalid="ignore"):
            return _pairwise(truediv, self, other)

    def __neg__(self) -> Measure:
        return self * -1.0

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other: Measure | float) -> Measure:
        """1 where it is so and 0 where not; the mean is the share."""
        return _pairwise(lt, self, other)

    def __le__(self, other: Measure | float) -> Measure:
        return _pairwise(le, self, other)

    def __gt__(self, other: Measure | float) -> Measure:
        return _pairwise(gt, self, other)

    def __ge__(self, other: Measure | float) -> Measure:
        return _pairwise(ge, self, other)

    @property
    def each(self) -> Array:
        """(seeds,) as measured."""
        return np.array([rows[0] for rows in self.seeds.values()], dtype=np.float64)

    def interval(self) -> tuple[float, float, float]:
        """Mean over seeds and its 95 % interval: over images, and over seeds where there are several."""
        rows = np.stack([np.asarray(each, dtype=np.float64) for each in self.seeds.values()])
        if rows.ndim != 2:
            raise ValueError(
                f"An interval is that of one number, and there are {rows.shape[2:]} side by side."
            )
        generator = np.random.default_rng(len(rows))
        chosen = (
            generator.integers(len(rows), size=(DRAWS, len(rows)))
            if len(rows) > 1
            else np.zeros((DRAWS, 1), int)
        )
        replicates = np.take_along_axis(rows[:, 1:].T, chosen, 1).mean(1)
        value = float(rows[:, 0].mean())
        if not np.isfinite(replicates).all():
            finite = replicates[np.isfinite(replicates)]
            replicates = finite if len(finite) else np.array([np.nan])
        low, high = np.quantile(replicates, [0.025, 0.975])
        return value, float(low), float(high)


def draw(name: str, value: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """(1 + DRAWS, …) readings from values with intervals; the same for the same name. An end that is not known adds no
    doubt."""
    middle, under, over = (np.asarray(each, dtype=np.float64) for each in (value, low, high))
    generator = named_generator(name)
    noise = generator.standard_normal((DRAWS, *middle.shape))
    below, above = (np.nan_to_num(np.abs(end - middle) / REACH) for end in (under, over))
    return np.concatenate([middle[None], middle + noise * np.where(noise < 0, below, above)])


def _pairwise(function: Callable[[Any, Any], Any], one: Measure, other: Measure | float) -> Measure:
    """Seed by seed; where the two have no seed in common, in the order of seeds."""
    if not isinstance(other, Measure):
        return one._with(lambda rows: _of(function, rows, other))
    if not (one.known and other.known):
        return Measure({})
    shared = [seed for seed in one.seeds if seed in other.seeds]
    pairs = [(s, s) for s in shared] or list(
        zip(sorted(one.seeds), sorted(other.seeds), strict=False)
    )
    return Measure(
        {a: _of(function, one.seeds[a], other.seeds[b]) for a, b in pairs}, one.full and other.full
    )


def _of(function: Callable[[Any, Any], Any], one: Array, other: Any) -> Array:
    """A number beside several belongs to each of them."""
    if isinstance(other, np.ndarray) and one.ndim != other.ndim:
        one, other = (each[:, None] if each.ndim == 1 else each for each in (one, other))
    return np.asarray(function(one, other), dtype=np.float64)


def beside(measures: Sequence[Measure]) -> Measure:
    """Numbers of several models (or settings) as one row, for the seeds that all of them have, or in order."""
    if not measures or not all(each.known for each in measures):
        return Measure({})
    full = all(each.full for each in measures)
    shared = [seed for seed in measures[0].seeds if all(seed in each.seeds for each in measures)]
    if shared:
        return Measure({s: np.stack([each.seeds[s] for each in measures], 1) for s in shared}, full)
    columns = zip(*(each.seeds.values() for each in measures), strict=False)
    return Measure({number: np.stack(rows, 1) for number, rows in enumerate(columns)}, full)


def spearman(one: Measure | Sequence[float], other: Measure) -> Measure:
    """Rank correlation of two rows of numbers, ties at their mean rank."""
    import pandas as pd  # which everything else has loaded; scipy.stats takes seconds

    def ranked(rows: Array) -> Array:
        return pd.DataFrame(rows).rank(axis=1).to_numpy(dtype=np.float64)

    if not isinstance(one, Measure):
        one = Measure(dict.fromkeys(other.seeds, Measure.exactly(list(one)).seeds[0]), other.full)
    return correlation(one._with(ranked), other._with(ranked))


def correlation(one: Measure, other: Measure) -> Measure:
    """Pearson's, of two rows of numbers; NaN where one is constant."""

    def centred(rows: Array) -> Array:
        off = rows - rows.mean(-1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(off / np.sqrt(np.square(off).sum(-1, keepdims=True)))

    product = one._with(centred) * other._with(centred)
    return product._with(lambda rows: rows.sum(-1))
