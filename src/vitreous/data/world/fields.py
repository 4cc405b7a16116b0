"""Random fields with amplitude 1/f^beta; natural photographs have about 1/f."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

FIELDS = 16  # in a bank; with their windows some 150,000 different crops
STEPS = 64  # a bank holds multiples of 1/64, which hides rounding of the Fourier transform


def falloff(side: int, beta: float) -> Tensor:
    """f^-beta for the frequencies f of a real transform (side, side // 2 + 1); 0 for the mean."""
    across, down = torch.fft.rfftfreq(side, 1 / side), torch.fft.fftfreq(side, 1 / side)
    gain = (across**2 + down[:, None] ** 2).sqrt() ** -beta
    gain[0, 0] = 0
    return gain


def filtered(noise: Tensor, gain: Tensor) -> Tensor:
    """Noise (..., side, side) with its frequencies multiplied by `gain`."""
    return torch.fft.irfft2(torch.fft.rfft2(noise) * gain, s=noise.shape[-2:])


@lru_cache(maxsize=8)
def bank(image: int, beta: float) -> Tensor:
    """Fields (16, 4·image, 4·image) of unit variance, made once; scenes use windows of them."""
    side = 4 * image
    generator = torch.Generator().manual_seed(1)
    noise = torch.rand(FIELDS, side, side, generator=generator, dtype=torch.float64)
    fields = filtered(noise, falloff(side, beta))
    fields /= fields.std(dim=(1, 2), keepdim=True)
    return (fields * STEPS).round_().div_(STEPS).float()


def windows(image: int, beta: float, which: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Windows (n, image, image) of the bank; three numbers in [0, 1) choose the field and the
    place."""
    fields = bank(image, beta)
    side, room = fields.shape[-1], fields.shape[-1] - image + 1
    start = (which * FIELDS).long() * side**2 + (down * room).long() * side + (across * room).long()
    rows = fields.as_strided((fields.numel() - image + 1, image), (1, 1))
    wanted = start[:, None] + torch.arange(image) * side
    return rows.index_select(0, wanted.flatten()).view(-1, image, image)
