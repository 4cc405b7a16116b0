"""Matrices, squares, densities, lying bars, free panels: with both drawing libraries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert

from results.conftest import distances, reliability
from results.test_charts import marks, rows_of, spec
from vitreous.errors import UnknownName
from vitreous.report.packing import chart_data
from vitreous.results import UNIT_COLUMNS, Column, Result, View, estimate

LONG = "vit_small_patch16_224.augreg_in21k_ft_in1k"


def pairs(*models: str) -> Result:
    """Two layers a model, compared with all layers of the same and of later models."""
    rows: list[dict[str, Any]] = []
    for i, one in enumerate(models):
        for j, other in enumerate(models[i:], i):
            pair = one if i == j else f"{one} × {other}"
            for layer in range(2):
                for other_layer in range(2):
                    value = (10 * i + j + layer + other_layer) / 100
                    rows.append({
                        "model": one, "layer": f"l{layer}", "other_model": other,
                        "other_layer": f"l{other_layer}", "pair": pair, "value": value,
                        "low": value - 0.1, "high": value + 0.3, "n": 8,
                    })  # fmt: skip
    columns = (
        UNIT_COLUMNS[0],
        Column("layer", "order", "A layer."),
        Column("other_model", "category", "The other model."),
        Column("other_layer", "order", "Its layer."),
        Column("pair", "category", "Both models."),
        *estimate("CKA.", label="CKA"),
    )
    views = (
        View("heatmap", "other_model", "model", "value", matrix=True, opens="pair"),
        View("heatmap", "other_layer", "layer", "value", facet="pair"),
    )
    return Result("cka", pd.DataFrame(rows), columns, views)


def test_a_matrix_has_the_means_of_both_models() -> None:
    result = pairs("a", "b", "c")
    whole = spec(result)
    [cells] = marks(whole, "rect")
    found = {(row["model"], row["other_model"]): row for row in rows_of(whole, cells)}
    assert len(found) == 9
    for one in "abc":
        for other in "abc":
            table = result.table
            both = table[
                (table["model"] == min(one, other)) & (table["other_model"] == max(one, other))
            ]
            row = found[one, other]
            assert row["value"] == pytest.approx(both["value"].mean())
            assert row["low"] == pytest.approx(both["low"].mean())
            assert row["pair"] == both["pair"].iloc[0]
    assert whole["encoding"]["x"]["sort"] == whole["encoding"]["y"]["sort"] == ["a", "b", "c"]
    [texts] = marks(whole, "text")
    assert texts["encoding"]["text"]["field"] == "value"
    _, ax = result.plot()
    drawn = ax.images[0].get_array()
    assert drawn[2, 0] == pytest.approx(found["a", "a"]["value"]), "a is on top"
    assert [text.get_text() for text in ax.texts].count("0.01") == 1


def test_a_matrix_of_two_kinds_of_models_is_not_mirrored() -> None:
    result = pairs("a", "b", "c")
    across = result.table["model"].isin(["a", "b"]) & (result.table["other_model"] == "c")
    whole = spec(replace(result, table=result.table[across]))
    assert len(rows_of(whole, marks(whole, "rect")[0])) == 2


def test_a_mark_leads_to_the_panels_with_its_entry() -> None:
    packed = chart_data(pairs("a", "b"), 0)
    assert packed["opens"] == {"column": "pair", "views": [1]}
    later = chart_data(pairs("a", "b"), 1)
    assert later["opens"] is None
    panels = [later["spec"]["datasets"][p["data"]["name"]] for p in later["spec"]["concat"]]
    assert [{row["pair"] for row in rows} for rows in panels] == [{"a"}, {"a × b"}, {"b"}]
    cells = packed["spec"]["datasets"]["rows0"]
    assert {row["pair"] for row in cells} == {"a", "a × b", "b"}


def test_numbers_of_a_page_have_six_digits() -> None:
    result = distances("vit")
    table = result.table.assign(value=np.pi * 1e-5)
    rows = chart_data(replace(result, table=table), 0)["spec"]["datasets"]["rows1"]
    assert rows[0]["value"] == 3.14159e-5


def test_a_square_has_the_same_limits_on_both_axes_and_counts_as_area() -> None:
    result = reliability()
    table = result.table.assign(n=[1, 2, 3, 4, 100] * 2, low=0.1, high=0.9)
    columns = (*result.columns, *(Column(name, "quantity", "x") for name in ("n", "low", "high")))
    view = View(
        "line", "confidence", "value", "model", size="n", low="low", high="high", limits=(0, 1),
        square=True,
    )  # fmt: skip
    square = Result("calibration", table, columns, (view,))
    whole = spec(square)
    assert whole["width"] == whole["height"]
    [points] = marks(whole, "point")
    assert points["encoding"]["x"]["scale"]["domain"] == [0, 1]
    assert points["encoding"]["y"]["scale"]["domain"] == [0, 1]
    assert points["encoding"]["size"]["field"] == "n"
    assert marks(whole, "rule")
    assert not marks(whole, "area"), "bins have an interval each, not a ribbon"
    _, ax = square.plot()
    assert ax.get_xlim() == ax.get_ylim() == (0, 1)
    assert ax.get_aspect() == 1
    sizes = ax.collections[1].get_sizes()
    assert sizes[4] == 96
    assert sizes[0] == pytest.approx(6.9)


def test_a_density_shows_its_mass() -> None:
    result = replace(
        distances("vit"), views=(View("line", "depth", "value", "model", filled=True),)
    )
    [area] = marks(spec(result), "area")
    assert area["encoding"]["y2"] == {"datum": 0.0}
    logged = replace(result, views=(replace(result.views[0], log=("y",)),))
    [area] = marks(spec(logged), "area")
    assert area["encoding"]["y2"]["datum"] == area["encoding"]["y"]["scale"]["domain"][0] > 0
    _, ax = logged.plot()
    assert ax.get_ylim()[0] in ax.collections[0].get_paths()[0].vertices[:, 1]


def test_bars_of_long_names_lie() -> None:
    names = [f"{LONG}_{i}" for i in range(9)]
    table = pd.DataFrame({"model": names, "value": range(9), "low": -1.0, "high": 9.0, "n": 1})
    columns = (UNIT_COLUMNS[0], *estimate("x", label="accuracy"))
    view = View("bar", "model", "value", low="low", high="high", sort="value")
    result = Result("accuracy", table, columns, (view,))
    whole = spec(result)
    [bars] = marks(whole, "bar")
    assert bars["encoding"]["y"]["sort"] == names[::-1], "from the highest value on"
    assert bars["encoding"]["x"]["field"] == "value"
    drawn = vl_convert.vegalite_to_svg(whole)
    assert all(name not in "".join(drawn.split("aria-label")) for name in [f">{names[0]}<"])
    assert drawn.count("…") >= 9
    _, ax = result.plot()
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert len(set(labels)) == 9
    assert all(len(label) <= 28 for label in labels)
    assert [bar.get_width() for bar in ax.patches] == list(range(9))
    few = replace(result, table=table.head(2).assign(model=["a", "b"]))
    assert marks(spec(few), "bar")[0]["encoding"]["y"]["field"] == "value"


def test_long_names_are_short_in_legends_and_whole_in_tooltips() -> None:
    result = distances(LONG, "vit")
    whole = spec(result)
    drawn = vl_convert.vegalite_to_svg(whole)
    assert ">vit_small_pat…_in21k_ft_in1k<" in drawn
    assert f">{LONG}<" not in drawn
    assert rows_of(whole, marks(whole, "point")[0])[0]["model"] == LONG
    figure, _ = result.plot()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "vit_small_pat…_in21k_ft_in1k" in texts
    evil = "\\\"]})[0];alert('1')//" + "x" * 30
    assert "NaN" not in vl_convert.vegalite_to_svg(spec(distances(evil)))


def test_panels_of_different_measures_have_their_own_limits() -> None:
    table = pd.DataFrame({
        "model": ["a", "b"] * 2, "measure": ["ECE"] * 2 + ["NLL"] * 2,
        "value": [0.1, 0.2, 5.0, 9.0], "low": 0.0, "high": [0.2, 0.3, 6.0, 10.0], "n": 3,
    })  # fmt: skip
    columns = (UNIT_COLUMNS[0], Column("measure", "category", "Which."), *estimate("x"))
    view = View("bar", "model", "value", "model", facet="measure", free=True)
    result = Result("calibration", table, columns, (view,))
    ends = [bar["encoding"]["y"]["scale"]["domain"][1] for bar in marks(spec(result), "bar")]
    assert ends == pytest.approx([0.2 * 1.05, 9.0 * 1.05])
    assert marks(spec(result), "bar")[0]["encoding"]["color"]["legend"] is not None
    _, axes = result.plot()
    assert [ax.get_ylim()[1] for ax in axes] == pytest.approx([0.21, 9.45])


def test_an_axis_that_is_zoomed_in_says_so() -> None:
    table = pd.DataFrame({"model": ["a", "b"], "value": [0.93, 0.99]})
    columns = (UNIT_COLUMNS[0], Column("value", "quantity", "x", label="accuracy"))
    result = Result("x", table, columns, (View("scatter", "model", "value", zoomed=True),))
    [points] = marks(spec(result), "point")
    assert points["encoding"]["y"]["title"] == "accuracy, axis from 0.93 to 0.99"
    _, ax = result.plot()
    assert ax.get_ylabel() == "accuracy, axis from 0.93 to 0.99"


def test_units_of_many_models_share_lanes() -> None:
    models = [f"m{i}" for i in range(9)]
    result = distances(*models)
    assert len(marks(spec(result), "rect")) == 1
    other = [[["a", "conv", 0.0], ["b", "conv", 1.0]], [["a", "mlp", 0.0], ["b", "conv", 1.0]]]
    two = replace(result, about={"units": {name: other[i % 2] for i, name in enumerate(models)}})
    assert len(marks(spec(two), "rect")) == 2
    many = {name: [["a", "conv", 0.0], ["b", "conv", 1 + i]] for i, name in enumerate(models)}
    assert not marks(spec(replace(result, about={"units": many})), "rect"), "too many to be read"


def test_columns_of_a_view_are_declared() -> None:
    plain: Any = View("line", "depth", "value")
    for role in ("size", "sort", "opens"):
        with pytest.raises(UnknownName, match=rf"column \(the view's {role}\)"):
            replace(distances("vit"), views=(replace(plain, **{role: "mass"}),))
    with pytest.raises(UnknownName, match="the view's tooltip"):
        replace(distances("vit"), views=(View("line", "depth", "value", tooltip=("mass",)),))


def test_zero_has_no_place_on_a_logarithmic_axis() -> None:
    result = distances("vit")
    view = View("line", "depth", "value", "model", low="low", high="high", log=("y",))
    whole = spec(replace(result, views=(view,)))
    [lines] = [line for line in marks(whole, "line") if line["mark"].get("strokeCap")]
    rows = rows_of(whole, lines)
    field = lines["encoding"]["y"]["field"]
    assert [row[field] for row in rows] == [None, 1.0, 10.0, 11.0, 20.0, 21.0]
    assert [row["value"] for row in rows] == [0.0, 1.0, 10.0, 11.0, 20.0, 21.0], "for tooltips"
    [ribbon] = marks(whole, "area")
    floor = ribbon["encoding"]["y"]["scale"]["domain"][0]
    assert [row[ribbon["encoding"]["y"]["field"]] for row in rows[:2]] == [floor, floor]
    assert [row["low"] for row in rows[:2]] == [-1.0, 0.0]


def test_lines_without_points_have_dashes_in_the_legend() -> None:
    result = distances(*(f"m{i}" for i in range(9)))
    many = [result.table.assign(depth=result.table["depth"] + k) for k in range(20)]
    long = replace(result, table=pd.concat(many, ignore_index=True))
    [line] = marks(spec(long, 2), "line")
    assert line["encoding"]["strokeDash"]["legend"]["symbolType"] == "stroke"
    [points] = marks(spec(long, 2), "point")
    assert points["mark"]["opacity"] == 0
    assert "shape" not in points["encoding"]


def test_ribbons_of_many_lines_have_no_edges() -> None:
    view = View("line", "depth", "value", "model", low="low", high="high")
    few, many = (
        replace(distances(*(f"m{i}" for i in range(count))), views=(view,)) for count in (5, 6)
    )
    assert len(marks(spec(few), "line")) == 3
    assert len(marks(spec(many), "line")) == 1
    assert len(many.plot()[1].lines) == 6
