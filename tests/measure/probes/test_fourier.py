"""Spectra against numpy's FFT in float64 and against maps whose spectrum is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitreous
from measure.probes.noise import noise
from specimen.toys import WIDTH, Block, Convolutional, Parallel, Residual, Transformer, settled
from vitreous.data.dataset import Dataset
from vitreous.measure.probes.fourier import Bin, frequency, half_diagonal
from vitreous.measure.probes.fourier import log_amplitude as of_centred
from vitreous.measure.subject import subjects
from vitreous.results import Result
from vitreous.specimen.anatomy import Grid
from vitreous.specimen.layout import Centred


def by_numpy(maps: Tensor) -> np.ndarray:
    """Read off the shifted spectrum of a square map, from the centre along the diagonal, as the
    paper's text says."""
    spectrum = np.log(
        np.abs(np.fft.fftshift(np.fft.fft2(maps.double().numpy()), axes=(-2, -1))) + 1e-6
    ).mean(1)
    side = maps.shape[-1]
    found: np.ndarray = np.diagonal(spectrum, axis1=-2, axis2=-1)[:, side // 2 :]
    return found


def log_amplitude(maps: Tensor, bins: tuple[Bin, ...]) -> Tensor:
    return of_centred(Centred.of(maps), bins)


def relative(maps: Tensor, nyquist: bool = False) -> Tensor:
    found = log_amplitude(maps, half_diagonal((maps.shape[2], maps.shape[3]), nyquist))
    return found - found[:, :1]


def ask(model: nn.Module, images: Dataset, batch: int | None = None, **options: bool) -> Result:
    return vitreous.inspect(model, images, {"fourier": options}, batch=batch, image=16)["fourier"]


@pytest.fixture
def images() -> Dataset:
    return noise()


@pytest.mark.parametrize("side", [4, 5, 7, 8, 14])
def test_against_numpy(side: int) -> None:
    maps = torch.randn(3, 6, side, side) + 0.5
    np.testing.assert_allclose(
        log_amplitude(maps, half_diagonal((side, side))), by_numpy(maps), atol=2e-5
    )
    exact = log_amplitude(maps.double(), half_diagonal((side, side)))
    np.testing.assert_allclose(exact, by_numpy(maps), atol=1e-12)


@pytest.mark.parametrize("grid", [(6, 12), (9, 4), (5, 7)])
def test_maps_that_are_not_square(grid: Grid) -> None:
    maps = torch.randn(2, 3, *grid)
    bins = half_diagonal(grid, nyquist=True)
    spectrum = np.log(np.abs(np.fft.fft2(maps.double().numpy())) + 1e-6).mean(1)
    expected = np.stack([spectrum[:, down, across] for down, across in bins], 1)
    np.testing.assert_allclose(log_amplitude(maps, bins), expected, atol=2e-5)


@pytest.mark.parametrize(
    ("side", "last", "corner"),
    [(56, 54 / 56, 1), (14, 12 / 14, 1), (7, 6 / 7, 6 / 7), (8, 0.75, 1)],
)
def test_the_axis_ends_where_the_last_bin_is(side: int, last: float, corner: float) -> None:
    """A peer's axis runs to 1.0 π whatever the last entry is."""
    grid = (side, side)
    assert frequency(half_diagonal(grid)[-1], grid) == pytest.approx(last)
    assert frequency(half_diagonal(grid, nyquist=True)[-1], grid) == pytest.approx(corner)
    assert frequency(half_diagonal((8, 16))[-1], (8, 16)) == pytest.approx(0.75)


@pytest.mark.parametrize("cycles", [1, 3, 6])
def test_a_single_wave_is_found_at_its_frequency(cycles: int) -> None:
    at = (
        2
        * math.pi
        * cycles
        / 14
        * (torch.arange(14.0, dtype=torch.float64)[:, None] + torch.arange(14))
    )
    maps = (5 + 0.2 * at.cos())[None, None]
    expected = torch.full((7,), math.log(1e-6 / (5 * 196)), dtype=torch.float64)
    expected[0], expected[cycles] = 0, math.log(0.1 / 5)
    np.testing.assert_allclose(relative(maps)[0], expected, atol=1e-4)


def test_the_corner_is_a_chessboard() -> None:
    board = 1 + 0.5 * (-1.0) ** (torch.arange(8)[:, None] + torch.arange(8))
    assert relative(board[None, None], nyquist=True)[0, -1] == pytest.approx(
        math.log(0.5), abs=1e-5
    )
    assert relative(board[None, None])[0, -1] < -10


def test_an_impulse_has_a_flat_spectrum() -> None:
    maps = torch.zeros(1, 1, 7, 7)
    maps[0, 0, 2, 5] = 3.0
    np.testing.assert_allclose(relative(maps), 0, atol=1e-6)


def test_white_noise_is_flat() -> None:
    """Half of ln 2 above frequency 0, whose amplitude is that of a real and not of a complex
    number."""
    found = relative(torch.randn(4, 20000, 14, 14)).mean(0)
    np.testing.assert_allclose(found[1:], math.log(2) / 2, atol=0.02)


def test_features_far_from_zero() -> None:
    maps = torch.randn(2, 8, 14, 14) + 1e3
    np.testing.assert_allclose(relative(maps), by_numpy(maps) - by_numpy(maps)[:, :1], atol=2e-5)


def test_a_constant_map_has_no_spectrum() -> None:
    maps = torch.stack([torch.full((4, 7, 7), 0.1), torch.randn(4, 7, 7)])
    assert relative(maps).isnan().all(1).tolist() == [True, False]


def test_a_constant_layer_is_not_a_zero(images: Dataset) -> None:
    model = settled(Transformer(Block()))
    nn.init.zeros_(model.get_submodule("stem.proj").weight)  # type: ignore[arg-type]
    table = ask(model, images).table
    assert table["value"].isna().all()
    assert (table["n"] == 0).all()


def test_prefix_tokens_are_not_in_the_map(images: Dataset) -> None:
    model = settled(Transformer(Block(), cls=True))
    before = ask(model, images).table
    with torch.no_grad():
        model.get_parameter("stem.cls_token").mul_(1e3)
    stem = ask(model, images).table.query("kind == 'stem'")["value"]
    np.testing.assert_array_equal(stem, before.query("kind == 'stem'")["value"])


def test_each_unit_is_compared_with_its_own_input(images: Dataset) -> None:
    """Branches side by side have one input; one after the other each has the sum before it."""
    model = settled(Transformer(Block(), Parallel()))
    specimen = vitreous.open(model, image=16)
    (subject,) = subjects(specimen)
    seen = specimen.observe(subject.prepare(images.images), ("before", "after"))
    table = ask(model, images).table.query("highest").set_index("unit")
    for unit in specimen.units[1:-1]:
        sites = seen[unit.name]
        assert sites.before is not None
        assert sites.after is not None
        last = [
            by_numpy(at.map)[:, -1] - by_numpy(at.map)[:, 0] for at in (sites.before, sites.after)
        ]
        assert table.loc[unit.name, "value"] == pytest.approx(last[1].mean(), abs=1e-4)
        assert table.loc[unit.name, "change"] == pytest.approx((last[1] - last[0]).mean(), abs=1e-4)


def test_coarser_maps_are_compared_at_equal_cycles(images: Dataset) -> None:
    """The highest frequency of a coarser map is another wave, so that its jump is no change
    (X-29)."""
    model = settled(Convolutional(Residual(), Residual(WIDTH, WIDTH, 2), Residual()))
    table = ask(model, images).table
    coarse = table[table["stage"] == table["stage"].max()]
    assert coarse["cycles"].max() == 3
    assert table.query("common")["cycles"].tolist() == [3] * 4
    assert table.query("highest").groupby("stage")["frequency"].first().tolist()[-2:] == [
        0.875,
        0.75,
    ]
    down = table[table["unit"] == coarse["unit"].iloc[0]].query("cycles == 3")
    fine = table[table["unit"] == table["unit"].unique()[1]].query("cycles == 3")
    assert down["change"].item() == pytest.approx(
        down["value"].item() - fine["value"].item(), abs=1e-9
    )


def test_size_of_batches_does_not_matter(images: Dataset) -> None:
    model = settled(Transformer(Block(), cls=True))
    one, other = ask(model, images).table, ask(model, images, batch=3).table
    np.testing.assert_allclose(
        one.select_dtypes("number"), other.select_dtypes("number"), atol=1e-6
    )


def test_maps_without_waves_are_refused(images: Dataset) -> None:
    model = settled(Convolutional(Residual(), Residual(WIDTH, WIDTH, 8)))
    result = ask(model, images)
    (reasons,) = result.about["left_out"].values()
    assert reasons == {"blocks.1": "Its feature map of 2 x 2 holds no wave."}
    assert "blocks.1" in ask(model, images, nyquist=True).table["unit"].tolist()
