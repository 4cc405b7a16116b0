"""What an exact property is: a function of a seed, named after what it measures."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

from vitreous.random_numbers import seeded
from vitreous.results.intervals import Interval, wilson

Measured = float | Interval
"""A number that leaves no doubt, or one of random draws with the interval that others would lie in."""

MEASURES: dict[str, Callable[[int], Measured]] = {}


def measure(function: Callable[[int], Measured]) -> Callable[[int], Measured]:
    """Enter a property under its name. Layers it builds are drawn from its seed; torch's own state stays as it was."""

    @wraps(function)
    def measured(seed: int) -> Measured:
        with torch.no_grad(), seeded(seed):
            return function(seed)

    MEASURES[function.__name__] = measured
    return measured


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def largest(values: Tensor) -> float:
    """Largest absolute value."""
    return float(values.abs().max())


def share(holds: Tensor) -> Interval:
    """Of how many draws something holds, with Wilson's interval."""
    return wilson(int(holds.sum()), holds.numel())
