"""Logistic regression by scikit-learn, for linear probes on features that fit into memory."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

STRENGTHS = (1e-2, 1.0, 1e2)
"""Values of C to choose among, for features of unit variance."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """A fitted map from features to classes."""

    weight: Tensor
    """(d, k)"""
    bias: Tensor
    """(k,) minus infinity for a class that was not fitted on."""
    penalty: float
    """1 / C"""

    def __call__(self, features: Tensor) -> Tensor:
        """(n, k)"""
        return torch.addmm(self.bias.to(features), features, self.weight.to(features))

    @classmethod
    def fitted(
        cls, features: Tensor, labels: Tensor, fit: Tensor, held_out: Tensor, join: bool
    ) -> Logistic:
        """On the images of `fit`, C chosen on those held out, which then `join` in. Features are scaled to unit
        variance first, and the scale is put back into the weights."""
        chosen = max(
            STRENGTHS,
            key=lambda c: _right(
                _fit(features[fit], labels[fit], c), features[held_out], labels[held_out]
            ),
        )
        rows = fit | held_out if join else fit
        return _fit(features[rows], labels[rows], chosen)


def _right(probe: Logistic, features: Tensor, labels: Tensor) -> float:
    return float((probe(features).argmax(1) == labels).double().mean())


def _fit(features: Tensor, labels: Tensor, strength: float) -> Logistic:
    models = import_module("sklearn.linear_model")  # which takes a second
    values = features.double()
    mean, scale = values.mean(0), values.std(0, correction=0)
    scale = scale.where(scale > 0, 1.0)
    model = models.LogisticRegression(C=strength, max_iter=2000).fit(
        ((values - mean) / scale).numpy(), labels.numpy()
    )
    weight, bias = torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)
    if len(model.classes_) == 2:  # scikit-learn has one row for two classes
        weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    classes = torch.from_numpy(model.classes_)
    whole = torch.zeros(int(labels.max()) + 1, features.shape[1], dtype=torch.float64)
    offset = torch.full((len(whole),), -torch.inf, dtype=torch.float64)
    whole[classes] = weight / scale
    offset[classes] = bias - whole[classes] @ mean
    return Logistic(whole.mT.contiguous(), offset, 1 / strength)
