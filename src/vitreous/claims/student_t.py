"""Student's t for a mean whose variance is partly between trainings and partly over images.

The two parts have different degrees of freedom. The p-value is a mean of the p-values with the one
and with the other, weighted by their shares of the variance.
"""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any

import numpy as np

from vitreous.claims.quantity import REPLICATES

LEVEL = 0.05
"""Two-sided level: an effect is certain if its 95 % interval excludes the null."""
BETWEEN_WEIGHT, BETWEEN_WEIGHT_OF_TWO = 1.25, 3.25
"""Factor of the variance between trainings when the two shares are computed; the second is for two
trainings. Estimated from few trainings, that variance is more often too small than too large. With
these factors, intervals of three trainings cover 95.0 to 96.8 %, whatever the share of images is,
and those of two trainings 95.0 to 97.8 %."""
MAX_NEWTON_STEPS = 14
"""Maximum number of steps of Newton's method; with two trainings it begins far from the result."""
TOLERANCE = 1e-8
"""Newton's method stops after a step smaller than this; every step doubles the correct digits."""


def between_share(between: Any, images: Any, freedom: float) -> Any:
    """The share of the variance that is between trainings; 1 if there is no variance at all."""
    weighted = (BETWEEN_WEIGHT if freedom >= 2 else BETWEEN_WEIGHT_OF_TWO) * between
    total = np.asarray(weighted + images)
    return np.where(total > 0, weighted / np.where(total > 0, total, 1), 1.0)


def two_sided_p(statistic: Any, freedom: float, weight: Any) -> Any:
    """P(|t| > statistic), with `freedom` degrees of freedom for the share `weight` of the variance,
    and those of the replicates for the rest."""
    from scipy.special import stdtr  # within the function: judging starts without scipy

    trainings = stdtr(max(freedom, 1.0), -statistic)
    images = stdtr(REPLICATES - 1, -statistic)
    return 2 * (weight * trainings + (1 - weight) * images)


def critical_value(freedom: float, weight: Any, level: float = LEVEL) -> Any:
    """The statistic at which `two_sided_p` is `level`, between the two Student quantiles."""
    from scipy.special import stdtrit

    images, trainings = stdtrit([REPLICATES - 1.0, max(freedom, 1.0)], 1 - level / 2)
    weight = np.asarray(weight)
    if (weight == 1).all():
        return np.full(weight.shape, trainings)
    if (weight == 0).all():
        return np.full(weight.shape, images)
    statistic = np.full(weight.shape, min(images, trainings))
    for _ in range(MAX_NEWTON_STEPS):  # the p-value is convex: this converges from below
        density = _two_sided_density(statistic, freedom, weight)
        step = (two_sided_p(statistic, freedom, weight) - level) / density
        statistic = statistic + step
        if np.abs(step).max(initial=0) < TOLERANCE:
            break
    return statistic


def widening_factor(count: int) -> float:
    """The factor by which replicates over `count` images (or whole batches) are too narrow.

    A bootstrap of n clusters underestimates the variance by (n − 1)/n. Its estimate has n − 1
    degrees of freedom, but replicates are treated as having 199.
    """
    from scipy.special import stdtrit

    if count < 2:
        return 1.0
    of_clusters, of_replicates = stdtrit([count - 1.0, REPLICATES - 1.0], 1 - LEVEL / 2)
    return float(of_clusters / of_replicates) * sqrt(count / (count - 1))


def _two_sided_density(statistic: Any, freedom: float, weight: Any) -> Any:
    """Minus the derivative of `two_sided_p` with respect to the statistic."""
    from scipy.special import gammaln

    def density(degrees: float) -> Any:
        scale = gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - 0.5 * log(degrees * pi)
        return np.exp(scale - (degrees + 1) / 2 * np.log1p(np.square(statistic) / degrees))

    return 2 * (weight * density(max(freedom, 1.0)) + (1 - weight) * density(REPLICATES - 1))
