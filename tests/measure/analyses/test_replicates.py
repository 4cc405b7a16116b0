"""Replicates of analyses, against resampling by hand: replicate r counts image (or batch) i as
often as the r-th Poisson number of a generator that is keyed by the seed and i."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import vitreous
from vitreous.measure import analyses, resampling
from vitreous.measure.analysis import Analysis
from vitreous.measure.resampling import REPEATS, resampled_means, resampled_sums
from vitreous.results import Result

SEED = 3
VIT = "nano:vit@warmup"
MODELS = (VIT, "nano:resnet@warmup")
"""Early in training, when some answers are right and some are wrong."""


def drawn(count: int, first: int = 0) -> np.ndarray:
    """(REPEATS, count) by another route: one generator per image."""
    return np.stack(
        [
            np.random.Generator(np.random.Philox(key=[SEED, row])).poisson(1.0, REPEATS)
            for row in range(first, first + count)
        ],
        1,
    ).astype(float)


def measured(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, count: int = 20
) -> tuple[Result, dict[str, dict[str, Any]]]:
    """A result, and the numbers per image that it was made of."""
    kind: Any = analyses.named(name)
    given: dict[str, dict[str, Any]] = {}
    answer = kind.answer

    def keep(self: Analysis, found: Any, *rest: Any) -> Result:
        given.update(found)
        result: Result = answer(self, found, *rest)
        return result

    monkeypatch.setattr(kind, "answer", keep)
    data = {
        split: vitreous.data.load("world:shapes", split=split, size=count)
        for split in ("train", "test")
    }
    return vitreous.analyse(MODELS, data, {name: options}, seed=SEED)[name], given


def close(result: Result, row: Any, expected: np.ndarray, column: str = "value") -> float:
    """The value to rounding, its replicates to half precision of their spread, which is
    returned."""
    found = result.draws(column)[:, result.table.index.get_loc(row)]
    assert found[0] == pytest.approx(expected[0], rel=1e-6, abs=1e-9)
    spread = float(np.nanstd(expected[1:])) + 1e-12
    np.testing.assert_array_equal(np.isnan(found[1:]), np.isnan(expected[1:]))
    np.testing.assert_allclose(found[1:], expected[1:], rtol=0, atol=3e-3 * spread)
    return spread


def mean(values: np.ndarray, first: int = 0) -> np.ndarray:
    """(1 + REPEATS,) Σ w x / Σ w."""
    weights = np.concatenate([np.ones((1, len(values))), drawn(len(values), first)])
    return np.asarray((weights * values).sum(1) / weights.sum(1))


@pytest.mark.parametrize(
    ("name", "options", "shift", "row"),
    [
        (
            "corruption",
            {"kinds": ("contrast",), "severities": (5,)},
            "contrast 5",
            {"kind": "contrast", "severity": 5.0},
        ),
        (
            "band_noise",
            {"frequencies": (0.5,), "strength": 0.5},
            "0.5",
            {"frequency": 0.5},
        ),
        ("adversarial", {"epsilons": (4,), "attacks": ("fgsm",)}, "fgsm 4", {"epsilon": 4.0}),
        (
            "frequency_pass",
            {"cutoffs": (0.2,)},
            "low-pass 0.2",
            {"filter": "low-pass", "cutoff": 0.2},
        ),
        (
            "occlusion",
            {"grids": (4,), "shares": (0.75,)},
            "4 0.75",
            {"share": 0.75, "masked": True},
        ),
    ],
)
def test_accuracy_its_change_and_nll_of_shifted_images(
    name: str,
    options: dict[str, Any],
    shift: str,
    row: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, given = measured(name, options, monkeypatch)
    spreads: list[float] = []
    for model in MODELS:
        chosen = result.table["model"] == model
        for column, value in row.items():
            chosen &= result.table[column] == value
        (place,) = result.table.index[chosen]
        numbers = {key: each.double().numpy() for key, each in given[model][shift].items()}
        clean = given[model]["clean"]["right"].double().numpy()
        close(result, place, mean(numbers["right"]))
        spreads.append(close(result, place, mean(numbers["right"]) - mean(clean), "change"))
        assert close(result, place, mean(numbers["nll"]), "nll") > 1e-3
    assert max(spreads) > 1e-3


def test_errors_relative_to_a_reference_are_resampled_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"kinds": ("contrast", "fog"), "severities": (5,)}
    result, given = measured("corruption", options, monkeypatch)
    ratios = []
    for kind in ("contrast", "fog"):
        errors = [1 - mean(given[model][f"{kind} 5"]["right"].double().numpy()) for model in MODELS]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios.append(errors[1] / errors[0])
    mce = np.mean(ratios, axis=0)
    table = result.table
    (place,) = table.index[(table["model"] == MODELS[1]) & table["overall"]]
    assert close(result, place, np.where(np.isfinite(mce), mce, np.nan), "ce") > 1e-9


def test_lesions(monkeypatch: pytest.MonkeyPatch) -> None:
    result, given = measured("lesion", {}, monkeypatch)
    rows = result.table[(result.table["model"] == VIT) & (result.table["value"] != 0)]
    for place, row in rows.head(2).iterrows():
        whole, changed = (
            given[VIT][piece] for piece in ("whole model", f"{row['part']}: taken out")
        )
        for part, column, sign in (("right", "value", 1), ("nll", "rise", -1)):
            lost = whole[part].double().numpy() - changed[part].double().numpy()
            assert close(result, place, mean(sign * lost), column) > 1e-9


def test_shape_share_is_a_ratio_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    result, given = measured("cue_conflict", {}, monkeypatch, count=40)
    data = vitreous.data.load("world:shapes", split="test", size=40)
    seen = vitreous.measure.selection.choose_images(data, "test", 512, (), SEED)
    shape, texture = (seen.truth[cue].numpy() for cue in ("shape", "texture"))
    weights = np.concatenate([np.ones((1, 40)), drawn(40)])
    weights = weights * (shape != texture)
    spreads = []
    for model in MODELS:
        answer = given[model]["answers"]["answer"].numpy()
        hits, both = answer == shape, (answer == shape) | (answer == texture)
        table = result.table[result.table["model"] == model]
        (place,) = table.index[table["overall"]]
        close(result, place, (weights * hits).sum(1) / (weights * both).sum(1))
        (place,) = table.index[table["measure"] == "neither"]
        spreads.append(close(result, place, (weights * ~both).sum(1) / weights.sum(1)))
    assert max(spreads) > 1e-3


def test_ensembles(monkeypatch: pytest.MonkeyPatch) -> None:
    result, given = measured("ensemble", {}, monkeypatch)
    logs = [
        torch.cat([piece["logs"] for piece in given[model].values()]).double().numpy()
        for model in MODELS
    ]
    mixed = np.mean(np.exp(logs), axis=0)
    data = vitreous.data.load("world:shapes", split="test", size=20)
    labels = vitreous.measure.selection.choose_images(data, "test", 512, (), SEED).labels.numpy()
    table = result.table
    (place,) = table.index[table["part"] == "ensemble"]
    assert close(result, place, mean(-np.log(mixed[np.arange(20), labels])), "nll") > 1e-9
    diversity = stats.entropy(mixed, axis=1) - np.mean(
        [stats.entropy(np.exp(each), axis=1) for each in logs], axis=0
    )
    assert close(result, place, mean(diversity), "diversity") > 1e-9
    (place,) = table.index[(table["model"] == MODELS[0]) & (table["other"] == MODELS[1])]
    assert close(result, place, mean(logs[0].argmax(1) != logs[1].argmax(1)), "disagreement") > 1e-9


def test_mc_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    result, given = measured("mc_dropout", {"passes": (1, 2), "rate": 0.5}, monkeypatch)
    nll = [
        torch.cat([piece[f"{which}/nll"] for piece in given[VIT].values()]).double().numpy()
        for which in ("2", "clean")
    ]
    table = result.table
    (place,) = table.index[(table["model"] == VIT) & table["overall"]]
    assert close(result, place, mean(nll[0]) - mean(nll[1]), "nll_change") > 1e-9


def test_linear_probes_resample_evaluation_images_by_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the second half of a set is evaluated on, its images keep their numbers in the set."""
    options = {"shots": (), "tokens": ("mean over positions",), "positions": ("blocks.0.attn",)}
    split, given = measured("linear_probe", options, monkeypatch)
    pieces = list(given[VIT].values())
    data = vitreous.data.load("world:shapes", split="test", size=40)
    half = analyses.named("linear_probe")(**options)(VIT, data, seed=SEED)
    later = list(given[VIT].values())
    for result, parts, first in ((split, pieces, 0), (half, later, 20)):
        marks = np.concatenate([piece["right"][:, 0].double().numpy() for piece in parts])
        table = result.table[result.table["model"] == VIT]
        rows = table.index[table["token"] != "each position alone"]
        assert len(rows) == len(marks)
        varied = [at for at, each in enumerate(marks) if 0 < each.mean() < 1]
        assert close(result, rows[varied[0]], mean(marks[varied[0]], first)) > 1e-9
        single = marks[(table["token"][rows] == "one position").to_numpy()]
        (place,) = table.index[table["token"] == "each position alone"]
        assert close(result, place, mean(single.mean(0), first)) > 1e-9


