"""Ridge regression from sums that are collected while features stream by.

    W = argmin Σ ‖y − b − Wᵀ x‖² + λ ‖W‖²
    (S + λ I) W = C,    S = Σ (x − x̄)(x − x̄)ᵀ,    C = Σ (x − x̄)(y − ȳ)ᵀ

One eigendecomposition of S solves it for all λ. The squared error on held-out images is a function
of their own S and C, so a penalty is chosen without another pass. Products of a block of features
are centred by the block's own mean, in the features' precision, and added in float64, so that a
large common offset costs no digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from vitreous.measure.alignment import full_precision


@dataclass(frozen=True, slots=True)
class Moments:
    """Means and centred products of features x (d numbers) and targets y (k numbers)."""

    count: int
    mean: Tensor
    """(d + k,) of features and targets."""
    products: Tensor
    """(d, d + k): S and C side by side."""
    eps: float
    """Machine epsilon of the features."""

    @classmethod
    def of(cls, features: Tensor, targets: Tensor) -> Moments:
        """Compute the moments of a block of features (n, d) and targets (n, k).

        A feature that is the same for all images gets moments of exactly zero: of what rounding
        leaves, a regression would make a classifier.
        """
        precise = features.to(torch.promote_types(features.dtype, torch.float32))
        joined = torch.cat([precise, targets.to(features)], 1)
        constant = (joined == joined[:1]).all(0)
        mean = torch.where(constant, joined[0], joined.mean(0))
        joined = joined - mean
        with full_precision():
            products = joined[:, : features.shape[1]].mT @ joined
        return cls(len(features), mean.double(), products.double(), torch.finfo(joined.dtype).eps)

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets of images together."""
        count, shift = self.count + other.count, other.mean - self.mean
        between = torch.outer(shift[: len(self.products)], shift).mul_(
            self.count * other.count / count
        )
        products = between.add_(self.products).add_(other.products)
        return replace(
            self, count=count, mean=self.mean + shift * (other.count / count), products=products
        )

    def about(self, mean: Tensor) -> Moments:
        """Return the moments of the same images, centred by another mean."""
        shift = self.mean - mean
        moved = self.products + self.count * torch.outer(shift[: len(self.products)], shift)
        return replace(self, mean=mean, products=moved)

    @property
    def parts(self) -> tuple[Tensor, Tensor]:
        """S (d, d) and C (d, k)."""
        return self.products[:, : len(self.products)], self.products[:, len(self.products) :]

    @property
    def scale(self) -> float:
        """The mean eigenvalue of S, the unit of penalties."""
        mean = float(self.products.diagonal().mean())
        return mean if mean > 0 else 1.0


def join_moments(parts: Sequence[Moments]) -> Moments:
    """Return the moments of all parts together."""
    return reduce(Moments.__add__, parts)


@dataclass(frozen=True, slots=True)
class Ridge:
    """A fitted map from features to targets."""

    weight: Tensor
    """(d, k)"""
    bias: Tensor
    """(k,)"""
    penalty: float
    """λ"""

    def __call__(self, features: Tensor) -> Tensor:
        """(n, k) in the precision of the features."""
        return torch.addmm(self.bias.to(features), features, self.weight.to(features))


def choose_penalty(fit: Moments, held_out: Moments, penalties: Sequence[float]) -> float:
    """Return the penalty, in units of the mean eigenvalue, with the least held-out error.

    Penalties below the rounding of the features are raised to it: they would fit the rounding.
    """
    scatter, cross = fit.parts
    values, vectors = torch.linalg.eigh(scatter)
    least = 8 * fit.eps * float(values[-1]) / fit.scale
    penalties = [max(penalty, least) for penalty in penalties]
    held_scatter, held_cross = held_out.about(fit.mean).parts
    held_scatter = vectors.mT @ held_scatter @ vectors
    held_cross, cross = vectors.mT @ held_cross, vectors.mT @ cross
    errors = []
    for penalty in penalties:
        weight = cross / (values.clamp(min=0) + penalty * fit.scale)[:, None]
        errors.append((weight * (held_scatter @ weight - 2 * held_cross)).sum())
    return penalties[int(torch.stack(errors).argmin())]


def solve(fit: Moments, penalty: float) -> Ridge:
    """Fit with a penalty in units of the mean eigenvalue."""
    scatter, cross = fit.parts
    absolute = penalty * fit.scale
    shifted = scatter + absolute * torch.eye(
        len(scatter), dtype=scatter.dtype, device=scatter.device
    )
    weight = torch.cholesky_solve(cross, torch.linalg.cholesky(shifted))
    split = len(scatter)
    return Ridge(weight, fit.mean[split:] - fit.mean[:split] @ weight, absolute)
