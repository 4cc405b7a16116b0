"""Exact properties: claims find all they read, and no longer hold when something is broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from vitreous import claims
from vitreous.claims.book import Claim, find_claim
from vitreous.claims.evidence import Evidence, EvidenceItem, Query, Rows, Scale
from vitreous.claims.verdicts import judge
from vitreous.measure.inspection import versions
from vitreous.models import convit, mixers, positions
from vitreous.results import Result
from vitreous.studies.identities import MEASURES, attention, frequency, identities, similarity, vit
from vitreous.studies.identities import convit as convolutional

SCALES: tuple[Scale, ...] = get_args(Scale)
EVERY = claims.every_claim()


@pytest.fixture(scope="module")
def result() -> Result:
    return identities()


def exhibits(found: Result, scale: Scale = "ten") -> list[EvidenceItem]:
    """Evidence of these properties, and of a model without results, so that claims are judged."""
    exact = EvidenceItem({"model": "identities", "data": "", "seed": 0}, {"identities": found}, "")
    model = EvidenceItem({"model": "resnet", "data": "world:shapes", "seed": 0}, {}, "")
    return [exact, model] if scale == "sanity" else [exact]


def needing_nothing_else(scale: Scale) -> list[Claim]:
    only = {"identities"}
    return [c for c in EVERY if {need.facts["model"] for need in c.needs(scale)} == only]


def readers(found: Result, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """By property: the claims that read it, at any scale."""
    read: dict[str, set[str]] = {}
    where = Rows.where
    for claim in EVERY:

        def noting(rows: Rows, claim: Claim = claim, **wanted: Any) -> Rows:
            if rows.result.name == "identities":
                read.setdefault(wanted["measure"], set()).add(claim.id)
            return where(rows, **wanted)

        monkeypatch.setattr(Rows, "where", noting)
        for scale in SCALES:
            list(claim.check(Query((), scale, exhibits(found))))
    return read


def test_all_that_claims_read_is_there_and_nothing_else(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = readers(result, monkeypatch)
    assert set(read) == set(result.table["measure"]) == set(MEASURES)
    for name, ids in read.items():
        assert all(id in (MEASURES[name].__doc__ or "") for id in ids), name
    for claim in EVERY:
        for scale in SCALES:
            look = Query((), scale, exhibits(result))
            list(claim.check(look))
            assert not look.notes
            assert all(need.result != "identities" for need in look.missing)


def test_it_is_a_result_like_others(result: Result, tmp_path: Any) -> None:
    assert result.name == "identities"
    assert list(result.table) == ["measure", "value", "low", "high"]
    assert (result.about["seed"], result.about["versions"]) == (0, versions())
    assert np.isfinite(result.table[["value", "low", "high"]]).all(axis=None)
    assert (result.table["low"] <= result.table["value"]).all()
    assert (result.table["value"] <= result.table["high"]).all()
    assert Result.load(result.save(tmp_path)) == result


@pytest.mark.parametrize("scale", ["ten", "sanity"])
def test_claims_that_need_nothing_else_are_identities(result: Result, scale: Scale) -> None:
    about = needing_nothing_else(scale)
    assert {c.id for c in about} >= {c.id for c in EVERY if c.study == "identities"}
    verdicts = judge(Evidence(exhibits(result, scale)), about)
    assert {verdict.scale for verdict in verdicts} == {scale}
    assert {v.claim.id: v.outcome for v in verdicts} == {c.id: "identity" for c in about}


def value(name: str, seed: int = 0) -> float:
    found = MEASURES[name](seed)
    return float(found if isinstance(found, float) else found.mean)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("dense_over_convolution_weights", 32**4 / 9),
        ("gpsa_parameters", 10 * 9 * 5),
        ("gpsa_position_share", 1 / (1 + np.exp(-1))),
        ("patch_linear_operations", 4.0),
        ("patch_attention_operations", 16.0),
        ("zero_head_scores", 0.0),
        ("interpolation_class", 0.0),
    ],
)
def test_known_values(name: str, known: float, result: Result) -> None:
    assert result.table.set_index("measure")["value"][name] == pytest.approx(known, rel=1e-9)


def test_a_seed_says_what_is_drawn_and_leaves_no_trace() -> None:
    before = torch.get_rng_state()
    one, again, other = (value("permutation_positions", seed) for seed in (0, 0, 1))
    assert one == again != other
    assert torch.equal(torch.get_rng_state(), before)


def plain_hsic(x: NDArray[np.float64], y: NDArray[np.float64], unbiased: bool) -> float:
    """Of Gram matrices, as Song et al. and Gretton et al. write it."""
    n = len(x)
    k, m = x @ x.T, y @ y.T
    if not unbiased:
        centre = np.eye(n) - 1 / n
        return float(np.trace(k @ centre @ m @ centre) / (n - 1) ** 2)
    np.fill_diagonal(k, 0)
    np.fill_diagonal(m, 0)
    mean = k.sum() * m.sum() / ((n - 1) * (n - 2))
    return float((np.trace(k @ m) + mean - 2 / (n - 2) * (k @ m).sum()) / (n * (n - 3)))


@pytest.mark.parametrize("estimator", similarity.ESTIMATORS)
@pytest.mark.parametrize("minibatch", [None, 16])
def test_cka_is_the_textbooks(estimator: Any, minibatch: int | None) -> None:
    a = similarity._Related(3)
    x, y = a.x[:64], a.y[:64]
    parts = [slice(at, at + (minibatch or 64)) for at in range(0, 64, minibatch or 64)]
    hsic = partial(plain_hsic, unbiased=estimator == "unbiased")
    cross, left, right = (sum(hsic(u[p], v[p]) for p in parts) for u, v in ((x, y), (x, x), (y, y)))
    assert similarity._cka(x, y, estimator, minibatch) == pytest.approx(
        cross / np.sqrt(left * right), rel=1e-12
    )


def test_shares_of_waves() -> None:
    """Five cycles on sixteen pixels are above π/2, four are π/2; a dead channel has no share."""
    along = 2 * torch.pi * torch.arange(16, dtype=torch.float64) / 16
    low, high = (cycles * along for cycles in (4, 5))
    wave = (
        7
        + 3 * low.cos()[:, None]
        + 2 * high.cos()[None, :]
        + torch.zeros(1, 2, 16, 16, dtype=torch.float64)
    )
    wave[:, 1] = 0
    assert float(frequency._high_share(wave)) == pytest.approx(4 / 13, rel=1e-12)


def test_smooth_maps_have_one_over_f() -> None:
    maps = frequency._smooth_maps(64, 32, 16, torch.Generator().manual_seed(0))
    power = torch.fft.fft2(maps).abs().square().mean((0, 1))
    assert float(power[0, 1] / power[0, 4]) == pytest.approx(16, rel=0.1)
    assert float(power[3, 4] / power[0, 5]) == pytest.approx(1, rel=0.1)
    assert float(power[0, 0] / power[0, 1]) == pytest.approx(1, rel=0.1)
    assert float(maps.std()) == pytest.approx(1)


def test_shuffling_permutes_patches() -> None:
    images, order = vit._noise_images(0), torch.randperm(64)
    moved = vit._shuffle_patches(images, order)
    for to, source in enumerate(order.tolist()):
        (row, column), (down, right) = divmod(to, 8), divmod(source, 8)
        patch = images[:, :, 4 * down : 4 * down + 4, 4 * right : 4 * right + 4]
        assert torch.equal(moved[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4], patch)


# `Break` damages the package on purpose, and the claim has to fail.

Break = Callable[[pytest.MonkeyPatch], None]


def broken(where: Any, name: str, change: Callable[[Any], Any]) -> Break:
    """Something put in the place of what is there, which it is made from."""
    return lambda patch: patch.setattr(where, name, change(getattr(where, name)))


class Stretched(similarity._Related):
    """Its rotation is none."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.q = self.stretching