def test_spectra_resample_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"size": 5, "top": 2, "where": "head", "tolerance": 0.03}
    result, given = measured("hessian", options, monkeypatch)
    weights = np.concatenate([np.ones((1, 4)), drawn(4)])
    for model in MODELS:
        batches = [given[model][f"batch {number}"] for number in range(4)]
        values = np.stack([each["values"].numpy() for each in batches])
        trace = np.stack([each["trace"].numpy() for each in batches]).mean(1)
        table = result.table[result.table["model"] == model]
        with np.errstate(divide="ignore", invalid="ignore"):
            positive = np.where(values > 0, values, 0).sum(1)
            ape = (weights * positive).sum(1) / (weights * (values > 0).sum(1)).sum(1)
            largest = (weights * values.max(1)).sum(1) / weights.sum(1)
            traces = (weights * trace).sum(1) / weights.sum(1)
        for measure, expected in (("APE", ape), ("largest", largest), ("trace", traces)):
            (place,) = table.index[table["measure"] == measure]
            assert close(result, place, expected) > 1e-9
        assert np.isnan(result.draws()[1:, table.index[table["measure"] == "eigenvalue"]]).all()
    known = result.draws("density")[:, result.table["pooled"].to_numpy(dtype=bool)]
    at = result.table["at"][result.table["pooled"]].to_numpy()
    half = len(at) // 2  # of one model
    areas = np.trapezoid(known[:, :half], at[:half], axis=1)
    np.testing.assert_allclose(areas[np.isfinite(areas)], 1.0, atol=0.02)


