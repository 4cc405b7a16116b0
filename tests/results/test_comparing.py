"""Which models are tied: differences are paired, because models see the same images."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, ttest_rel

from vitreous import Result
from vitreous.results import Column, Replicates
from vitreous.results.comparing import list_by_model, mean_by_model, pair_models, rank_models
from vitreous.results.intervals import Interval
from vitreous.results.words import format_percent

IMAGES = 64


def measured(**values: np.ndarray) -> Result:
    """A result on the mean over images of one value per image, for every model."""
    generator = np.random.default_rng(0)
    times = generator.multinomial(IMAGES, np.full(IMAGES, 1 / IMAGES), size=400) / IMAGES
    reach = {name: 1.96 * each.std(ddof=1) / IMAGES**0.5 for name, each in values.items()}
    table = pd.DataFrame(
        {
            "model": list(values),
            "value": [each.mean() for each in values.values()],
            "low": [each.mean() - reach[name] for name, each in values.items()],
            "high": [each.mean() + reach[name] for name, each in values.items()],
            "n": IMAGES,
        },
        index=[7 + 3 * number for number in range(len(values))],  # as after a selection of rows
    )
    columns = (
        Column("model", "category", "The model."),
        *(Column(name, "quantity", "A number.") for name in ("value", "low", "high", "n")),
    )
    drawn = np.stack([times @ each for each in values.values()])
    return Result(
        "made", table, columns, replicates={"value": Replicates.of(table["value"], drawn)}
    )


def sentence(result: Result, *, share: bool = False, alone: bool = False) -> str:
    paired = None if alone else pair_models(result, result.table, share=share)
    means = mean_by_model(result.table)
    return rank_models(means, "{model} most", "{model} least", "{models} tied", paired=paired)


def test_a_difference_is_certain_where_a_paired_test_says_so() -> None:
    generator = np.random.default_rng(1)
    images = generator.normal(size=IMAGES)
    wrong = 0
    for shift in np.linspace(0.0, 0.3, 31):
        other = images + shift + 0.3 * generator.normal(size=IMAGES)
        found = sentence(measured(one=images, other=other))
        p = ttest_rel(images, other).pvalue
        assert "tied" in sentence(measured(one=images, other=other), alone=True)
        if not 0.03 < p < 0.07:  # replicates are random, and their skewness counts
            wrong += ("tied" not in found) != (p < 0.05)
    assert wrong == 0


@pytest.mark.parametrize(
    ("gained", "lost"), [(0, 0), (3, 0), (4, 0), (6, 0), (7, 1), (5, 2), (9, 1), (10, 4), (20, 8)]
)
def test_shares_are_compared_by_the_images_that_change(gained: int, lost: int) -> None:
    one, other = np.ones(IMAGES), np.ones(IMAGES)
    one[:gained] = 0
    other[gained : gained + lost] = 0
    exact = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    found = sentence(measured(one=one, other=other), share=True)
    assert ("tied" not in found) == (exact < 0.05), f"exact p = {exact:.3f}"
    if gained + lost:
        assert found.endswith("(no certain difference).") == (exact >= 0.05)


def test_a_model_without_replicates_is_compared_by_its_interval() -> None:
    result = measured(one=np.linspace(0, 1, IMAGES), other=np.linspace(0, 1.01, IMAGES))
    deviations = result.replicates["value"].deviations.copy()
    assert "tied" not in sentence(result)
    deviations[1] = np.nan
    spread = result.replicates["value"].spread
    bare = Result(
        "made", result.table, result.columns, replicates={"value": Replicates(deviations, spread)}
    )
    assert "tied" in sentence(bare)


def test_with_three_models_the_middle_is_tied_with_whom_it_does_not_differ_from() -> None:
    base = np.random.default_rng(2).normal(size=IMAGES)
    noise = np.random.default_rng(3).normal(size=IMAGES)
    found = sentence(measured(low=base, near=base - 0.05 * noise, high=base + 1.0))
    assert found == "<b>high</b> most; <b>low</b> and <b>near</b> least."


def test_values_that_look_alike_are_not_compared() -> None:
    """A difference of less than the digits show is certain, and nothing to tell a reader."""
    images = np.random.default_rng(4).normal(3.0, 1.0, IMAGES)
    result = measured(one=images, other=images + 1e-5)
    means = mean_by_model(result.table)
    paired = pair_models(result, result.table)
    assert paired is not None
    assert paired.differ("one", "other")
    said = rank_models(means, "{model} most, {}", "{model} least, {}", "{models}: {} to {}",
                       paired=paired)  # fmt: skip
    assert said.startswith("The two: ")
    assert said.count("(") == 2, "one value with its interval"
    assert said.endswith("(they differ by less than these digits show).")


def test_of_tied_values_that_look_alike_the_wider_interval_is_named() -> None:
    means = {"one": Interval(0.0001, 0.0, 0.017), "other": Interval(0.0, 0.0, 0.052)}
    said = rank_models(means, "", "", "{models}: {} to {}", format_percent)
    assert said == "The two: 0.0\u00a0% (0.0 to 5.2) (their intervals overlap)."


def test_many_ties_are_counted() -> None:
    means = {name: Interval(1.0 + place / 100, 0.5, 1.5) for place, name in enumerate("abcdef")}
    said = rank_models({**means, "low": Interval(0, 0, 0.1)}, "{model} most", "{model} least", "")
    assert said == "<b>f</b> and 5 others most; <b>low</b> least."


def test_ties_are_named_before_what_they_are_tied_on() -> None:
    """With the values in the order of the names, verbs in the plural, and each model once."""
    means = {"a": Interval(9, 8, 10), "b": Interval(8.5, 8, 9), "low": Interval(0, 0, 0.1)}
    words = "{model} [has|have] most, {}", "{model} least, {}", ""
    show = "{:.1f}".format
    said = rank_models(means, *words, lambda value, low, high: show(value))
    assert said == "<b>a</b> and <b>b</b> have most, 9.0 and 8.5; <b>low</b> least, 0.0."
    equal = {**means, "b": means["a"]}
    said = rank_models(equal, *words, lambda value, low, high: show(value))
    assert said == "<b>a</b> and <b>b</b> have most, 9.0; <b>low</b> least, 0.0."
    many = {name: Interval(9 - place / 10, 8, 10) for place, name in enumerate("abcdef")}
    said = rank_models({**many, "z": means["low"]}, *words, lambda value, low, high: show(value))
    assert said == "<b>a</b> and 5 others have most, 9.0 to 8.5; <b>z</b> least, 0.0."
    del means["b"]
    said = rank_models(means, *words, lambda value, low, high: show(value))
    assert said == "<b>a</b> has most, 9.0; <b>low</b> least, 0.0."


def test_a_model_that_is_tied_with_both_ends_is_neither() -> None:
    means = {"a": Interval(9, 8, 10), "b": Interval(5, 1, 9), "c": Interval(0, 0, 2)}
    said = rank_models(means, "{model} most", "{model} least", "")
    assert said == "<b>b</b> is tied with <b>a</b> and <b>c</b>. <b>a</b> most; <b>c</b> least."


def test_a_model_without_a_value_ties_no_others() -> None:
    """Its rows count no images, which is not the number of images that the others saw."""
    images = np.random.default_rng(5).normal(size=IMAGES)
    result = measured(low=images, high=images + 5.0, none=images)
    table = result.table.copy()
    table.loc[table["model"] == "none", ["value", "low", "high", "n"]] = [np.nan] * 3 + [0]
    bare = Result("made", table, result.columns, replicates=result.replicates)
    assert sentence(bare) == "<b>high</b> most; <b>low</b> least."


def test_few_models_are_listed_and_of_many_the_ends_are_named() -> None:
    values = {name: float(place) for place, name in enumerate("bcade")}
    texts = {name: f"{value:.0f}" for name, value in values.items()}
    few = dict(list(texts.items())[:2])
    assert list_by_model(few, values) == "0 in <b>b</b> and 1 in <b>c</b>"
    assert list_by_model(texts, values) == "from 0 in <b>b</b> to 4 in <b>e</b>"
