"""CKA against the formulas as the catalogue writes them, in float64; and the invariances that make
it CKA."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitreous.measure import alignment
from vitreous.measure.alignment import (
    Estimator,
    Grams,
    centred_gram,
    doubled,
    full_precision,
    ratio,
    self_hsic,
    vectors,
    weighted_hsic,
)
from vitreous.measure.probe import interval
from vitreous.measure.resampling import poisson_weights
from vitreous.specimen.layout import BatchAxis, Layout
from vitreous.specimen.observe import Feature

Array = NDArray[np.float64]


def hsic_by_the_book(x: Tensor, y: Tensor, estimator: Estimator) -> float:
    """A4.10 and A4.11, traces and all."""
    k, gram = (np.asarray(z.double() @ z.double().T) for z in (x, y))
    n = len(k)
    if estimator == "biased":
        h = np.eye(n) - 1 / n
        return float((h @ k @ h).ravel() @ (h @ gram @ h).ravel()) / (n - 1) ** 2
    np.fill_diagonal(k, 0)
    np.fill_diagonal(gram, 0)
    one = np.ones(n)
    first = np.trace(k @ gram)
    second = (one @ k @ one) * (one @ gram @ one) / ((n - 1) * (n - 2))
    third = 2 * (one @ k @ gram @ one) / (n - 2)
    return float(first + second - third) / (n * (n - 3))


def cka_by_the_book(
    x: Tensor, y: Tensor, estimator: Estimator = "unbiased", batch: int | None = None
) -> float:
    """Means over minibatches, then the ratio."""
    pairs = list(zip(x.split(batch or len(x)), y.split(batch or len(y)), strict=True))
    mean = [np.mean([hsic_by_the_book(*p, estimator) for p in part]) for part in (
        pairs, [(a, a) for a, _ in pairs], [(b, b) for _, b in pairs])]  # fmt: skip
    return float(mean[0] / np.sqrt(mean[1] * mean[2]))


def cka(
    features: list[Tensor], estimator: Estimator = "unbiased", batch: int | None = None
) -> Array:
    """All pairs by our functions; minibatches count by their images."""
    total = np.zeros((len(features), len(features)))
    for parts in zip(*(x.split(batch or len(x)) for x in features), strict=True):
        grams = torch.stack([centred_gram(part, estimator) for part in parts])
        total += weighted_hsic(grams, grams, torch.ones(1, len(parts[0])).double(), estimator)[
            0
        ].numpy()
    own = np.diag(total)
    found: Array = ratio(total, own, own)
    return found


def related(count: int, *widths: int) -> list[Tensor]:
    """Features that share a few directions, each in noise of its own."""
    common = torch.randn(count, 6)
    return [common @ torch.randn(6, d) + 0.7 * torch.randn(count, d) for d in widths]


@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
@pytest.mark.parametrize("count", [4, 5, 48])
def test_by_the_book(estimator: Estimator, count: int) -> None:
    features = related(
        count, 7, 50, 20_000
    )  # narrower and wider than images, and wider than a strip
    want = [[cka_by_the_book(x, y, estimator) for y in features] for x in features]
    np.testing.assert_allclose(cka(features, estimator), want, atol=1e-6)


def test_hsic_itself() -> None:
    """Not only the ratio: n HSIC, in both estimators."""
    x, y = related(20, 30, 40)
    for estimator in ("unbiased", "biased"):
        one, other = (centred_gram(z.double(), estimator)[None] for z in (x, y))
        weights = torch.ones(1, 20).double()
        found = weighted_hsic(one, other, weights, estimator)
        np.testing.assert_allclose(found.item(), 20 * hsic_by_the_book(x, y, estimator), rtol=1e-10)
        own = self_hsic(one, weights, estimator)
        np.testing.assert_allclose(own.item(), 20 * hsic_by_the_book(x, x, estimator), rtol=1e-10)


def test_minibatches_accumulate() -> None:
    x, y = related(40, 30, 30)
    np.testing.assert_allclose(
        cka([x, y], batch=10)[0, 1], cka_by_the_book(x, y, batch=10), atol=1e-6
    )
    assert abs(cka([x, y], batch=10)[0, 1] - cka([x[-10:], y[-10:]])[0, 1]) > 1e-3


def test_invariant_to_rotation_and_scale_but_not_to_every_map() -> None:
    """SLC-01."""
    x, y = (z.double() for z in related(60, 24, 24))
    turn, other_turn = (torch.linalg.qr(torch.randn(24, 24).double())[0] for _ in range(2))
    stretch = torch.diag(torch.logspace(-2, 2, 24).double())
    plain, turned, stretched = (
        cka([a, b])[0, 1]
        for a, b in ((x, y), (3 * x @ turn, 0.1 * y @ other_turn), (x @ stretch, y))
    )
    assert abs(plain - turned) < 1e-10
    assert abs(plain - stretched) > 0.05
    np.testing.assert_allclose(np.diag(cka([x, y])), 1, atol=1e-12)


def test_permuted_channels_change_nothing() -> None:
    """A peer lets channels be the examples: a permutation of them took its answer from 0 to
    0.83."""
    (x,) = related(30, 64)
    assert abs(cka([x, x[:, torch.randperm(64)]])[0, 1] - 1) < 1e-6


def test_small_batches_do_not_matter_to_the_unbiased_one() -> None:
    """SLC-02: features far wider than images, half of whose directions are common, in noise."""
    common = torch.randn(1024, 10)
    x, y = (
        common @ torch.randn(10, 2000)
        + torch.randn(1024, 10) @ torch.randn(10, 2000)
        + 12 * torch.randn(1024, 2000)
        for _ in range(2)
    )
    full = cka_by_the_book(x, y)
    assert abs(cka([x, y], batch=128)[0, 1] - full) < 0.02
    assert abs(cka([x, y], "biased", batch=128)[0, 1] - full) > 0.05


def test_a_common_offset_does_not_reduce_precision() -> None:
    """A peer's float32 is off by up to 0.6 here."""
    x, y = related(32, 300, 300)
    near, far = cka([x, y])[0, 1], cka([x + 1e3, y + 1e3, x + 1e3])
    assert abs(near - far[0, 1]) < 1e-4  # what float32 has left of the features themselves
    assert abs(far[0, 2] - 1) < 1e-6
    left = [
        (z + 1e3).double() - 1e3 for z in (x, y)
    ]  # where even the book's formula in float64 keeps its digits
    assert abs(far[0, 1] - cka_by_the_book(left[0], left[1])) < 1e-6


