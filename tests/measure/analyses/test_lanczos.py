"""Spectra that are known beforehand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from vitreous.errors import VitreousError
from vitreous.measure.curvature.lanczos import _Run, _search, extreme
from vitreous.measure.curvature.vectors import sign_vectors, vector_generator
from vitreous.results import mean_of_few

ENDS = (67.219, -53.966, 53.721, 43.161, -43.16, 41.528)
"""Two pairs of opposite sign that lie close together."""


def matrix(values: Tensor, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    turned, _ = torch.linalg.qr(
        torch.randn(len(values), len(values), dtype=torch.float64, generator=generator)
    )
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
    true = [
        float((h @ x - value * x).norm())
        for x, value in zip(found.vectors, found.values, strict=True)
    ]
    np.testing.assert_allclose(found.residuals, true, atol=1e-11)
    assert (found.residuals <= 1e-9 * np.abs(found.values)).all()
    assert found.verified
    assert found.products < 160
    torch.testing.assert_close(
        found.vectors @ found.vectors.T, torch.eye(6, dtype=torch.float64), atol=1e-9, rtol=0
    )


def test_power_iteration_fails_where_this_does_not() -> None:
    """The same number of products, and ten times as many, spent on the largest pair of opposite
    sign."""
    values = torch.cat(
        [torch.tensor([53.966, -53.721], dtype=torch.float64), torch.linspace(-20, 20, 98).double()]
    )
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
        first = _search(lambda v: v @ h, start(1, 200), 3, tolerance, 300, 64, 1)[0].products
        early = _search(lambda v: v @ h, start(1, 200), 3, tolerance, first - 1, 64, 1)[0]
        assert (early.residuals > tolerance * np.abs(early.values)).any()
        counts.append(first)
    assert counts == sorted(set(counts))


def test_maps_in_parallel_equal_single_maps() -> None:
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


def test_an_invariant_start_is_continued_by_a_random_vector() -> None:
    """Every vector is an eigenvector of a multiple of the identity, exactly."""
    found = extreme(lambda v: 2 * v, torch.sign(start(2, 16)), 3)
    for each in found:
        np.testing.assert_allclose(each.values, [2.0, 2.0, 2.0])


def test_quadrature_has_the_moments_of_the_start() -> None:
    h, begin = indefinite(wide=30.0), torch.sign(start(1, 200))
    for basis in (64, 24):
        found = extreme(lambda v: v @ h, begin, 6, tolerance=1e-9, basis=basis)[0]
        unit = begin[0] / begin[0].norm()
        image = unit.clone()
        for power in range(6):
            assert (found.weights * found.nodes**power).sum() == pytest.approx(
                float(unit @ image), rel=1e-9
            )
            image = h @ image


def test_curvature_that_is_not_finite_is_said() -> None:
    with pytest.raises(VitreousError, match="curvature of the loss is not finite"):
        extreme(lambda v: v * torch.nan, start(1, 20), 2)


def drawn_spectrum(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Spectra in which an eigenvalue of the top is easily missed."""
    values = rng.normal(size=n) * rng.choice([0.1, 1.0, 3.0])
    many = int(rng.integers(2, 8))
    near = 1 + rng.uniform(-1, 1, many) * rng.choice([0.1, 1e-2, 1e-3, 1e-5])
    if kind == "clustered":
        values[:many] = rng.uniform(5, 15) * near
    elif kind == "multiple":
        values[:many] = rng.uniform(4, 12) * rng.choice([-1, 1])
    elif kind == "opposite":
        values[:many] = rng.uniform(8, 12) * near * rng.choice([-1, 1], many)
    elif kind == "late":
        values[:6] = 15.02, 14.4, -13.0, 12.9, -12.8, 12.5
    elif kind == "decaying":
        values = 10 * np.arange(1, n + 1) ** -rng.choice([0.3, 0.7, 1.5]) * rng.choice([-1, 1], n)
    elif kind == "low rank":
        values[8:] = 0
    return values


