"""The registry of exact properties: functions of a seed, named after what they measure."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

from vitreous.random_numbers import seeded
from vitreous.results.intervals import Interval, wilson

Measured = float | Interval
"""An exact number, or a number from random draws with its 95 % interval."""

MEASURES: dict[str, Callable[[int], Measured]] = {}


def exact_property(function: Callable[[int], Measured]) -> Callable[[int], Measured]:
    """Register a property under its name. Its layers are drawn from its seed; the state of torch's
    random numbers is left unchanged."""

    @wraps(function)
    def measured(seed: int) -> Measured:
        with torch.no_grad(), seeded(seed):
            return function(seed)

    MEASURES[function.__name__] = measured
    return measured


def normal_draws(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers of a shape, from a seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def largest(values: Tensor) -> float:
    """Largest absolute value."""
    return float(values.abs().max())


def wilson_share(holds: Tensor) -> Interval:
    """The share of draws for which something holds, with Wilson's interval."""
    return wilson(int(holds.sum()), holds.numel())
