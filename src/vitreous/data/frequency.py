"""Spatial frequencies of images: noise within a band (Park & Kim 2022), low-pass, high-pass.

Frequencies are in radians per pixel, from 0 to π. Bands are square, as in the paper: the frequency
of a wave is the larger of its frequencies along the axes, so that π is the highest.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from vitreous.data.random_streams import RandomStreams
from vitreous.errors import BadImages, VitreousError

Definition = Literal["paper", "equal", "released"]
WIDTHS: dict[Definition, float] = {"paper": 0.1 * math.pi, "equal": 0.1 * math.pi, "released": 0.4}


def ring(
    image: tuple[int, int],
    frequency: float,
    width: float | None = None,
    definition: Definition = "paper",
) -> Tensor:
    """The mask of a band: bool (height, width), zero frequency in the middle.

    The paper's ring is frequency ± width / 2, including the lower end, so that adjacent rings are
    disjoint and cover all frequencies. The ring of the released code is a square of integer waves
    minus a smaller one, with one row and column too many on the side of negative frequencies.
    """
    width = _checked(frequency, width, definition)
    low, high = frequency - width / 2, frequency + width / 2
    if definition == "released":
        return _released_square(image, high) & ~_released_square(image, low)
    fastest = torch.fft.fftshift(_larger_frequency(image))
    # The highest frequency belongs to the last ring; 1e-9, because 2π k / n is not exact.
    below = fastest < high - 1e-9
    if high >= math.pi - 1e-9:
        below |= fastest >= math.pi - 1e-9
    return (fastest >= low - 1e-9) & below


def band_noise(
    shape: tuple[int, int, int, int],
    frequency: float,
    strength: float,
    *,
    width: float | None = None,
    definition: Definition = "paper",
    seed: int = 0,
    first: int = 0,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Noise F⁻¹(F(δ) ⊙ ring) to add to images of this shape (n, c, h, w), in their units.

    - `"paper"`: δ is normal, and `strength` is its root mean square in each image, before the ring;
    - `"equal"`: the same, but `strength` is the root mean square after the ring, for every band;
    - `"released"`: δ is ± `strength`, with the ring of the released code (frequency ± 0.2 radians).

    The paper does not give the strength of its noise. δ depends on (seed, index in the dataset)
    alone, not on the frequency; `first` is the index of the first image.
    """
    images, channels, *image = shape
    mask = ring((image[0], image[1]), frequency, width, definition).to(device)
    if not bool(mask.any()):
        finest = 2 * math.pi / max(image)
        raise VitreousError(
            f"No wave of a {image[0]}x{image[1]} image lies in the band around {frequency:.4g}; "
            "its frequencies are "
            f"multiples of {finest:.4g}, so ask for a width of {finest:.4g} or more."
        )
    rng = RandomStreams(f"band noise {seed}", first, images, torch.device(device))
    delta = rng.normal(channels, *image)
    if definition == "released":
        return keep_waves(strength * torch.where(delta < 0, -1.0, 1.0), mask)
    noise = keep_waves(_scaled(delta, strength), mask)
    return _scaled(noise, strength) if definition == "equal" else noise


def low_pass(images: Tensor, cutoff: float) -> Tensor:
    """Remove frequencies above `cutoff` from float images (…, h, w)."""
    return keep_waves(images, torch.fft.fftshift(_larger_frequency(_size(images)) <= cutoff + 1e-9))


def high_pass(images: Tensor, cutoff: float) -> Tensor:
    """Remove frequencies up to `cutoff`, including the mean, from float images (…, h, w)."""
    return keep_waves(images, torch.fft.fftshift(_larger_frequency(_size(images)) > cutoff + 1e-9))


def keep_waves(images: Tensor, mask: Tensor) -> Tensor:
    """Keep only the frequencies of a mask like that of `ring` in float images (…, h, w)."""
    if not images.is_floating_point():
        raise BadImages(
            f"Filters take float images, and these are {str(images.dtype)[6:]}; convert with "
            "images / 255."
        )
    centred = torch.fft.ifftshift(mask.to(images.device))
    return torch.fft.ifft2(torch.fft.fft2(images) * centred).real.to(images.dtype)


def _larger_frequency(image: tuple[int, int]) -> Tensor:
    """The larger frequency of each wave, float64 (h, w), in the order of the Fourier transform."""
    down, right = (
        torch.fft.fftfreq(length, dtype=torch.float64).abs() * 2 * math.pi for length in image
    )
    return torch.maximum(down[:, None], right)


def _released_square(image: tuple[int, int], end: float) -> Tensor:
    """The waves -k, …, k - 1 along both axes, zero in the middle; k is `end` in waves,
    truncated."""
    axes = []
    for length in image:
        wave = torch.arange(length) - length // 2
        waves = min(max(int(end * length / (2 * math.pi)), 0), length // 2)
        axes.append((wave >= -waves) & (wave < waves))
    return axes[0][:, None] & axes[1]


def _scaled(noise: Tensor, strength: float) -> Tensor:
    """Scale noise to this root mean square in each image."""
    return noise * (strength / noise.square().mean((1, 2, 3), keepdim=True).sqrt())


def _size(images: Tensor) -> tuple[int, int]:
    return int(images.shape[-2]), int(images.shape[-1])


def _checked(frequency: float, width: float | None, definition: Definition) -> float:
    """Check the arguments and return the width of the band."""
    if definition not in WIDTHS:
        raise VitreousError(
            f"Band noise is defined as in {', '.join(WIDTHS)}; {definition!r} was asked for."
        )
    if not 0 <= frequency <= math.pi:
        raise VitreousError(
            f"A frequency lies between 0 and π = 3.1416 radians a pixel, and {frequency:g} does "
            "not."
        )
    width = WIDTHS[definition] if width is None else width
    if width <= 0:
        raise VitreousError(f"The width of a band is above 0, and {width:g} is not.")
    return width
