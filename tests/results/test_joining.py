"""Results of several models become one, and nothing is lost or mixed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from results.conftest import distances, filters, similarity
from vitreous.errors import VitreousError
from vitreous.results import Column, Result


def test_two_models_joined_are_two_models_measured_together() -> None:
    joined = Result.join([distances("vit"), distances("convit")])
    assert joined == distances("vit", "convit")
    assert joined.about["seconds"] == 3.0


def test_metadata_of_joined_results_is_merged() -> None:
    one = replace(
        distances("a"),
        about={"data": "world", "ids": ["A4.18"], "left_out": {"a": {"stem": "no attention"}}},
    )
    other = replace(
        distances("b"),
        about={"data": "world", "ids": ["A4.18", "A4.19"], "left_out": {"b": {}}, "seed": 1},
    )
    about = Result.join([one, other]).about
    assert about == {
        "data": "world", "ids": ["A4.18", "A4.19"],
        "left_out": {"a": {"stem": "no attention"}, "b": {}}, "seed": 1,
    }  # fmt: skip


def test_categories_stay_categories() -> None:
    def made(*levels: str) -> Result:
        table = pd.DataFrame({"size": pd.Categorical(levels, list(levels), ordered=True)})
        return Result("x", table, (Column("size", "order", "Size."),))

    joined = Result.join([made("small", "large"), made("large", "huge")]).table["size"]
    assert list(joined.cat.categories) == ["small", "large", "huge"]
    assert joined.cat.ordered
    assert joined.tolist() == ["small", "large", "large", "huge"]


def test_arrays_are_concatenated() -> None:
    joined = Result.join([filters(), filters()])
    assert joined.arrays["tiles"].shape == (10, 6, 6, 3)
    plain = replace(filters(), views=())
    wider = replace(plain, arrays={"tiles": np.zeros((5, 7, 7, 3))})
    with pytest.raises(VitreousError, match=r"'tiles' of shapes \(5, 6, 6, 3\), \(5, 7, 7, 3\)"):
        Result.join([plain, wider])


def test_unlike_results_are_not_joined() -> None:
    with pytest.raises(
        VitreousError, match="'attention_distance' and 'cka' are of different measurements"
    ):
        Result.join([distances("vit"), similarity()])
    one = similarity()
    renamed = replace(
        one, columns=tuple(replace(c, measure="%") if c.name == "value" else c for c in one.columns)
    )
    with pytest.raises(VitreousError, match=r"differ in their columns \(value\)"):
        Result.join([one, renamed])
    with pytest.raises(VitreousError, match="nothing to join"):
        Result.join([])
