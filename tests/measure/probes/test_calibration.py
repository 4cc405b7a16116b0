"""Calibration against plain loops and scikit-learn, with the cases in which other libraries go
wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import vitreous
from measure.looks import images, vit
from vitreous.errors import VitreousError
from vitreous.measure.probes.calibration import (
    PARTS,
    bin_index,
    every_measure,
    measures,
    score_images,
)
from vitreous.models.loading import load_model
from vitreous.results import from_replicates, wilson

Array = NDArray[Any]


def ece_by_hand(confidence: Array, right: Array, bins: int = 10) -> tuple[float, float]:
    """As a textbook says it, one image after the other."""
    inside: list[list[int]] = [[] for _ in range(bins)]
    for image, sure in enumerate(confidence):
        number = (
            bins - 1
            if sure == 1
            else int(np.searchsorted(np.arange(1, bins + 1) / bins, sure, side="right"))
        )
        inside[number].append(image)
    gaps = [
        (len(rows), float(np.mean(confidence[rows]) - np.mean(right[rows])))
        for rows in inside
        if rows
    ]
    total = sum(count for count, _ in gaps)
    return sum(c * abs(g) for c, g in gaps) / total, sum(c * g for c, g in gaps) / total


def measured(found: dict[str, Tensor], bins: int = 10) -> dict[str, float]:
    member = torch.nn.functional.one_hot(bin_index(found["confidence"], bins), bins)
    sums = {part: (found[part][:, None] * member).sum(0).numpy() for part in PARTS}
    return {name: float(value) for name, value in measures(sums).items()}


def of(confidence: list[float], right: list[float]) -> dict[str, float]:
    """From confidences as they are."""
    sure, true = (
        torch.tensor(confidence, dtype=torch.float64),
        torch.tensor(right, dtype=torch.float64),
    )
    blank = torch.zeros_like(sure)
    above = (sure > 0.9).double()
    rest = {"brier": blank, "nll": blank, "sure": above, "sure_right": above * true}
    squares = {"square": sure**2, "gap_square": (sure - true) ** 2}
    return measured(
        {"count": torch.ones_like(sure), "confidence": sure, "right": true, **squares, **rest}
    )


@pytest.mark.parametrize("sharpness", [0.3, 2.0, 6.0])
def test_against_plain_loops_and_scikit_learn(sharpness: float) -> None:
    scores, labels = (
        sharpness * torch.randn(500, 7, dtype=torch.float64),
        torch.randint(0, 7, (500,)),
    )
    shares = scores.softmax(1).numpy()
    found = measured(score_images(scores, labels))
    confidence, right = shares.max(1), (shares.argmax(1) == labels.numpy()).astype(float)
    assert (found["plain ECE"], found["signed ECE"]) == pytest.approx(
        ece_by_hand(confidence, right), abs=1e-12
    )
    sure = confidence > 0.9
    assert found["Freq-90"] == pytest.approx(sure.mean())
    if sure.any():
        assert found["Acc-90"] == pytest.approx(right[sure].mean())
    assert found["Unc-90"] == pytest.approx((~sure)[right == 0].mean())
    metrics = pytest.importorskip("sklearn.metrics")
    assert found["NLL"] == pytest.approx(
        metrics.log_loss(labels.numpy(), shares, labels=range(7)), rel=1e-9
    )
    expected = metrics.brier_score_loss(
        labels.numpy(), shares, labels=range(7), scale_by_half=False
    )
    assert found["Brier"] == pytest.approx(expected, rel=1e-12)


def test_confidence_of_exactly_0_and_1() -> None:
    """A bin that is open above loses confidences of 1, and a bin of their own splits the last one
    in two."""
    assert bin_index(
        torch.tensor([0.0, 0.1, 0.0999, 0.9, 1.0], dtype=torch.float64), 10
    ).tolist() == [
        0,
        1,
        0,
        9,
        9,
    ]
    assert of([0.95, 1.0], [1, 0])["plain ECE"] == pytest.approx(0.475)
    assert of([0.0, 1.0], [0, 1])["plain ECE"] == 0
    assert of([0.0, 1.0], [1, 0])["plain ECE"] == 1


def test_saturated_predictions_count() -> None:
    generator = np.random.default_rng(0)
    confidence = np.where(generator.random(1000) < 0.49, 1.0, generator.uniform(0.5, 1, 1000))
    right = (generator.random(1000) < 0.8).astype(float)
    expected, signed = ece_by_hand(confidence, right)
    found = of(confidence.tolist(), right.tolist())
    assert (found["plain ECE"], found["signed ECE"]) == pytest.approx((expected, signed))


def test_signs_and_ends() -> None:
    assert of([0.99] * 4, [1, 1, 0, 0])["signed ECE"] == pytest.approx(0.49)
    assert of([0.55] * 4, [1, 1, 1, 1])["signed ECE"] == pytest.approx(-0.45)
    assert np.isnan(of([0.5], [1])["Acc-90"])
    assert np.isnan(of([0.5], [1])["Unc-90"])


def test_scores_that_overflow_elsewhere() -> None:
    found = measured(
        score_images(torch.tensor([[0.0, 2000.0], [2000.0, 0.0]]), torch.tensor([0, 0]))
    )
    assert found["NLL"] == 1000
    assert found["plain ECE"] == 0.5


def test_untrained_is_exactly_at_chance() -> None:
    """Ten equal scores are a confidence of 0.1, which is the second bin's."""
    found = score_images(torch.zeros(3, 10), torch.tensor([0, 1, 2]))
    assert bin_index(found["confidence"], 10).tolist() == [1, 1, 1]