@pytest.mark.parametrize(
    "kind", ["clustered", "multiple", "opposite", "late", "decaying", "low rank", "bulk alone"]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_none_of_the_top_is_missing(kind: str, dtype: torch.dtype) -> None:
    """Twenty-five matrices of each kind, in either precision, with three numbers of eigenvalues:
    1050 searches, those of one size beside each other. One start, without a second look, misses one
    in 59 of the 525 in float64."""
    rng = np.random.default_rng([ord(letter) for letter in kind])
    maps: dict[int, list[Tensor]] = {12: [], 40: [], 120: []}
    for _ in range(25):
        n = int(rng.choice([*maps]))
        values = torch.from_numpy(drawn_spectrum(kind, n, rng))
        h = matrix(values, seed=int(rng.integers(1000))).to(dtype)
        maps[n].append((h + h.T) / 2)
    for n, k in product(maps, (1, 2, 5)):
        together = torch.stack(maps[n])
        begin = torch.from_numpy(rng.choice([-1.0, 1.0], (len(together), n))).to(dtype)
        searches = extreme(lambda v, h=together: torch.einsum("gij,gj->gi", h, v), begin, k)  # type: ignore[misc]
        for h, found in zip(together, searches, strict=True):
            true = np.linalg.eigvalsh(h.double().numpy())
            true = true[np.argsort(-np.abs(true))]
            np.testing.assert_allclose(np.abs(found.values), np.abs(true[:k]), rtol=2e-3)
            for (
                value
            ) in found.values:  # of the right sign, where sizes differ by more than rounding
                assert np.abs(true - value).min() <= 2e-3 * abs(value)
            assert found.verified


def test_a_search_that_may_have_missed_one_says_so() -> None:
    h = matrix(torch.linspace(-1, 1.2, 120).double())
    found = extreme(lambda v: v @ h, start(1, 120), 5, tolerance=1e-6, most=20)[0]
    assert not found.verified
    assert (found.residuals > 1e-6 * np.abs(found.values)).any()
    loose = extreme(lambda v: v @ h, start(1, 120), 1, tolerance=0.5, most=4)[0]
    assert (loose.residuals <= 0.5 * np.abs(loose.values)).all()
    assert not loose.verified


def test_added_eigenvectors_have_their_residual_and_are_orthogonal() -> None:
    """Seven eigenvalues of 5: one start sees one of them, and the others come one by one."""
    h = matrix(torch.tensor([5.0] * 7 + [0.1 * i for i in range(40)], dtype=torch.float64))
    found = extreme(lambda v: v @ h, start(1, 47), 6, tolerance=1e-8, vectors=True)[0]
    np.testing.assert_allclose(found.values, [5.0] * 6, rtol=1e-12)
    torch.testing.assert_close(
        found.vectors @ found.vectors.T, torch.eye(6, dtype=torch.float64), atol=1e-7, rtol=0
    )
    true = [
        float((h @ x - value * x).norm())
        for x, value in zip(found.vectors, found.values, strict=True)
    ]
    np.testing.assert_allclose(found.residuals, true, atol=1e-12)


def test_the_basis_stays_orthogonal_where_nearly_all_digits_cancel() -> None:
    """Once the first eigenvalue has converged, what is left of a product is a millionth of it."""
    h = matrix(torch.cat([torch.tensor([1e6]), torch.linspace(0, 1, 99)]).double())
    run = _Run(start(1, 100), 60)
    for _ in range(60):
        run.step(lambda v: v @ h)
    basis = torch.cat(run.parts, 1)[0]
    torch.testing.assert_close(
        basis @ basis.T, torch.eye(60, dtype=torch.float64), atol=1e-12, rtol=0
    )
    small, projected = run.small[0].triu(), basis @ h @ basis.T
    torch.testing.assert_close(small, projected.triu(), atol=1e-8, rtol=0)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_a_start_within_an_invariant_space_is_left_for_another(scale: float) -> None:
    """A sum of three eigenvectors: after three products nothing is left but rounding, which is no
    direction."""
    values = (
        torch.tensor([9.0, 7.0, -8.0, 3.0, 2.0, *torch.linspace(-1, 1, 45)], dtype=torch.float64)
        * scale
    )
    h = matrix(values)
    begin = torch.linalg.eigh(h).eigenvectors[:, [-3, -4, 10]].sum(1)[None]
    run = _Run(begin.clone(), 20)
    broken = []
    for _ in range(8):
        run.step(lambda v: v @ h)
        state = run.state()
        broken.append(bool(state.broken[0]))
        run.prepare_next(state)
        basis = torch.cat(run.parts, 1)[0]
        torch.testing.assert_close(
            basis @ basis.T, torch.eye(len(basis), dtype=torch.float64), atol=1e-12, rtol=0
        )
    assert broken == [False, False, True] + [False] * 5
    found = extreme(lambda v: v @ h, begin, 3, tolerance=1e-9)[0]
    np.testing.assert_allclose(found.values / scale, [9.0, -8.0, 7.0], rtol=1e-9)


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float64, 1e-13), (torch.float32, 1e-6)])
def test_only_rounding_counts_as_an_invariant_space(dtype: torch.dtype, rounding: float) -> None:
    run = _Run(start(2, 10, dtype), 5)
    run.step(lambda v: 3 * v)
    run.rest = torch.tensor([2 * rounding, 4 * rounding], dtype=dtype)
    assert run.state().broken.tolist() == [True, False]


