"""A result holds what it says, and refuses what it cannot hold, in one sentence."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vitreous
from results.conftest import distances, similarity
from vitreous.errors import VitreousError
from vitreous.results import UNIT_COLUMNS, Column, Result, View, estimate

VALUE = Column("value", "quantity", "A value.")


def test_importing_results_imports_no_heavy_packages() -> None:
    script = (
        "import sys, vitreous.results; "
        "print({'torch', 'pandas', 'matplotlib', 'altair', 'scipy', 'numpy'} & set(sys.modules)); "
        "vitreous.results.Result, vitreous.results.View; print({'torch', 'pandas', 'altair'} & "
        "set(sys.modules))"
    )
    source = Path(vitreous.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=source
    )
    assert done.stdout.split("\n")[:2] == ["set()", "set()"]


def test_columns_have_a_fixed_order() -> None:
    table = pd.DataFrame(
        {
            "n": [3],
            "value": [1.0],
            "head": [0],
            "depth": [0.5],
            "model": ["vit"],
            "low": [0.0],
            "high": [2.0],
        }
    )
    columns = (
        *estimate("A value."),
        Column("head", "order", "The head."),
        UNIT_COLUMNS[4],
        UNIT_COLUMNS[0],
    )
    result = Result("thing", table, columns)
    assert (
        list(result.table)
        == [c.name for c in result.columns]
        == ["model", "depth", "head", "value", "low", "high", "n"]
    )


def test_a_result_does_not_change_with_the_frame_it_was_made_of() -> None:
    table = pd.DataFrame({"value": [1.0, 2.0]})
    result = Result("thing", table, (VALUE,))
    table.loc[0, "value"] = 9.0
    frame = result.to_frame()
    frame.loc[1, "value"] = 9.0
    assert result.table["value"].tolist() == [1.0, 2.0]


def test_axis_titles_have_their_measure() -> None:
    assert estimate("x", label="distance", measure="pixels")[0].title == "distance (pixels)"
    assert Column("top_5", "quantity", "x").title == "top 5"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": (VALUE, Column("head", "order", "x"))}, "declared but not in the table: head"),
        (
            {"table": pd.DataFrame({"value": [1.0], "extra": [2]})},
            "in the table but not declared: extra",
        ),
        ({"columns": (VALUE, VALUE)}, "one is there twice"),
        ({"table": pd.DataFrame({"value": [1.0, 2.0]}, index=[3, 3])}, "have the same index"),
        ({"table": pd.DataFrame({"value": ["a"]})}, "is a quantity and holds"),
        ({"table": pd.DataFrame({"value": [True]})}, "is a quantity and holds bool"),
        ({"views": (View("line", "valu", "value"),)}, "the view's x.*'valu'.*Did you mean value"),
        ({"views": (View("lin", "value", "value"),)}, "no mark 'lin'.*Did you mean line"),  # type: ignore[arg-type]
        ({"views": (View("line", "value"),)}, "A line view lacks y"),
        ({"views": (View("heatmap", "value", "value"),)}, "A heatmap view lacks colour"),
        ({"views": (View("line", "value", "value", low="value"),)}, "lacks one of low and high"),
        ({"views": (View("line", "value", "value", bands=True),)}, "has bands over 'value'"),
        (
            {"views": (View("tiles", array="map"),), "arrays": {"maps": np.zeros((1, 2, 2))}},
            "'map'.*Did you mean maps",
        ),
        (
            {"views": (View("tiles", array="m"),), "arrays": {"m": np.zeros((2, 2, 2))}},
            "2 images and the table 1",
        ),
        ({"arrays": {"names": np.array(["a"])}}, "'names' holds <U1"),
        ({"about": {"seed": np.float32(1)}}, "does not fit into JSON: Object of type float32"),
        ({"about": {"loss": float("nan")}}, "does not fit into JSON"),
    ],
)  # fmt: skip
def test_inconsistent_tables_and_columns_are_refused(change: dict[str, Any], message: str) -> None:
    given = {
        "name": "thing",
        "table": pd.DataFrame({"value": [1.0]}),
        "columns": (VALUE,),
        **change,
    }
    with pytest.raises(VitreousError, match=message):
        Result(**given)


def test_a_column_has_a_name_that_charts_can_use() -> None:
    with pytest.raises(VitreousError, match=r"'a\.b'"):
        Column("a.b", "quantity", "x")
    with pytest.raises(VitreousError, match="is a 'number'"):
        Column("a", "number", "x")  # type: ignore[arg-type]


def test_values_as_a_dense_array() -> None:
    result = distances("vit", "convit")
    dense = result.to_numpy("model", "unit", "head")
    expected = np.array([[[10.0 * b + h for h in range(2)] for b in range(3)]] * 2)
    np.testing.assert_array_equal(dense, expected)
    np.testing.assert_array_equal(result.to_numpy(), expected.ravel())
    with pytest.raises(VitreousError, match=r"Several rows .* share one model, unit"):
        result.to_numpy("model", "unit")
    with pytest.raises(VitreousError, match=r"no column 'heads'\. Did you mean head"):
        result.to_numpy("heads")
    holes = replace(result, table=result.table.drop(index=0).reset_index(drop=True))
    assert np.isnan(holes.to_numpy("model", "unit", "head")).sum() == 1


def test_equality_is_of_content() -> None:
    one = distances("vit")
    assert one == distances("vit")
    assert one == replace(one, about={**one.about, "seconds": 99, "date": "tomorrow"})
    assert similarity() == similarity(), "NaN equals NaN"
    changed = one.to_frame()
    changed["value"] += 1e-12
    for other in (
        replace(one, table=changed),
        replace(one, table=one.table.astype({"n": "int32"})),
        replace(one, about={**one.about, "seed": 1}),
        replace(one, views=one.views[:1]),
        replace(one, arrays={"maps": np.zeros(2)}),
        replace(one, name="other"),
    ):
        assert one != other
    assert replace(one, arrays={"a": np.zeros(2)}) != replace(
        one, arrays={"a": np.zeros(2, dtype=np.float32)}
    )
    assert one != 3


def test_repr_is_one_line() -> None:
    assert repr(similarity()) == "Result('cka': 16 rows of unit, other, value)"
    assert repr(distances("a", "b")).endswith("n, 2 models)")


def test_a_view_that_is_not_there() -> None:
    with pytest.raises(VitreousError, match="has 2 views, counted from 0, and none is view 2"):
        similarity().view(2)