def test_a_single_batch_has_no_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"size": 20, "top": 2, "where": "head", "tolerance": 0.03}
    result, _ = measured("hessian", options, monkeypatch)
    place = result.table["measure"].isin(["NEP", "APE", "largest", "trace"]).to_numpy()
    assert np.isnan(result.draws()[1:, place]).all()


def test_receptive_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    result, given = measured("erf", {"positions": ("centre",)}, monkeypatch)
    numbers = given[VIT]["centre"]
    weights = np.concatenate([np.ones((1, 20)), drawn(20)])
    total, reach = ((weights @ numbers[part].numpy()) for part in ("total", "reach"))
    rows = result.table.index[result.table["model"] == VIT]
    for i in (1, 3):
        assert close(result, rows[i], reach[:, i] / total[:, i]) > 1e-9


def test_landscapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pieces hold resampled sums already, so its losses come from a landscape without
    resampling."""
    result, given = measured("landscape", {"points": 3, "dimensions": 1}, monkeypatch)
    losses = given[VIT]["0 to 2"]["nll"].numpy().T
    counts = np.concatenate([[20.0], drawn(20).sum(1)])
    heights = losses / counts[:, None]
    table = result.table[result.table["model"] == VIT]
    rows = table.index[table["part"] == "point"]
    assert close(result, rows[0], heights[:, 0]) > 1e-9
    assert close(result, rows[0], heights[:, 0] - heights[:, 1], "rise") > 1e-9
    (ring,) = table.index[table["part"] == "ring"]
    assert close(result, ring, heights[:, [0, 2]].mean(1) - heights[:, 1]) > 1e-9


def test_similarities_are_the_probes_own() -> None:
    data = vitreous.data.load("world:shapes", split="test", size=24)
    found = vitreous.analyse("nano:vit", data, {"similarity_to": {"to": VIT}}, seed=SEED)[
        "similarity_to"
    ]
    probe = vitreous.inspect(["nano:vit", VIT], data, ["cka"], seed=SEED)["cka"]
    table = probe.table
    same = table["across"] & (table["layer"] == table["other_layer"])
    same &= table["model"] == "nano:vit"
    np.testing.assert_allclose(found.draws(), probe.draws()[:, same.to_numpy()], rtol=1e-12)


def test_memory_is_bounded_and_parts_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(50, 3, 2))
    whole = resampled_sums(values, range(50), SEED)
    weights = np.concatenate([np.ones((1, 50)), drawn(50)])
    np.testing.assert_allclose(whole, np.einsum("rn,nij->rij", weights, values))
    monkeypatch.setattr(resampling, "CHUNK", 7 * REPEATS)
    np.testing.assert_allclose(resampled_sums(values, range(50), SEED), whole)
    np.testing.assert_allclose(
        resampled_means(values, range(50), SEED)[0], values.mean(0), rtol=1e-12
    )
