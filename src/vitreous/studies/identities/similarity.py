"""Exact properties of CKA: its invariances, and its error in minibatches (Raghu et al.)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from vitreous.measure.alignment import Estimator, Grams, ratio, self_hsic, weighted_hsic
from vitreous.studies.identities.properties import exact_property

Array = NDArray[np.float64]
ESTIMATORS: tuple[Estimator, ...] = ("unbiased", "biased")


def _cka(left: Array, right: Array, estimator: Estimator, minibatch: int | None = None) -> float:
    """CKA as the probe computes it, from minibatches or from all images at once."""
    grams, sums = Grams(estimator, minibatch), np.zeros(3)
    for name, features in (("left", left), ("right", right)):
        grams.add(name, torch.from_numpy(features), full_shard=True)
    for one, other in zip(grams.take("left"), grams.take("right"), strict=True):
        once = torch.ones(1, len(one), dtype=torch.float64)
        cross = weighted_hsic(one[None], other[None], once, estimator)
        sums += [
            float(cross),
            *(float(self_hsic(gram[None], once, estimator)) for gram in (one, other)),
        ]
    return float(ratio(sums[:1, None], sums[1:2], sums[2:])[0, 0])


class _Related:
    """Two related representations of 256 images, and maps of their features."""

    def __init__(self, seed: int) -> None:
        numbers = np.random.default_rng(seed)
        self.x = numbers.standard_normal((256, 32))
        self.y = self.x @ numbers.standard_normal((32, 16)) + numbers.standard_normal((256, 16))
        self.q, self.r = (
            np.linalg.qr(numbers.standard_normal((size, size))).Q for size in (32, 16)
        )
        self.stretching: Array = np.logspace(0, 2, 32)[:, None] * self.q


@exact_property
def cka_rotated(seed: int) -> float:
    """|CKA(X, Y) − CKA(3 X Q, 0.2 Y R)|, the larger of both estimators (SLC-01)."""
    a = _Related(seed)
    return max(
        abs(_cka(a.x, a.y, each) - _cka(3 * a.x @ a.q, 0.2 * a.y @ a.r, each))
        for each in ESTIMATORS
    )


@exact_property
def cka_with_itself(seed: int) -> float:
    """|CKA(X, X) − 1|, the larger of both estimators (SLC-01)."""
    a = _Related(seed)
    return max(abs(_cka(a.x, a.x, each) - 1) for each in ESTIMATORS)


@exact_property
def cka_stretched(seed: int) -> float:
    """|CKA(X, Y) − CKA(X M, Y)|, M not orthogonal, the smaller of both estimators (SLC-01)."""
    a = _Related(seed)
    return min(
        abs(_cka(a.x, a.y, each) - _cka(a.x @ a.stretching, a.y, each)) for each in ESTIMATORS
    )


def _minibatch_error(estimator: Estimator, seed: int) -> float:
    """|CKA from minibatches of 128 − unbiased CKA of all 2048 images|, with 2048 features."""
    numbers = np.random.default_rng(seed)
    shared = numbers.standard_normal((2048, 8))
    x, y = (
        shared @ numbers.standard_normal((8, 2048)) + 12 * numbers.standard_normal((2048, 2048))
        for _ in range(2)
    )
    return abs(_cka(x, y, estimator, minibatch=128) - _cka(x, y, "unbiased"))


@exact_property
def cka_minibatch_difference(seed: int) -> float:
    """Error of unbiased CKA from minibatches (SLC-02)."""
    return _minibatch_error("unbiased", seed)


@exact_property
def cka_biased_difference(seed: int) -> float:
    """Error of biased CKA from the same minibatches (SLC-02)."""
    return _minibatch_error("biased", seed)