@pytest.mark.parametrize("way", [alignment._in_strips, alignment._at_once])
@pytest.mark.parametrize("shape", [(5, 7), (9, 2500), (2, 3, 8, 1024), (6, 300_000)])
def test_both_implementations_of_gram_matrices(
    way: Callable[[Tensor], tuple[Tensor, Tensor]], shape: tuple[int, ...]
) -> None:
    features = torch.randn(shape) + 3
    exact = features.double()
    centred = exact - exact.mean(-2, keepdim=True)
    gram, offset = way(features)
    torch.testing.assert_close(gram, centred @ centred.mT, rtol=1e-4, atol=1e-4 * shape[-1] ** 0.5)
    torch.testing.assert_close(offset, exact.mean(-2).square().sum(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("level", [0.0, 0.1, 1e4])
def test_constant_features_have_no_similarity(level: float) -> None:
    """NaN, neither zero nor the similarity of rounding errors."""
    x = torch.randn(16, 50)
    constant = torch.full((16, 50), level)
    constant[3] += 1e-7 * level
    found = cka([x, constant])
    assert found[0, 0] == pytest.approx(1)
    assert np.isnan(found[[0, 1, 1], [1, 0, 1]]).all()


def test_half_precision_is_widened() -> None:
    x, y = related(16, 40, 40)
    narrow = [z.bfloat16() for z in (x, y)]
    np.testing.assert_allclose(cka(narrow), cka([z.float() for z in narrow]), atol=1e-12)


def test_precision_settings_are_restored() -> None:
    def fail() -> None:
        with full_precision():
            assert torch.backends.cuda.matmul.fp32_precision == "ieee"
            raise RuntimeError("on purpose")

    before = torch.backends.cuda.matmul.fp32_precision
    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_chosen_pairs_and_small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    grams = torch.stack([centred_gram(x) for x in related(12, 9, 30, 50)])
    weights = torch.rand(5, 12).double()
    whole = weighted_hsic(grams, grams, weights)
    monkeypatch.setattr("vitreous.measure.alignment.CELLS", 20)
    pairs = torch.tensor([[0, 1, 2], [2, 1, 1]])
    torch.testing.assert_close(
        weighted_hsic(grams, grams, weights, where=pairs), whole[:, pairs[0], pairs[1]]
    )
    torch.testing.assert_close(self_hsic(grams, weights), torch.einsum("rii->ri", whole))


def test_intervals_match_the_spread_over_samples() -> None:
    """The spread of replicates of one sample against the spread over many samples."""
    mix = torch.randn(2, 6, 40)

    def sample() -> tuple[Tensor, Tensor]:
        common = torch.randn(100, 6)
        x, y = (common @ m + 2 * torch.randn(100, 40) for m in mix)
        return x, y

    answers, spreads = [], []
    weights = torch.from_numpy(np.stack([poisson_weights([row], 0)[0] for row in range(100)], 1))
    for _ in range(60):
        x, y = sample()
        grams = torch.stack([centred_gram(x), centred_gram(y)])
        hsic = weighted_hsic(
            grams, grams, torch.cat([torch.ones(1, 100).double(), weights])
        ).numpy()
        own = np.einsum("rii->ri", hsic)
        values = doubled(ratio(hsic, own, own))[:, 0, 1]
        answers.append(values[0])
        spreads.append(values[1:].std())
    assert 0.8 < np.mean(spreads) / np.std(answers) < 1.25


def test_deviations_are_doubled() -> None:
    """A resampling counts an image as the first of its pairs only, and it is the second of as
    many."""
    found = doubled(np.array([[0.5], [0.6], [0.4], [0.9], [-0.5]]))
    np.testing.assert_allclose(found[:, 0], [0.5, 0.7, 0.3, 1.0, -1.0])


@pytest.mark.parametrize(
    ("images", "minibatch", "noise"),
    [(64, 64, 1.0), (64, 64, 3.0), (128, 128, 0.3), (256, 64, 1.0)],
)
def test_intervals_have_their_nominal_coverage(images: int, minibatch: int, noise: float) -> None:
    """Features that are linear in four common numbers, and noise: |Σxy|² / (|Σxx| |Σyy|) is the CKA
    of all images that there could be. Also over several minibatches."""
    torch.manual_seed(images)
    mix = torch.randn(2, 4, 12, dtype=torch.float64)
    across, alone = mix[0].T @ mix[1], [m.T @ m + noise**2 * torch.eye(12) for m in mix]
    truth = float(across.square().sum() / (alone[0].norm() * alone[1].norm()))
    held, values = [], []
    for _ in range(400):
        common = torch.randn(images, 4, dtype=torch.float64)
        features = common @ mix + noise * torch.randn(2, images, 12, dtype=torch.float64)
        weights = torch.cat(
            [torch.ones(1, images), torch.poisson(torch.ones(200, images))]
        ).double()
        parts = [
            weighted_hsic(grams, grams, weights[:, rows])
            for rows in torch.arange(images).split(minibatch)
            for grams in [centred_gram(features[:, rows])]
        ]
        hsic = torch.stack(parts).sum(0).numpy()
        own = np.einsum("rii->ri", hsic)
        replicates = doubled(ratio(hsic, own, own))[:, 0, 1]
        low, high = interval(replicates, images)[1:]
        held.append(low <= truth <= high)
        values.append(replicates[0])
    assert 0.92 <= np.mean(held) <= 0.975
    assert abs(np.mean(values) - truth) < 0.02


def test_a_shard_in_parts_equals_the_full_shard() -> None:
    x = torch.randn(3, 10, 20)
    whole, parts = Grams("unbiased"), Grams("unbiased")
    whole.add("x", x, True)
    for part in x.split(4, 1):
        parts.add("x", part, False)
        part.zero_()  # whoever computes in place later
    (one,), (other,) = whole.take("x"), parts.take("x")
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    assert whole.take("x") == []


def test_one_vector_an_image() -> None:
    """Windows belong to their image, whichever dimension carries it."""
    raw = torch.arange(24.0).reshape(6, 4)  # three windows of two images, windows first
    layout = Layout(BatchAxis(0, 3, False), (1,), None, (), None, 4)
    assert vectors(Feature(raw, layout))[1].tolist() == [
        *range(4, 8),
        *range(12, 16),
        *range(20, 24),
    ]
    assert vectors(Feature(torch.zeros(2, 3, 4), None)).shape == (2, 12)
