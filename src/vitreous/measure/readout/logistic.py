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
    """(k,) minus infinity for a class without fitting images."""
    penalty: float
    """1 / C"""

    def __call__(self, features: Tensor) -> Tensor:
        """(n, k)"""
        return torch.addmm(self.bias.to(features), features, self.weight.to(features))

    @classmethod
    def fit(
        cls, features: Tensor, labels: Tensor, rows: Tensor, held_out: Tensor, join: bool
    ) -> Logistic:
        """Fit on some `rows`, with the C that is most accurate on those held out.

        If `join`, the rows held out are fitted on too once C is chosen.
        """

        def accuracy(strength: float) -> float:
            probe = _fit(features[rows], labels[rows], strength)
            right = probe(features[held_out]).argmax(1) == labels[held_out]
            return float(right.double().mean())

        chosen = max(STRENGTHS, key=accuracy)
        rows = rows | held_out if join else rows
        return _fit(features[rows], labels[rows], chosen)


def _fit(features: Tensor, labels: Tensor, strength: float) -> Logistic:
    """Fit on features scaled to unit variance, and put the scale back into the weights."""
    models = import_module("sklearn.linear_model")  # importing it takes a second
    values = features.double()
    mean, scale = values.mean(0), values.std(0, correction=0)
    scale = scale.where(scale > 0, 1.0)
    model = models.LogisticRegression(C=strength, max_iter=2000).fit(
        ((values - mean) / scale).numpy(), labels.numpy()
    )
    weight, bias = torch.from_numpy(model.coef_), torch.from_numpy(model.intercept_)
    if len(model.classes_) == 2:  # for two classes scikit-learn has one row
        weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    classes = torch.from_numpy(model.classes_)
    every_weight = torch.zeros(int(labels.max()) + 1, features.shape[1], dtype=torch.float64)
    every_bias = torch.full((len(every_weight),), -torch.inf, dtype=torch.float64)
    every_weight[classes] = weight / scale
    every_bias[classes] = bias - every_weight[classes] @ mean
    return Logistic(every_weight.mT.contiguous(), every_bias, 1 / strength)
