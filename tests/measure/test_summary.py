"""The summary of an inspection has the numbers of its results."""

from __future__ import annotations

import pytest

import vitreous
from vitreous.measure.summary import left_out_lines


@pytest.fixture(scope="module")
def inspection() -> vitreous.Inspection:
    data = vitreous.data.load("world:shapes", split="test", size=16)
    probes = ["accuracy", "calibration", "cost", "gates"]
    return vitreous.inspect({"a_b": "nano:resnet"}, data, probes)


def test_a_row_for_each_model(inspection: vitreous.Inspection) -> None:
    summary = inspection.summary()
    [row] = summary.table.to_dict("records")
    anatomy = inspection.anatomies["a_b"]
    assert (row["model"], row["weights"]) == ("a_b", "trained")
    assert (row["units"], row["parameters"]) == (len(anatomy), anatomy.parameters)
    accuracy = inspection["accuracy"].table
    [top] = accuracy[accuracy["overall"] & (accuracy["measure"] == "top-1")].to_dict("records")
    for end, column in (("value", "accuracy"), ("low", "accuracy_low"), ("high", "accuracy_high")):
        assert row[column] == top[end]
    calibration = inspection["calibration"].table
    for measure in ("NLL", "ECE"):
        [found] = calibration[calibration["measure"] == measure].to_dict("records")
        assert row[measure.lower()] == found["value"]
    [cost] = inspection["cost"].table.to_dict("records")
    assert (row["gflops"], row["speed"]) == (cost["gflops"], cost["value"])


def test_only_what_was_measured(inspection: vitreous.Inspection) -> None:
    few = vitreous.Inspection({"cost": inspection["cost"]}, {}, inspection.anatomies)
    assert "accuracy" not in few.summary().table
    nothing = vitreous.Inspection({}, {}, inspection.anatomies)
    assert nothing.summary().table.columns.tolist() == ["model", "units", "parameters"]
    assert vitreous.Inspection({}).summary().table.empty


def test_as_latex(inspection: vitreous.Inspection) -> None:
    text = inspection.to_latex(["model", "accuracy"], interval="none")
    assert text.splitlines()[3:6] == [r"model & accuracy \\", r"\midrule", r"a\_b & $1.000$ \\"]
    assert r"GFLOPs & images/s, 95 \% interval & accuracy, 95 \%" in inspection.to_latex()


def test_what_was_left_out(inspection: vitreous.Inspection) -> None:
    [line] = left_out_lines(inspection)
    assert line.startswith("Left out: gates of a_b. It has no")
