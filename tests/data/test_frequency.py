"""Bands of frequency against the definition, wave by wave, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vitreous.data.frequency import Definition, band_noise, high_pass, keep_waves, low_pass, ring
from vitreous.errors import BadImages, VitreousError

PI = math.pi


def frequency_of(row: int, column: int, height: int, width: int) -> float:
    return max(abs(row - height // 2) / height, abs(column - width // 2) / width) * 2 * PI


@pytest.mark.parametrize("image", [(32, 32), (15, 15), (24, 17)])
def test_the_papers_ring_wave_by_wave(image: tuple[int, int]) -> None:
    mask = ring(image, 0.4 * PI)
    for row in range(image[0]):
        for column in range(image[1]):
            found = frequency_of(row, column, *image)
            assert bool(mask[row, column]) == (0.35 * PI - 1e-9 <= found < 0.45 * PI - 1e-9)


@pytest.mark.parametrize("image", [(32, 32), (20, 20), (15, 15), (24, 17)])
def test_rings_side_by_side_hold_every_wave_once(image: tuple[int, int]) -> None:
    rings = torch.stack([ring(image, (i + 0.5) * 0.1 * PI) for i in range(10)])
    assert (rings.sum(0) == 1).all()


def test_the_released_ring_is_one_square_less_another() -> None:
    for f in (0.1 * PI, 0.5 * PI, 0.9 * PI):
        wanted = np.zeros((32, 32), bool)
        for end, inside in ((f + 0.2, True), (f - 0.2, False)):
            side = min(max(int(end * 32 / (2 * PI)) * 2, 0), 32)
            start = (32 - side) // 2
            wanted[start : start + side, start : start + side] = inside
        assert np.array_equal(ring((32, 32), f, definition="released").numpy(), wanted)


@pytest.mark.parametrize("definition", ["paper", "equal", "released"])
@pytest.mark.parametrize("image", [(32, 32), (15, 22)])
def test_noise_lives_in_its_band_only(definition: Definition, image: tuple[int, int]) -> None:
    noise = band_noise((3, 3, *image), 0.5 * PI, 0.1, definition=definition).double()
    mask = torch.fft.ifftshift(ring(image, 0.5 * PI, definition=definition))
    mask |= mask.flip(0, 1).roll((1, 1), (0, 1))  # a real wave is two, k and -k
    energy = torch.fft.fft2(noise).abs().square()
    assert (energy * ~mask).sum() < 1e-10 * energy.sum()
    assert (energy * mask).sum() > 0


def test_strength_is_exact_in_the_stated_norm() -> None:
    shape = (4, 3, 32, 32)
    everything = sum(
        band_noise(shape, (i + 0.5) * 0.1 * PI, 0.1, width=0.1 * PI) for i in range(10)
    )
    assert isinstance(everything, torch.Tensor)
    torch.testing.assert_close(everything.square().mean((1, 2, 3)).sqrt(), torch.full((4,), 0.1))
    share = float(ring((32, 32), 0.5 * PI).float().mean())
    band = band_noise((50, 3, 32, 32), 0.5 * PI, 0.1)
    assert abs(float(band.square().mean()) / (0.01 * share) - 1) < 0.02
    equal = band_noise(shape, 0.2 * PI, 0.1, definition="equal")
    torch.testing.assert_close(equal.square().mean((1, 2, 3)).sqrt(), torch.full((4,), 0.1))
    signs = band_noise(shape, 0.5 * PI, 0.007, width=4 * PI, definition="released")
    torch.testing.assert_close(signs.abs(), torch.full(shape, 0.007))


def test_noise_belongs_to_the_image_not_to_the_batch() -> None:
    whole = band_noise((5, 3, 16, 16), 0.5 * PI, 1.0, seed=3)
    torch.testing.assert_close(
        band_noise((2, 3, 16, 16), 0.5 * PI, 1.0, seed=3, first=2), whole[2:4]
    )
    assert not torch.allclose(whole[0], whole[1])
    assert not torch.allclose(whole, band_noise((5, 3, 16, 16), 0.5 * PI, 1.0, seed=4))


@pytest.mark.parametrize("image", [(32, 32), (15, 22)])
def test_low_and_high_add_up_and_hold_what_they_should(image: tuple[int, int]) -> None:
    images = torch.rand(2, 3, *image, dtype=torch.float64)
    low, high = low_pass(images, 0.3 * PI), high_pass(images, 0.3 * PI)
    torch.testing.assert_close(low + high, images)
    torch.testing.assert_close(low.mean((2, 3)), images.mean((2, 3)))
    torch.testing.assert_close(low_pass(low, 0.3 * PI), low)
    assert high_pass(low, 0.3 * PI).abs().max() < 1e-12
    places = torch.arange(32, dtype=torch.float64)
    slow, fast = (torch.cos(2 * PI * waves / 32 * places).expand(1, 3, 32, 32) for waves in (3, 9))
    torch.testing.assert_close(low_pass(slow + fast, 0.3 * PI), slow)
    torch.testing.assert_close(high_pass((slow + fast).mT, 0.3 * PI), fast.mT)


def test_what_is_not_accepted() -> None:
    with pytest.raises(
        VitreousError, match=r"between 0 and π = 3.1416 radians a pixel, and 4 does not"
    ):
        ring((8, 8), 4.0)
    with pytest.raises(VitreousError, match="above 0, and -1 is not"):
        ring((8, 8), 1.0, -1.0)
    with pytest.raises(VitreousError, match="'papr' was asked for"):
        ring((8, 8), 1.0, definition="papr")  # type: ignore[arg-type]
    with pytest.raises(
        VitreousError,
        match=r"No wave of a 8x8 image lies in the band around 1; .* multiples of 0.7854",
    ):
        band_noise((1, 3, 8, 8), 1.0, 0.1, width=0.1)
    with pytest.raises(BadImages, match="these are uint8; convert with images / 255"):
        keep_waves(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), ring((8, 8), 1.0))
