"""Bootstrap replicates: kept in little room, row by row, and good for any statistic of a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitreous
from vitreous.errors import VitreousError
from vitreous.measure.resampling import REPEATS, poisson_weights
from vitreous.results import (
    Column,
    Estimate,
    Replicates,
    Result,
    estimate,
    from_replicates,
    tabulate,
)

COLUMNS = (Column("unit", "category", "Which."), *estimate("A number."))
INTERVALS_OF_REPLICATES = (
    "variance",
    "skip_ratio",
    "fourier",
    "attention_distance",
    "attention_entropy",
    "cka",
)


def drawn(rows: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    values = generator.normal(size=rows) * 10.0 ** np.arange(rows)
    return values, values[:, None] * (1 + 0.1 * generator.normal(size=(rows, REPEATS)))


def result(rows: int = 5, seed: int = 0) -> Result:
    values, every = drawn(rows, seed)
    entries: list[dict[str, Any]] = [
        {"unit": f"{seed}.{i}", "value": Estimate(value, value - 1, value + 1, own), "n": 9}
        for i, (value, own) in enumerate(zip(values, every, strict=True))
    ]
    table, replicates = tabulate(entries, COLUMNS)
    return Result("one", table, COLUMNS, replicates=replicates)


def test_storage_error_is_below_a_two_thousandth_of_the_spread() -> None:
    values, every = drawn()
    kept = Replicates.of(values, every)
    assert kept.deviations.nbytes == 2 * every.size
    off = np.abs(kept.around(values) - every) / kept.spread[:, None]
    assert off.max() < 4 * 2.0**-11  # up to four spreads from the value, eleven bits
    np.testing.assert_allclose(kept.around(values).std(1), every.std(1), rtol=1e-3)


def test_missing_values_and_rows_without_spread() -> None:
    kept = Replicates.of([1.0, 2.0, np.nan], [[1.0, 1.0], [np.nan, 3.0], [np.nan, np.nan]])
    np.testing.assert_array_equal(kept.around([1.0, 2.0, np.nan])[0], [1, 1])
    np.testing.assert_array_equal(kept.around([1.0, 2.0, np.nan])[1], [np.nan, 3])
    assert np.isnan(kept.around([1.0, 2.0, np.nan])[2]).all()


def test_replicates_survive_saving_to_the_last_bit(tmp_path: Path) -> None:
    one = result()
    again = Result.load(one.save(tmp_path))
    assert again == one
    np.testing.assert_array_equal(again.draws(), one.draws())
    assert again != Result("one", one.table, COLUMNS)


def test_rows_of_several_results_and_some_of_them() -> None:
    one, two = result(3, 1), result(4, 2)
    both = Result.join([one, two])
    np.testing.assert_array_equal(both.draws(), np.concatenate([one.draws(), two.draws()], 1))
    chosen = np.array([True, False, False, True, False, True, False])
    np.testing.assert_array_equal(both.select(chosen).draws(), both.draws()[:, chosen])


def test_an_estimate_beside_plain_numbers() -> None:
    entries = [
        {"unit": "a", "value": Estimate(1.0, 0.0, 2.0, np.full(REPEATS, 3.0)), "n": 1},
        {"unit": "b", "value": 5.0, "low": 4.0, "high": 6.0, "n": 1},
    ]
    table, replicates = tabulate(entries, COLUMNS)
    assert table[["value", "low", "high"]].to_numpy().tolist() == [[1, 0, 2], [5, 4, 6]]
    found = Result("one", table, COLUMNS, replicates=replicates).draws()
    assert found[:, 0].tolist() == [1, *[3] * REPEATS]
    assert found[0, 1] == 5
    assert np.isnan(found[1:, 1]).all()


def test_missing_replicates_are_an_error() -> None:
    with pytest.raises(
        VitreousError, match=r"has no replicates of 'value' \(it has none\).*measure them again"
    ):
        Result("one", result().table, COLUMNS).draws()
    with pytest.raises(
        VitreousError, match=r"replicates of 'value' for 5 rows; its table has 4 rows"
    ):
        Result("one", result().table[:4], COLUMNS, replicates=result().replicates)


def test_any_statistic_has_the_replicates_that_resampling_images_gives() -> None:
    """The ratio of two units' variances, once from the result and once from the images, drawn by
    hand."""
    data = vitreous.data.load("world:shapes", split="test", size=40)
    found = vitreous.inspect("nano:vit", data, ["variance"], limit="all", device="cpu", shard=16)[
        "variance"
    ]
    ratio = found.draws()[:, 5] / found.draws()[:, 3]

    names = [found.table["unit"].iloc[place] for place in (5, 3)]
    specimen = vitreous.open("nano:vit")
    subject = vitreous.data.subsets.class_balanced_order(data.labels.numpy(), 0)
    shown = data.take(torch.from_numpy(subject))
    seen = specimen.observe(shown.normalise(shown.images), ("out",), names)
    each = []
    for name in names:
        feature = seen[name].out
        assert feature is not None
        each.append(feature.map.double().flatten(2).var(2).mean(1).numpy())
    weights = np.stack([poisson_weights([row], 0)[0] for row in range(40)], 1)
    by_hand = (weights @ each[0]) / (weights @ each[1])
    assert ratio[0] == pytest.approx(each[0].mean() / each[1].mean(), rel=1e-5)
    relative = sum(
        float(found.replicates["value"].spread[place]) / each[i].mean()
        for i, place in enumerate((5, 3))
    )
    np.testing.assert_allclose(
        ratio[1:], by_hand, atol=4 * 2.0**-11 * relative * ratio[0]
    )  # four spreads, eleven bits


@pytest.fixture(scope="module")
def measured() -> vitreous.Inspection:
    models = ["nano:vit", "nano:resnet"]
    return vitreous.inspect(
        models, "world:shapes", list(INTERVALS_OF_REPLICATES), limit=48, device="cpu"
    )


@pytest.mark.parametrize("name", INTERVALS_OF_REPLICATES)
def test_intervals_follow_from_the_replicates(name: str, measured: vitreous.Inspection) -> None:
    found = measured[name]
    for column in found.replicates:
        low, high = ("low", "high") if column == "value" else (f"{column}_low", f"{column}_high")
        drawn = found.draws(column)
        known = np.isfinite(drawn[0]) & np.isfinite(found.table[low])
        ends = from_replicates(
            drawn[0, known], drawn[1:, known], found.table["n"].to_numpy()[known]
        )
        width = (found.table[high] - found.table[low]).to_numpy()[known]
        for end, name_of_end in ((ends.low, low), (ends.high, high)):
            there = found.table[name_of_end].to_numpy()[known]
            inside = (
                np.abs(there) < 1 if name == "cka" else np.full(len(there), True)
            )  # CKA is cut at one
            assert np.all(np.abs(end - there)[inside] <= 2e-3 * width[inside] + 1e-12)