def test_signs_depend_on_the_start_and_the_draw_alone() -> None:
    like = torch.zeros(2, 1, 1001, dtype=torch.float64)
    both = list(sign_vectors(["a", "b"], 3, like))
    alone = list(sign_vectors(["b"], 3, like[:1]))
    assert [each.shape for each in both] == [(2, 1001)] * 3
    assert all(each.dtype == like.dtype and bool((each.abs() == 1).all()) for each in both)
    assert all(torch.equal(two[1:], one) for two, one in zip(both, alone, strict=True))
    rows = torch.cat(both)
    products = (rows @ rows.T / 1001 - torch.eye(6)).abs()
    assert products.max() < 5 / 1001**0.5  # of independent signs
    drawn = torch.randint(0, 2, (1001,), generator=vector_generator("a", -1))
    assert torch.equal(both[0][0], 2.0 * drawn - 1)  # as the first version drew them


def test_traces_are_unbiased_and_the_top_adds_no_spread() -> None:
    """Two outliers make up nearly all of the spread of Hutchinson's estimate."""
    values = torch.cat([torch.tensor([100.0, -80.0]), torch.linspace(-1, 1.2, 198)]).double()
    h = matrix(values)
    begin = torch.sign(start(1, 200))
    found = extreme(lambda v: v @ h, begin, 2, draws=200)[0]
    rest = h - sum(value * torch.outer(x, x) for value, x in zip(*_top(h), strict=True))
    spread = float(np.sqrt(2 * float(rest.square().sum() - rest.diagonal().square().sum())))
    assert found.trace.std(ddof=1) == pytest.approx(spread, rel=0.2)
    assert abs(found.trace.mean() - float(values.sum())) < 4 * spread / np.sqrt(200)
    plain = [float(v @ h @ v) for v in torch.sign(start(200, 200))]
    assert np.std(plain) > 5 * found.trace.std()


def test_the_interval_of_a_trace_has_its_nominal_coverage() -> None:
    """400 searches of eight draws each; the top is found from other starts, so that what is left
    differs as well."""
    values = torch.cat([torch.tensor([30.0, -20.0]), torch.linspace(-1, 1.2, 58)]).double()
    h = matrix(values)
    rows = torch.sign(torch.randn(400, 60, generator=torch.Generator().manual_seed(1))).double()
    traces = np.stack([each.trace for each in extreme(lambda v: v @ h, rows, 2, draws=8)], 1)
    _, low, high = mean_of_few(traces)
    assert 0.92 <= np.mean((low <= float(values.sum())) & (float(values.sum()) <= high)) <= 0.975


def _top(h: Tensor) -> tuple[list[float], list[Tensor]]:
    values, vectors = torch.linalg.eigh(h)
    return [float(values[0]), float(values[-1])], [vectors[:, 0], vectors[:, -1]]
