"""Sections of measurements, and the sentences that sum up results: from tables small enough to
read."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest

from vitreous import Inspection, Result
from vitreous.measure import analyses, probes
from vitreous.measure.report_section import sentences_of
from vitreous.report import overview
from vitreous.report.guard import Guard
from vitreous.results import Column, Interval
from vitreous.results.comparing import disjoint, rank_models
from vitreous.results.words import (
    format_estimate,
    format_interval,
    format_number,
    format_percent,
    join_words,
)


def made(name: str, rows: list[dict[str, Any]], **about: Any) -> Result:
    table = pd.DataFrame(rows)
    numeric = table.select_dtypes("number").columns
    columns = tuple(
        Column(c, "quantity" if c in numeric else "category", "A column.") for c in table.columns
    )
    return Result(name, table, columns, about=about)


def text_of(result: Result) -> str:
    return re.sub(r"</?(b|code)>", "", " ".join(sentences_of(result))).replace("\u00a0", " ")


def accuracies(**right: tuple[float, float, float]) -> Result:
    return made(
        "accuracy",
        [
            {
                "model": model,
                "measure": measure,
                "overall": overall,
                "value": v,
                "low": low,
                "high": high,
            }
            for model, (v, low, high) in right.items()
            for measure, overall in (("top-1", True), ("top-5", True), ("top-1", False))
            for v, low, high in [
                (v, low, high) if measure == "top-1" and overall else (1.0, 1.0, 1.0)
            ]
        ],
    )


def test_best_and_worst_are_named_where_their_intervals_are_disjoint() -> None:
    found = text_of(accuracies(vit=(0.9, 0.88, 0.92), net=(0.5, 0.45, 0.55), mid=(0.7, 0.68, 0.72)))
    assert found == (
        "vit has the highest accuracy, 90.0 % (88.0 to 92.0); net the lowest, 50.0 % (45.0 to "
        "55.0)."
    )


def test_models_are_tied_where_intervals_overlap() -> None:
    found = text_of(accuracies(vit=(0.9, 0.8, 1.0), net=(0.85, 0.75, 0.95)))
    assert found == (
        "The two are tied on accuracy, with 85.0 % (75.0 to 95.0) to 90.0 % (80.0 to 100.0) of the "
        "images right (their intervals overlap)."
    )


def test_models_tied_with_the_best_are_named() -> None:
    found = text_of(
        accuracies(vit=(0.9, 0.88, 0.92), net=(0.5, 0.45, 0.55), twin=(0.89, 0.87, 0.91))
    )
    assert found.startswith(
        "vit and twin have the highest accuracy, 90.0 % (88.0 to 92.0) and 89.0 % (87.0 to 91.0); "
        "net the lowest, "
    )


@pytest.mark.parametrize(
    ("speeds", "words"),
    [
        ({"a": 900}, "a needs 1.00 GFLOPs per image; here it ran at 900 images per second"),
        ({"a": 900, "b": 500}, "a was the fastest here, 900 images per second ("),
        (
            {"a": 900, "b": 895, "c": 500},
            "a and b were the fastest here, 895 to 900 images per second; their single passes",
        ),
        (
            {"a": 900, "b": 895, "c": 900, "d": 890, "e": 892, "f": 500},
            "a and 4 others were the fastest here, 890 to 900 images per second;",
        ),
        ({"a": 900, "b": 895}, "here they ran at 895 to 900 images per second"),
    ],
)
def test_the_fastest_models_are_named_together(speeds: dict[str, float], words: str) -> None:
    rows = [
        {"model": name, "gflops": 1.0, "value": speed, "low": speed - 9, "high": speed + 9}
        for name, speed in speeds.items()
    ]
    assert words in text_of(made("cost", rows))


def test_heads_that_focus_alike_are_named_together() -> None:
    blank = {"unit": "attn", "model": "vit", "uniform": 4.0}
    rows = [
        {**blank, "head": head, "value": bits, "low": bits - 0.2, "high": bits + 0.2,
         "relative": bits / 4}
        for head, bits in enumerate((3.0, 1.1, 1.0))
    ]  # fmt: skip
    text = text_of(made("attention_entropy", rows))
    assert text.startswith("Head 2 of attn in vit and head 1 of attn in vit focus most: the first")
    assert text_of(made("attention_entropy", rows[:2])).startswith(
        "The most focused head is head 1"
    )


def test_without_intervals_nothing_is_disjoint() -> None:
    unknown = float("nan")
    assert not disjoint(Interval(1.0, unknown, unknown), Interval(0.0, unknown, unknown))
    assert text_of(accuracies(vit=(0.9, unknown, unknown))) == "vit has 90.0 % of the images right."


def test_a_name_is_escaped() -> None:
    [sentence] = sentences_of(accuracies(**{"<script>alert(1)</script>": (0.9, 0.88, 0.92)}))
    assert "<script>" not in sentence
    assert "<b>&lt;script&gt;" in sentence


def test_units_count_only_if_the_interval_excludes_no_change() -> None:
    ends_ = [
        ("attention", 0.8, 0.9),
        ("attention", 0.7, 1.1),
        ("attention", 1.2, 1.3),
        ("mlp", 1.1, 1.2),
        ("mlp", 2, 3),
    ]
    rows = [
        {"model": "vit", "kind": kind, "ratio_low": low, "ratio_high": high}
        for kind, low, high in ends_
    ]
    rows.append(
        {"model": "vit", "kind": "stem", "ratio_low": float("nan"), "ratio_high": float("nan")}
    )
    assert text_of(made("variance", rows)) == (
        "Attention lowers the variance of feature maps in 1 of 3 units and raises it in 1 "
        "(1 uncertain); MLPs lower it in 0 of 2 units and raise it in 2."
    )


def test_fine_detail_is_judged_at_the_highest_frequency_alone() -> None:
    rows = [
        {"model": "net", "kind": "conv", "highest": highest, "change_low": low, "change_high": high}
        for highest, low, high in ((True, 0.1, 0.2), (False, -2.0, -1.0), (True, -0.2, -0.1))
    ]
    found = text_of(made("fourier", rows))
    assert (
        found == "Convolutions weaken high-frequency detail in 1 of 2 units and strengthen it in 1."
    )


def test_distances_are_means_over_units_and_compared_with_uniform_attention() -> None:
    rows = [
        {"model": model, "unit": unit, "head": head, "uniform": 10.0, "relative": mean / 10,
         "mean": mean, "mean_low": mean - 1, "mean_high": mean + 1}
        for model, means in (("near", (1.0, 3.0)), ("far", (6.0, 8.0)))
        for unit, mean in enumerate(means)
        for head in range(2)
    ]  # fmt: skip
    assert text_of(made("attention_distance", rows)) == (
        "far attends farthest, on average 7.00 pixels (6.00 to 8.00; 70 % of uniform attention); "
        "near nearest, 2.00 pixels (1.00 to 3.00; 20 % of uniform attention)."
    )


def test_the_best_calibrated_has_the_smallest_error() -> None:
    rows = [
        {
            "model": model,
            "measure": measure,
            "overall": True,
            "value": v,
            "low": v - 0.01,
            "high": v + 0.01,
        }
        for model, v in (("vit", 0.05), ("net", 0.2))
        for measure, v in (("ECE", v), ("signed ECE", -v if model == "vit" else v))
    ]
    assert text_of(made("calibration", rows)) == (
        "vit is best calibrated, with an ECE of 5.0 % (4.0 to 6.0); net worst, with 20.0 % (19.0 "
        "to 21.0). Under-confident: vit. Over-confident: net."
    )


@pytest.mark.parametrize("other", ["stages", "thirds"])
def test_sentences_of_cka_are_about_stages_and_pairs(other: str) -> None:
    structure = ("block_structure", "block_structure_low", "block_structure_high")
    rows: list[dict[str, Any]] = [
        {"model": "a", "pair": pair, "within": False, "across": True, "value": v,
         "low": v - 0.05, "high": v + 0.05}
        for pair, v in (("a × b", 0.8), ("a × b", 0.6), ("a × c", 0.1))
    ]  # fmt: skip
    for model, v in (("a", 0.5), ("b", 0.1)):
        row = {"model": model, "pair": model, "within": True, "across": False, "value": 1.0,
               "groups": "stages" if model == "a" else other}  # fmt: skip
        rows.append({**row, **dict(zip(structure, (v, v - 0.1, v + 0.1), strict=True))})
    found = text_of(made("cka", rows))
    assert found.startswith("a has the clearest stages")
    assert "by 0.500 (0.400 to 0.600) from units of one stage to units of two; b is the" in found
    assert ("A model of one stage is split into thirds." in found) == (other == "thirds")
    assert (
        "a × b are the most similar, with a mean CKA of 0.700 (0.650 to 0.750) over all pairs of "
        "units; a × c the least, 0.100 (0.0500 to 0.150)" in found
    )


def test_cka_of_a_model_of_one_stage_speaks_of_thirds() -> None:
    structure = {"block_structure": 0.1, "block_structure_low": 0.0, "block_structure_high": 0.2}
    row = {"model": "a", "pair": "a", "within": True, "across": False, "value": 1.0}
    found = text_of(made("cka", [{**row, **structure, "low": 1, "high": 1, "groups": "thirds"}]))
    assert "stage" not in found
    assert "from units of one third of the depth to units of two" in found


def test_heads_that_attend_alike_are_not_called_focused() -> None:
    row = {"model": "a", "unit": "attn", "head": 3, "value": 5.999, "low": 5.998, "high": 6.0,
           "uniform": 6.0, "relative": 0.9998}  # fmt: skip
    assert text_of(made("attention_entropy", [row])).startswith("No head focuses: even head 3 of")
    row |= {"value": 3.0, "low": 2.9, "high": 3.1, "relative": 0.5}
    assert text_of(made("attention_entropy", [row])).startswith("The most focused head is head 3")


def test_layers_that_attend_as_far_are_not_compared() -> None:
    def said(far: float) -> str:
        units = (("x", 7.0), ("y", far))
        rows = [{"model": "a", "unit": u, "image": 0, "distance": v} for u, v in units]
        return text_of(made("attention_maps", rows)).replace("\u00a0", " ")

    assert said(8.0).startswith("In a x attends over 7.00 pixels and y over 8.00 pixels, mean")
    assert said(7.001).startswith("In a every layer attends over 7.00 pixels, mean over heads")


@pytest.mark.parametrize("name", [*probes.names(), *analyses.names()])
def test_a_result_that_lacks_columns_says_so(name: str) -> None:
    found = sentences_of(made(name, [{"model": "vit", "something": 1.0}]))
    assert len(found) == 1  # every measurement has sentences
    assert found[0].startswith(f"This result of {name} is from another version of Vitreous")
    assert "[" not in found[0]


def test_the_first_screen_has_three_sentences_linked_to_their_charts() -> None:
    found = {"accuracy": accuracies(vit=(0.9, 0.88, 0.92))}
    text = "".join(overview.overview_section(Inspection(found), ["vit"], Guard()))
    assert text.count("<li>") == 1
    assert 'href="#accuracy"' in text
    other = {"other": made("other", [{"model": "vit", "value": 1.0}])}
    assert "<li>" not in "".join(overview.overview_section(Inspection(other), ["vit"], Guard()))


def test_one_model_is_not_ranked() -> None:
    found = rank_models(
        {"a": Interval(1.0, 0.5, 1.5)},
        "{model} has {}",
        "{model} less, {}",
        "{models} alike",
        format_estimate,
        alone="{model} is {} long",
    )
    assert found == "<b>a</b> is 1.00 (0.500 to 1.50) long."
    plain = rank_models({"a": Interval(1.0, 0.5, 1.5)}, "{model} is best, {}", "", "")
    assert plain == "<b>a</b>: 1.00 (0.500 to 1.50).", "nothing is the best of one"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (12.345, "12.3"), (1234.5, "1,234"), (-0.5, "−0.500"), (0, "0"),
     (float("nan"), "–"), (1.5e-9, "1.50e−09"), (99.96, "100")],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert format_number(value) == text


def test_words() -> None:
    assert format_interval(0.9991, 0.9994) == "0.9991 to 0.9994"
    assert format_interval(0.9997, 1.0) == "0.9997 to 1.000", "1.00 to 1.00 does not tell"
    assert format_estimate(1.0, 1 - 1e-15, 1.0) == "1.00 (1.00 to 1.00)"
    assert [format_number(each) for each in (0.9996, 99.97, 9.994)] == ["1.00", "100", "9.99"]
    assert format_interval(float("nan"), 1) == ""
    assert format_percent(0.5, 0.4, 0.6) == "50.0\u00a0% (40.0 to 60.0)"
    assert format_estimate(3, 2, 4, "px") == "3.00\u00a0px (2.00 to 4.00)"
    assert (
        format_estimate(1.0021, 1.0011, 1.0031) == "1.002 (1.001 to 1.003)"
    )  # and not 1.00, outside of it
    assert [join_words(list(names)) for names in ("", "a", "ab", "abc")] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


def test_what_passes_with_dropout_gain_has_a_direction_only_where_zero_is_left_out() -> None:
    def row(model: str, nll: tuple[float, float, float], overall: bool = True) -> dict[str, Any]:
        ends = dict(zip(("nll_change", "nll_change_low", "nll_change_high"), nll, strict=True))
        points = {"change": 0.01, "change_low": -0.01, "change_high": 0.03}
        return {"model": model, "passes": 50, "overall": overall, **ends, **points}

    rows = [
        row("a", (-0.2, -0.3, -0.1)),
        row("b", (0.2, -0.1, 0.3)),
        row("c", (0.2, 0.1, 0.3)),
        row("c", (9.0, 8.0, 10.0), overall=False),
    ]
    text = text_of(made("mc_dropout", rows))
    assert (
        "50 passes with dropout changes the NLL of a by −0.200 (−0.300 to −0.100), an improvement"
        in text
    )
    assert (
        "NLL of b by 0.200 (−0.100 to 0.300), within chance, and its accuracy by 1.00 points"
        in text
    )
    assert "NLL of c by 0.200 (0.100 to 0.300), a deterioration" in text
    assert text.count("NLL") == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((0.1, 0.05, 0.2), "less than the best"),
        ((-0.1, -0.2, -0.05), "more than"),
        ((0.1, -0.1, 0.2), "tied with the best"),
    ],
)
def test_an_ensemble_is_compared_with_its_best_member(
    change: tuple[float, float, float], words: str
) -> None:
    blank = dict.fromkeys(("disagreement", "disagreement_low", "disagreement_high"), float("nan"))

    def one(
        part: str, model: str, nll: float, change: tuple[float, float, float] = (0.0, 0.0, 0.0)
    ) -> dict[str, Any]:
        ends = dict(zip(("nll_change", "nll_change_low", "nll_change_high"), change, strict=True))
        share = {
            "value": 0.9,
            "low": 0.8,
            "high": 0.95,
            "nll": nll,
            "nll_low": nll - 0.01,
            "nll_high": nll + 0.01,
        }
        return {
            "model": model,
            "other": "",
            "part": part,
            "single": True,
            "pair": False,
            **share,
            **ends,
            **blank,
        }

    pair = {**one("pair", "a", 0.0), "other": "b", "single": False, "pair": True}
    rows = [
        one("ensemble", "ensemble", 0.3), one("member", "a", 0.5, (9.0, 9.0, 9.0)),
        one("member", "b", 0.4, change), one("mean of members", "mean of members", 0.1),
        {**pair, "disagreement": 0.25, "disagreement_low": 0.2, "disagreement_high": 0.3},
        {
            **pair, "model": "b",
            "disagreement": 0.9, "disagreement_low": 0.9, "disagreement_high": 0.9,
        },
    ]  # fmt: skip
    text = text_of(made("ensemble", rows))
    assert text.startswith(
        "The mean of 2 models has 90.0 % (80.0 to 95.0) right and an NLL of 0.300 (0.290 to "
        "0.310), "
    )
    assert words in text
    assert "alone, b, with 0.400" in text
    assert "a and b disagree on 25.0 % (20.0 to 30.0) of the images." in text
    third = one("member", "c", 0.6, (9.0, 9.0, 9.0))
    assert "a and b disagree on 25.0 %" in text_of(made("ensemble", [*rows, third]))
    same = [{**row, "disagreement": 0.0 if row["pair"] else row["disagreement"]} for row in rows]
    assert "All members give the same answers." in text_of(made("ensemble", same))
