"""Images with the spectrum of photographs, made from a seed."""

from __future__ import annotations

import torch
from torch import Tensor


def natural(images: int, side: int, seed: int = 0) -> Tensor:
    """Uint8 (images, 3, side, side): amplitudes fall as 1/f, channels are alike, the full range
    is used."""
    random = torch.Generator().manual_seed(seed)
    frequency = torch.fft.fftfreq(side)
    fall = (frequency[:, None] ** 2 + frequency**2).sqrt().clamp(min=1 / side)
    waves = torch.randn(images, 4, side, side, generator=random)
    maps = torch.fft.ifft2(torch.fft.fft2(waves) / fall).real
    colour = maps[:, :1] + 0.5 * maps[:, 1:]
    low, high = colour.amin((1, 2, 3), keepdim=True), colour.amax((1, 2, 3), keepdim=True)
    return ((colour - low) / (high - low) * 255.999).byte()
