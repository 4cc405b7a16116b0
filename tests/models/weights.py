"""Weights that hide nothing."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def shaken(module: M, by: float = 0.2) -> M:
    """Move every parameter away from its initial value, where gates agree and biases vanish."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(
                by * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            )
    return module
