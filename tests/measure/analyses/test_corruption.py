"""CorruptionAnalysis against plain loops: images corrupted beforehand, answers counted, calibration
asked of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import vitreous
from measure.analyses.shifted import Linear, answered, chosen, levels
from vitreous.data.corruptions import corrupt
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.analyses.corruption import CorruptionAnalysis

QUICK: dict[str, Any] = {"kinds": ("gaussian_noise", "contrast", "saturate"), "severities": (1, 5)}

KINDS, SEVERITIES = ("gaussian_noise", "contrast", "fog", "saturate"), (2, 5)
MODELS = {"one": Linear(side=16), "two": Linear(side=16, seed=3)}


def asked(**how: Any) -> tuple[Any, Any]:
    data = answered(MODELS["one"], 60, 16)
    return CorruptionAnalysis(KINDS, SEVERITIES)(MODELS, data, **how), chosen(data)


def right(model: str, data: Any, kind: str, severity: int) -> np.ndarray:
    with torch.no_grad():
        scores = MODELS[model](levels(corrupt(data.images, kind, severity)))
    return (scores.argmax(1) == data.labels).double().numpy()


def one(table: Any, **where: Any) -> Any:
    for column, value in where.items():
        table = table[table[column].isna() if value is None else table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


def test_every_kind_and_severity_against_loops() -> None:
    found, data = asked()
    with torch.no_grad():
        clean = float((MODELS["two"](levels(data.images)).argmax(1) == data.labels).double().mean())
    for kind in KINDS:
        for severity in SEVERITIES:
            row = one(found.table, model="two", kind=kind, severity=severity, by_severity=False)
            share = right("two", data, kind, severity).mean()
            assert row["value"] == pytest.approx(share)
            assert row["change"] == pytest.approx(share - clean)
            assert row["low"] < row["value"] < row["high"]
        row = one(found.table, model="two", kind=kind, severity=None)
        assert row["value"] == pytest.approx(
            np.mean([right("two", data, kind, s).mean() for s in SEVERITIES])
        )


def test_means_leave_the_extra_kinds_out_and_mce_is_relative_to_the_first() -> None:
    found, data = asked()
    errors = {
        (model, kind): sum(1 - right(model, data, kind, s).mean() for s in SEVERITIES)
        for model in MODELS
        for kind in KINDS
    }
    row = one(found.table, model="two", overall=True)
    ratios = [errors["two", kind] / errors["one", kind] for kind in KINDS[:3]]
    assert row["ce"] == pytest.approx(np.mean(ratios))
    assert row["value"] == pytest.approx(
        1 - np.mean([errors["two", kind] / 2 for kind in KINDS[:3]])
    )
    assert one(found.table, model="one", overall=True)["ce"] == pytest.approx(1)
    assert found.about["reference"] == "one"
    extra = one(found.table, model="two", kind="saturate", severity=None)
    assert extra["ce"] == pytest.approx(errors["two", "saturate"] / errors["one", "saturate"])


def test_calibration_equals_the_probe_on_corrupted_images() -> None:
    found, data = asked()
    shifted = replace(data, images=corrupt(data.images, "contrast", 5))
    probe = vitreous.inspect({"two": MODELS["two"]}, shifted, ["calibration"])["calibration"].table
    row = one(found.table, model="two", kind="contrast", severity=5, by_severity=False)
    for measure, column in (("ECE", "ece"), ("NLL", "nll")):
        assert row[column] == pytest.approx(float(one(probe, measure=measure)["value"]), rel=1e-6)


def test_the_interval_of_a_change_is_paired() -> None:
    """Of nine images whose answers stay as they are, one more that rises and one that falls: no
    width would say that no image at all changes."""
    model = Linear()
    data = answered(model)
    found = CorruptionAnalysis(("brightness",), (1,))(
        model, replace(data, images=data.images * 0 + 255), limit=9
    ).table
    row = one(found, kind="brightness", severity=1, by_severity=False)
    reach = 1.959964 * math.sqrt(2 / 11) / math.sqrt(11)
    assert row[["change", "change_low", "change_high"]].tolist() == pytest.approx(
        [0, -reach, reach], rel=1e-6
    )
    clean = one(found, kind="clean")
    assert (clean["change"], clean["change_low"], clean["change_high"]) == (0, 0, 0)
    assert row["high"] - row["low"] > 0.1


def test_a_mean_has_an_interval_even_where_all_is_right() -> None:
    white = torch.full((20, 3, 16, 16), 255, dtype=torch.uint8)
    data = replace(
        answered(MODELS["one"], 20, 16), images=white, labels=MODELS["one"](levels(white)).argmax(1)
    )
    row = one(CorruptionAnalysis(("brightness",), (1, 2))(MODELS["one"], data).table, overall=True)
    assert row["value"] == row["high"] == 1
    assert row["low"] == pytest.approx(1 / (1 + 1.96**2 / 20), rel=1e-4)  # Wilson's for 20 of 20


def test_another_reference_and_one_without_mistakes() -> None:
    data = answered(MODELS["one"], 60, 16)
    found = CorruptionAnalysis(KINDS, SEVERITIES, reference="two")(MODELS, data)
    assert one(found.table, model="two", overall=True)["ce"] == pytest.approx(1)
    white = torch.full_like(data.images, 255)  # which brightness leaves as it is
    perfect = replace(data, images=white, labels=MODELS["one"](levels(white)).argmax(1))
    same = CorruptionAnalysis(("brightness",), (1,))(MODELS, perfect)
    assert "no error on brightness" in same.about["left_out"]["mCE"]
    assert np.isnan(one(same.table, model="two", overall=True)["ce"])


def test_bad_options() -> None:
    with pytest.raises(UnknownName, match="fogg"):
        CorruptionAnalysis(("fogg",))
    with pytest.raises(VitreousError, match="1 to 5"):
        CorruptionAnalysis(severities=(0, 1))
    with pytest.raises(VitreousError, match="none twice"):
        CorruptionAnalysis(severities=(1, 1))
    with pytest.raises(UnknownName, match="strengths"):
        CorruptionAnalysis(strengths="large")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="three"):
        CorruptionAnalysis(("fog",), (1,), reference="three")(
            MODELS, answered(MODELS["one"], 8, 16)
        )
