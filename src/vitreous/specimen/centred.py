"""A feature map less its mean over positions: what several questions begin with, so that it is made once for all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vitreous.specimen.anatomy import Grid


@dataclass(frozen=True)
class Centred:
    """Of maps (b, c, h, w), in float32 or better."""

    tokens: Tensor
    """(b, h*w, c) less the mean."""
    means: Tensor
    """(b, 1, c)"""
    grid: Grid

    @classmethod
    def of(cls, maps: Tensor) -> Centred:
        tokens = maps.flatten(2).transpose(1, 2).to(torch.promote_types(maps.dtype, torch.float32))
        means = tokens.mean(1, keepdim=True)
        return cls(tokens - means, means, (maps.shape[2], maps.shape[3]))

    @cached_property
    def variance(self) -> Tensor:
        """(b,) over positions, mean over channels; zero where a map varies by no more than rounding does."""
        _, count, channels = self.tokens.shape
        found = torch.linalg.vector_norm(self.tokens, dim=(1, 2)).square() / (
            (count - 1) * channels
        )
        rounding = (2 * torch.finfo(self.tokens.dtype).eps * self.means).square().mean((1, 2))
        return found.where(found > rounding, 0.0)