class Rotated(similarity._Related):
    """Its stretching is none."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.stretching = self.q


class WithTable(convit.GPSA):
    """Positional attention that learns a number for every pair of patches of one image."""

    def __init__(self, dim: int, heads: int, **options: Any) -> None:
        super().__init__(dim, heads, **options)
        self.table = nn.Parameter(torch.zeros(196, 196))


def with_gate(share: float) -> Callable[[Any], Any]:
    """Gated layers that begin with another gate."""

    def change(start: Any) -> Any:
        def started(layer: Any, *options: Any) -> None:
            start(layer, *options)
            layer.set_gate(share)

        return started

    return change


def sigmoid_weights(layer: mixers.Attention, x: Tensor) -> Tensor:
    q, k, _ = layer.split(x)
    return (q @ k.mT / q.shape[-1] ** 0.5).sigmoid() / q.shape[2]


def sharpened(forward: Any) -> Any:
    """Attention that adds twice what a token has over the mean."""

    def sharp(layer: mixers.Attention, x: Tensor) -> Tensor:
        values = layer.split(x)[2]
        return forward(layer, x) + layer.merge(2 * (values - values.mean(-2, keepdim=True)))

    return sharp


def moving_all(take: Any) -> Any:
    """Interpolation that does not spare the class row."""

    def moved(own: positions.Learned1d, other: Any, mode: Any) -> None:
        take(own, other, mode)
        own.table[:, 0] = other.table[0].mean(0)

    return moved


BROKEN: list[tuple[str, str, Break]] = [
    (
        "attention_leak_from_constant",
        "HDV-26",
        broken(mixers.Attention, "weights", lambda _: sigmoid_weights),
    ),
    (
        "attention_eighth_power_ratio",
        "HDV-26",
        broken(
            mixers.Attention,
            "weights",
            lambda weights: lambda *a: torch.eye(64).double() - weights(*a) / 2,
        ),
    ),
    ("random_attention_lowers_ratio", "HDV-26", broken(mixers.Attention, "forward", sharpened)),
    ("random_attention_variance_ratio", "HDV-34", broken(mixers.Attention, "forward", sharpened)),
    (
        "attention_as_ensemble_difference",
        "HDV-55",
        broken(
            mixers.Attention, "split", lambda split: lambda *a: [2 * each for each in split(*a)]
        ),
    ),
    (
        "blur_as_attention_difference",
        "HDV-55",
        broken(attention, "box_mean", lambda mean: lambda x, g, _: mean(x, g, 3)),
    ),
    ("random_mlp_raises_high_share", "HDV-28", broken(F, "gelu", lambda _: lambda x: x)),
    ("random_convolutions_raise_high_share", "HDV-29", broken(F, "relu", lambda _: lambda x: x)),
    (
        "psa_convolution_difference",
        "CVT-01",
        broken(convolutional, "STRENGTHS", lambda all_: all_[:3]),
    ),
    (
        "psa_convolution_rises",
        "CVT-01",
        broken(convolutional, "STRENGTHS", lambda all_: (*all_, 0.5)),
    ),
    (
        "psa_convolution_difference",
        "CVT-01",
        broken(convolutional, "centres_of", lambda f: lambda *a: f(*a).flip(1)),
    ),
    ("gpsa_parameter_share", "CVT-25", broken(convit, "GPSA", lambda _: WithTable)),
    (
        "gpsa_row_sum_error",
        "CVT-26",
        broken(convit.GPSA, "position_attention", lambda found: lambda *a: 1.001 * found(*a)),
    ),
    (
        "gpsa_mixture_difference",
        "CVT-26",
        broken(convit.GPSA, "mixture", lambda found: lambda *a: 0.999 * found(*a)),
    ),
    ("gpsa_position_share", "CVT-26", broken(convit.GPSA, "start_as_convolution", with_gate(0.4))),
    (
        "offsets_on_a_new_grid",
        "CVT-27",
        broken(convit.GPSA, "position_logits", lambda found: lambda *a: found(*a)[::-1]),
    ),
    ("cka_rotated", "SLC-01", broken(similarity, "_Related", lambda _: Stretched)),
    ("cka_stretched", "SLC-01", broken(similarity, "_Related", lambda _: Rotated)),
    (
        "cka_with_itself",
        "SLC-01",
        broken(similarity, "self_hsic", lambda own: lambda *a: own(*a) * 1.01),
    ),
    (
        "cka_minibatch_difference",
        "SLC-02",
        broken(similarity, "Grams", lambda g: lambda _, size: g("biased", size)),
    ),
    (
        "cka_biased_difference",
        "SLC-02",
        broken(similarity, "Grams", lambda g: lambda _, size: g("unbiased", None)),
    ),
    (
        "permutation_class",
        "VIT-05",
        broken(vit, "_small_vit", lambda f: lambda **o: f(**{**o, "pos": "2d"})),
    ),
    (
        "permutation_mean",
        "VIT-05",
        broken(vit, "_small_vit", lambda f: lambda **o: f(mixer="window", **o)),
    ),
    (
        "permutation_positions",
        "VIT-05",
        broken(vit, "_small_vit", lambda f: lambda **o: f(pos="none")),
    ),
    (
        "interpolation_constant",
        "VIT-06",
        broken(positions, "resample", lambda resample: lambda *a: resample(*a) * 1.01),
    ),
    (
        "interpolation_linear",
        "VIT-06",
        broken(positions, "resample", lambda resample: lambda f, g, _: resample(f, g, "bicubic")),
    ),
    ("interpolation_class", "VIT-06", broken(positions.Learned1d, "resample_from", moving_all)),
    (
        "zero_head_scores",
        "VIT-22",
        broken(vit, "adapt", lambda f: lambda m, **o: f(m, **{**o, "head": "keep"})),
    ),
    (
        "patch_linear_operations",
        "VIT-21",
        broken(vit, "build", lambda f: lambda n, **o: f(n, **{**o, "pool": "class"})),
    ),
    (
        "dense_over_convolution_weights",
        "VIT-24",
        broken(nn, "Linear", lambda _: lambda *a, **o: nn.Conv2d(3, 64, 32)),
    ),
]


@pytest.mark.parametrize(("name", "id", "change"), BROKEN, ids=[name for name, *_ in BROKEN])
def test_what_is_broken_is_noticed(
    name: str, id: str, change: Break, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    table = result.table.copy()
    table.loc[table["measure"] == name, ["value", "low", "high"]] = value(name)
    monkeypatch.undo()
    changed = Result(result.name, table, result.columns, about=result.about)
    (verdict,) = judge(Evidence(exhibits(changed, "sanity")), [find_claim(EVERY, id)])
    assert verdict.outcome == "opposite"


def test_only_noted_properties_are_not_broken_here() -> None:
    """What a claim only notes cannot fail; every other property has been broken."""
    assert set(MEASURES) - {name for name, *_ in BROKEN} == {
        "gpsa_parameters",
        "patch_attention_operations",
    }
