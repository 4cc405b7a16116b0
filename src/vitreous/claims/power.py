"""The power of a study: the probability that a true claim is reproduced with `seeds` trainings."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import isfinite, sqrt

import numpy as np

from vitreous.claims.effects import Effect
from vitreous.claims.quantity import FewUnits
from vitreous.claims.statistics import Interval95, ScoreTest
from vitreous.claims.student_t import LEVEL, between_share, critical_value

TARGET_POWER = 0.8
"""The power that a study should have."""
VARIANCE_POINTS = 200
"""Number of quantiles over which the variance between trainings is averaged."""
STEPS = 30
"""Steps of bisection, enough for nine digits."""


def assumed_truth(effect: Effect) -> float | None:
    """The true value to assume: the paper's value, or the smallest effect that matters.

    For an equivalence it is no difference. None if the effect only has a direction.
    """
    if effect.direction == "within":
        return effect.null
    if effect.paper is not None and effect.distance(effect.paper) > 0:
        return effect.paper
    if effect.matters:
        return effect.threshold
    return None


def power(
    effect: Effect,
    truth: float,
    seeds: int,
    between: float,
    images: float = 0.0,
    *,
    certain: bool = False,
) -> float:
    """Probability that an effect is reproduced, if `truth` is its true value.

    The mean over trainings is normal around the truth. The variance between trainings is estimated
    from them, and has a χ² distribution, over which the probability is averaged.

    Parameters
    ----------
    effect
        The rule: null, direction, and the size that counts.
    truth
        The true value.
    seeds
        Number of trainings.
    between
        Standard deviation between trainings; of a ratio, that of its logarithm.
    images
        Standard error over images, which all trainings have in common; of a ratio, likewise.
    certain
        Ask for the direction only: reproduced or weaker.

    Examples
    --------
    >>> from vitreous.claims.effects import more
    >>> from vitreous.claims.quantity import Quantity
    >>> effect = more("gap in points", Quantity({}), paper=16.2)
    >>> round(power(effect, truth=16.2, seeds=3, between=2.0), 2)
    1.0
    """
    from scipy.special import gammaincinv, ndtr

    freedom = seeds - 1
    quantiles = (np.arange(VARIANCE_POINTS) + 0.5) / VARIANCE_POINTS
    variance = between**2 * gammaincinv(freedom / 2, quantiles) * 2 / freedom
    over_images = np.full(VARIANCE_POINTS, images**2)
    total = np.sqrt(variance / seeds + over_images)
    share = between_share(variance / seeds, over_images, freedom)
    half_width = total * critical_value(freedom, share)
    error = sqrt(between**2 / seeds + images**2) or np.finfo(float).tiny
    distance = effect.distance(truth)
    if effect.direction == "within":
        assert effect.bound is not None
        room = effect.bound - half_width
        probability = ndtr((room - distance) / error) - ndtr((-room - distance) / error)
        return float(np.where(room > 0, probability, 0.0).mean())
    least = 0.0 if certain or effect.bound is not None else effect.required_distance
    return float(ndtr((distance - np.maximum(half_width, least)) / error).mean())


def power_of_few(
    effect: Effect, truth: float, seeds: int, few: FewUnits, *, certain: bool = False
) -> float:
    """`power` for a share of units or a correlation over settings, whose variance is known.

    Trainings are assumed to differ only as much as the small number of units makes them differ.
    """
    from scipy.special import ndtr
    from scipy.stats import binom

    units = few.count * seeds
    low, high = few.bounds
    values = np.linspace(low, high, units + 1 if few.kind == "share" else 2001)
    known = np.full(len(values), 1 / seeds)
    freedom = ScoreTest.of(np.zeros((1, seeds)), few).freedom
    test = ScoreTest(few, seeds, values, known, 0.0, freedom)
    distances = effect.sign * (values - effect.null)
    far_enough = distances > 0 if certain else distances >= effect.required_distance - 1e-9
    reproduced = far_enough & (distances > 0) & (test.p_value(effect.null) < LEVEL)
    if few.kind == "share":
        return float(binom.pmf(np.arange(units + 1), units, truth)[reproduced].sum())
    if not reproduced.any():
        return 0.0
    first = np.min(distances[reproduced])
    error = sqrt(few.variance(truth) / seeds)
    return float(ndtr((effect.sign * (truth - effect.null) - first) / error))


def largest_spread(power_at: Callable[[float], float], start: float = 1.0) -> float:
    """The largest standard deviation between trainings at which the power is still 80 %.

    NaN if the power is lower than that even without differences between trainings.
    """
    if power_at(start * 1e-9) < TARGET_POWER:
        return float("nan")
    low, high = 0.0, start
    while power_at(high) >= TARGET_POWER:
        low, high = high, 2 * high
        if not isfinite(high):
            return high
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if power_at(middle) >= TARGET_POWER else (low, middle)
    return low


@cache
def detectable_effect(seeds: int, between: float, images: float = 0.0) -> float:
    """The smallest distance from the null whose direction is certain in 80 % of the studies.

    Examples
    --------
    >>> round(detectable_effect(seeds=3, between=1.0), 2)
    3.26
    """
    rule = Effect("", Interval95(0.0, 0.0, 0.0), "more")
    error = sqrt(between**2 / seeds + images**2)
    low, high = 0.0, 100 * error
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = power(rule, middle, seeds, between, images) >= TARGET_POWER
        low, high = (low, middle) if enough else (middle, high)
    return high
