"""Images of which nothing is known."""

from __future__ import annotations

import torch

from vitreous.data.dataset import Dataset


def noise(count: int = 8, side: int = 16) -> Dataset:
    """Every pixel on its own."""
    generator = torch.Generator().manual_seed(1)
    pictures = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)
    return Dataset(pictures, torch.full((count,), -1), (), "noise", "test")
