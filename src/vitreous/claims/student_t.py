"""Student's t for a mean whose variance is partly between trainings, and partly over images.

Both parts have degrees of freedom of their own: the p-value is that of each part, in proportion.
"""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

import numpy as np

from vitreous.claims.quantity import REPLICATES

LEVEL = 0.05
"""Two-sided: an effect is certain if its 95 % interval leaves out the null."""
CAUTION, CAUTION_OF_TWO = 1.25, 3.25
"""How much the variance between trainings counts in weighing it against that over images. Of few
trainings it is more often too small than too large; with this, intervals of three trainings cover
95.0 to 96.8 %, whatever the part of images is, and those of two 95.0 to 97.8 %."""
NEWTON = 14
"""Most steps of Newton's method: of two trainings it begins far away."""
NEAR = 1e-8
"""A step as small as this is the last: each has twice as many digits right as the one before."""


def part_between(between: Any, images: Any, freedom: float) -> Any:
    """Which part of the variance is between trainings, 1 where there is none at all."""
    cautious = (CAUTION if freedom >= 2 else CAUTION_OF_TWO) * between
    total = np.asarray(cautious + images)
    return np.where(total > 0, cautious / np.where(total > 0, total, 1), 1.0)


def two_sided_p(statistic: Any, freedom: float, weight: Any) -> Any:
    """P(|t| > statistic): Student's, with `freedom` for the part `weight`, else with replicates."""
    from scipy.special import stdtr  # within the function: judging starts without scipy

    trainings = stdtr(max(freedom, 1.0), -statistic)
    images = stdtr(REPLICATES - 1, -statistic)
    return 2 * (weight * trainings + (1 - weight) * images)


def critical_value(freedom: float, weight: Any, level: float = LEVEL) -> Any:
    """The statistic at which `two_sided_p` is `level`, which lies between the quantiles of both."""
    from scipy.special import stdtrit

    images, trainings = stdtrit([REPLICATES - 1.0, max(freedom, 1.0)], 1 - level / 2)
    weight = np.asarray(weight)
    if (weight == 1).all():
        return np.full(weight.shape, trainings)
    if (weight == 0).all():
        return np.full(weight.shape, images)
    found = np.full(weight.shape, min(images, trainings))
    for _ in range(NEWTON):  # the p-value is convex, so this comes from below and never too far
        density = _two_sided_density(found, freedom, weight)
        step = (two_sided_p(found, freedom, weight) - level) / density
        found = found + step
        if np.abs(step).max(initial=0) < NEAR:
            break
    return found


def few_clusters(count: int) -> float:
    """How many times too narrow replicates are that resample so few images, or batches as a whole.

    The variance of n clusters comes out (n − 1)/n times as large as it is, and has n − 1 degrees of
    freedom where replicates are taken to have 199.
    """
    from scipy.special import stdtrit

    if count < 2:
        return 1.0
    own, taken = stdtrit([count - 1.0, REPLICATES - 1.0], 1 - LEVEL / 2)
    return float(own / taken) * sqrt(count / (count - 1))


def _two_sided_density(statistic: Any, freedom: float, weight: Any) -> Any:
    """How fast `two_sided_p` falls."""
    from scipy.special import gammaln

    def density(degrees: float) -> Any:
        scale = gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - 0.5 * log(degrees * pi)
        return np.exp(scale - (degrees + 1) / 2 * np.log1p(np.square(statistic) / degrees))

    return 2 * (weight * density(max(freedom, 1.0)) + (1 - weight) * density(REPLICATES - 1))
