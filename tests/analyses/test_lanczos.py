"""Spectra that are known beforehand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from vitreous.analyses.lanczos import extreme
from vitreous.errors import VitreousError

ENDS = (67.219, -53.966, 53.721, 43.161, -43.16, 41.528)
"""Two pairs of opposite sign that lie close together."""


def matrix(values: Tensor, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    turned, _ = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.float64, generator=generator))
    return (turned * values) @ turned.T


def indefinite(n: int = 200, wide: float = 8.0) -> Tensor:
    bulk = torch.linspace(-wide, wide, n - len(ENDS), dtype=torch.float64)
    return matrix(torch.cat([torch.tensor(ENDS, dtype=torch.float64), bulk]))


def start(rows: int, n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(rows, n, dtype=dtype, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize(("basis", "wide"), [(64, 8.0), (24, 30.0)], ids=["one basis", "restarted"])
def test_both_signs_to_the_last_digit(basis: int, wide: float) -> None:
    h = indefinite(wide=wide)
    found = extreme(lambda v: v @ h, start(1, 200), 6, tolerance=1e-9, basis=basis, vectors=True)[0]
    np.testing.assert_allclose(found.values, ENDS, rtol=1e-12)
    assert found.vectors is not None
    true = [float((h @ x - value * x).norm()) for x, value in zip(found.vectors, found.values, strict=True)]
    np.testing.assert_allclose(found.residuals, true, atol=1e-11)
    assert (found.residuals <= 1e-9 * np.abs(found.values)).all()
    assert (found.products > basis) == (basis == 24)
    assert found.products < 80
    torch.testing.assert_close(found.vectors @ found.vectors.T, torch.eye(6, dtype=torch.float64), atol=1e-9, rtol=0)


def test_power_iteration_fails_where_this_does_not() -> None:
    """The same number of products, and ten times as many, spent on the largest pair of opposite sign."""
    values = torch.cat([torch.tensor([53.966, -53.721], dtype=torch.float64), torch.linspace(-20, 20, 98).double()])
    h = matrix(values)
    found = extreme(lambda v: v @ h, start(1, 100), 2, tolerance=1e-3)[0]
    np.testing.assert_allclose(found.values, [53.966, -53.721], rtol=1e-5)
    vector = start(1, 100)[0]
    for _ in range(10 * found.products):
        vector = h @ vector
        vector = vector / vector.norm()
    rayleigh = float(vector @ h @ vector)
    assert float((h @ vector - rayleigh * vector).norm()) > 1e-1 * 53.966


def test_float32_is_as_good_as_float32_is() -> None:
    h = indefinite()
    found = extreme(lambda v: v @ h.float(), start(1, 200, torch.float32), 6, tolerance=1e-4)[0]
    np.testing.assert_allclose(found.values, ENDS, rtol=3e-6)


def test_stops_as_soon_as_the_residuals_allow() -> None:
    h = indefinite()
    counts = []
    for tolerance in (1e-1, 1e-3, 1e-6):
        found = extreme(lambda v: v @ h, start(1, 200), 3, tolerance=tolerance)[0]
        assert (found.residuals <= tolerance * np.abs(found.values)).all()
        early = extreme(lambda v: v @ h, start(1, 200), 3, tolerance=tolerance, most=found.products - 1)[0]
        assert (early.residuals > tolerance * np.abs(early.values)).any()
        counts.append(found.products)
    assert counts == sorted(set(counts))


def test_maps_beside_each_other_are_as_if_alone() -> None:
    maps = torch.stack([indefinite(), matrix(torch.linspace(-1, 1.5, 200).double(), seed=3)])
    begin = start(2, 200)
    together = extreme(lambda v: torch.einsum("gij,gj->gi", maps, v), begin, 4, every=4)
    for i, found in enumerate(together):
        alone = extreme(lambda v, i=i: v @ maps[i], begin[i : i + 1], 4, every=4)[0]  # type: ignore[misc]
        assert alone.products == found.products
        np.testing.assert_allclose(found.values, alone.values, rtol=1e-10)
        np.testing.assert_allclose(found.residuals, alone.residuals, rtol=1e-3, atol=1e-12)
    assert together[0].products < together[1].products


@pytest.mark.parametrize(
    ("values", "k", "expected"),
    [
        ([5.0, -4.0, 1.0], 5, [5.0, -4.0, 1.0]),
        ([5.0, 5.0, -4.0, *[0.0] * 20], 3, [5.0, 5.0, -4.0]),
        ([0.0] * 12, 2, [0.0, 0.0]),
        ([3.0], 1, [3.0]),
    ],
    ids=["fewer than asked for", "twice the same", "flat", "one parameter"],
)
def test_small_and_degenerate_maps(values: list[float], k: int, expected: list[float]) -> None:
    h = matrix(torch.tensor(values, dtype=torch.float64))
    found = extreme(lambda v: v @ h, start(1, len(values)), k)[0]
    np.testing.assert_allclose(found.values, expected, atol=1e-9)


def test_goes_on_where_nothing_is_left_of_the_start() -> None:
    """Every vector is an eigenvector of a multiple of the identity, exactly."""
    found = extreme(lambda v: 2 * v, torch.sign(start(2, 16)), 3)
    for each in found:
        np.testing.assert_allclose(each.values, [2.0, 2.0, 2.0])


def test_quadrature_has_the_moments_of_the_start_and_the_trace_is_hutchinsons() -> None:
    h, begin = indefinite(wide=30.0), torch.sign(start(1, 200))
    for basis in (64, 24):
        found = extreme(lambda v: v @ h, begin, 6, tolerance=1e-9, basis=basis)[0]
        unit = begin[0] / begin[0].norm()
        image = unit.clone()
        for power in range(6):
            assert (found.weights * found.nodes**power).sum() == pytest.approx(float(unit @ image), rel=1e-9)
            image = h @ image
        assert found.trace == pytest.approx(float(begin[0] @ h @ begin[0]), rel=1e-12)


def test_curvature_that_is_not_finite_is_said() -> None:
    with pytest.raises(VitreousError, match="curvature of the loss is not finite"):
        extreme(lambda v: v * torch.nan, start(1, 20), 2)
