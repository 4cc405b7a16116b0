"""Pictures to augment: noise, gradients, flat ones, few levels, dark and narrow ranges."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def pictures(height: int, width: int) -> Tensor:
    """uint8 (8, 3, height, width), each of another kind."""
    generator = torch.Generator().manual_seed(height * 1000 + width)

    def noise(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (3, height, width), generator=generator)

    y, x = torch.meshgrid(
        torch.linspace(0, 255, height), torch.linspace(0, 255, width), indexing="ij"
    )
    ramps = torch.stack([x, y, (x + y) / 2]).long()
    half = torch.where(x > 127, noise(0, 256), 77)
    flat = torch.tensor([200, 0, 255]).view(3, 1, 1).expand(3, height, width)
    waves = (128 + 100 * torch.sin(x / 12) * torch.cos(y / 9)).long().expand(3, -1, -1)
    kinds = [
        noise(0, 256),
        ramps,
        half,
        flat,
        waves,
        noise(0, 2) * 255,
        noise(3, 50),
        noise(90, 99),
    ]
    return torch.stack([kind.to(torch.uint8) for kind in kinds])


def as_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())


def from_pil(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