def test_accumulation_over_batches() -> None:
    """The mean of the batches' ECEs would be another number."""
    data = vitreous.data.load("world:shapes", split="test", size=90)
    found = vitreous.inspect("nano:vit@warmup", data, ["calibration"], shard=20, device="cpu")[
        "calibration"
    ]
    with torch.no_grad():
        shares = (
            load_model("nano:vit@warmup")(data.normalise(data.images)).double().softmax(1).numpy()
        )
    expected = ece_by_hand(shares.max(1), (shares.argmax(1) == data.labels.numpy()).astype(float))
    overall = found.table[found.table["overall"]].set_index("measure")
    assert overall.loc[["plain ECE", "signed ECE"], "value"].to_list() == pytest.approx(
        expected, abs=1e-5
    )
    assert (overall["n"] == 90).all()
    bins = found.table[found.table["binned"]]
    assert len(bins) == 10
    assert bins["share"].sum() == pytest.approx(1)
    assert bins["n"].sum() == 90
    gap = (bins["share"] * bins["value"]).sum()
    assert gap == pytest.approx(overall.loc["signed ECE", "value"])


def test_other_bins() -> None:
    found = vitreous.inspect(vit(), images(30), {"calibration": {"bins": 4}}, device="cpu")[
        "calibration"
    ]
    assert found.table.query("binned")["bin"].tolist() == [
        "0 to 0.25",
        "0.25 to 0.5",
        "0.5 to 0.75",
        "0.75 to 1",
    ]
    with pytest.raises(
        VitreousError, match=r"calibration\.bins=0 was set; it takes numbers from 1"
    ):
        vitreous.inspect(vit(), images(3), {"calibration": {"bins": 0}}, device="cpu")


def test_resamplings_are_those_of_the_intervals() -> None:
    result = vitreous.inspect(
        "nano:vit@warmup", "world:shapes", ["calibration"], limit=40, device="cpu"
    )["calibration"]
    table = result.table[result.table["overall"]].set_index("measure")
    kept = dict(zip(result.table["measure"], result.draws().T, strict=True))
    for measure in table.index:
        value, *drawn = kept[measure]
        if np.isnan(value):
            continue
        known = np.array(drawn)[np.isfinite(drawn)]
        if measure in ("Brier", "NLL"):
            expected = from_replicates(value, known, 40)
            np.testing.assert_allclose(
                table.loc[measure, ["low", "high"]].tolist(), expected[1:], rtol=1e-3
            )
        if measure != "plain ECE":  # whose resamplings add the bias once more
            assert abs(known.mean() - value) <= 0.6 * known.std()


def test_shares_have_wilsons_interval_also_where_all_or_none_are_right() -> None:
    """Confidences of 0.95 and 0.5, all of them right, and then all of them wrong."""
    for right in (1.0, 0.0):
        count = np.array([[20.0, 30.0]])
        sums = {
            "count": count,
            "confidence": count * [0.5, 0.95],
            "square": count * [0.25, 0.9025],
            "right": right * count,
        }
        gaps = count * [(0.5 - right) ** 2, (0.95 - right) ** 2]
        rest = {
            "brier": count,
            "nll": count,
            "sure": count * [0, 1],
            "sure_right": right * count * [0, 1],
        }
        every = {
            name: np.repeat(each, 201, 0)
            for name, each in {**sums, "gap_square": gaps, **rest}.items()
        }
        found = {name: interval for name, (interval, _) in every_measure(every).items()}
        assert found["Acc-90"] == pytest.approx(wilson(30 * right, 30))
        assert found["Freq-90"] == pytest.approx(wilson(30, 50))
        assert found["Unc-90"] == pytest.approx(
            wilson(20, 50) if right == 0 else [np.nan] * 3, nan_ok=True
        )
        assert found["signed ECE"].high - found["signed ECE"].low > 0.02
        assert found["ECE"].low <= found["ECE"].mean <= found["ECE"].high


def test_bins_have_the_intervals_of_shares() -> None:
    result = vitreous.inspect(
        "nano:vit@warmup", "world:shapes", ["calibration"], limit=60, device="cpu"
    )["calibration"]
    bins = result.table[result.table["binned"] & result.table["filled"]]
    for _, row in bins.iterrows():
        share, accuracy = wilson(row["n"], 60), wilson(round(row["accuracy"] * row["n"]), row["n"])
        assert row[["share", "share_low", "share_high"]].tolist() == pytest.approx(list(share))
        assert row[["accuracy", "accuracy_low", "accuracy_high"]].tolist() == pytest.approx(
            list(accuracy)
        )
        assert row["low"] == pytest.approx(row["confidence"] - accuracy.high)
        assert row["low"] < row["value"] < row["high"]
