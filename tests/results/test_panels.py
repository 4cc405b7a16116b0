"""What is drawn, before it is drawn, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from results.conftest import distances, reliability, similarity, spectrum
from vitreous.palette import KIND_COLOURS, LINE_RAMPS, MEASURE_COLOURS, model_colours, model_styles
from vitreous.results import Column, Reference, Result, View
from vitreous.results.charts import chart_spec
from vitreous.results.colour_scales import colour_scale, column_levels, ramp_colour
from vitreous.results.montage import CHARACTER, montage
from vitreous.results.panels import (
    Drawing,
    bar_spans,
    depth_limits,
    model_bands,
    spaced_labels,
    split_panels,
    unit_bands,
    value_limits,
)


def test_bands_reach_half_way_to_their_neighbours() -> None:
    units = [["conv2", "conv", 0.4], ["stem", "stem", 0.0], ["head", "head", 1.0]]
    found = [(b.start, b.end, b.kind, b.unit) for b in model_bands("net", units)]
    assert found == [
        (-0.2, 0.2, "stem", "stem"),
        (0.2, 0.7, "conv", "conv2"),
        (0.7, 1.3, "head", "head"),
    ]
    assert [(b.start, b.end) for b in model_bands("net", [["a", "conv", 0.5]])] == [(0.0, 1.0)]
    assert model_bands("net", []) == []


def test_an_axis_of_a_single_place_has_a_length() -> None:
    """Vega labels an axis without one by whole numbers: 0.297 GFLOPs were 0."""
    table = pd.DataFrame({"x": [0.297], "y": [3.0]})
    columns = (Column("x", "quantity", "x"), Column("y", "quantity", "y"))
    spec = chart_spec(
        Result("r", table, columns, (view := View("scatter", "x", "y"),)), view, "light"
    )
    low, high = spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < 0.297 < high


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([6.0, 6.02, 2.0], {6.02: "b; a", 6.0: "", 2.0: "c"}),
        ([6.0, 5.0, 2.0], {6.0: "a", 5.0: "b", 2.0: "c"}),
        ([6.0], {6.0: "a"}),
    ],
)
def test_lines_close_together_share_a_label(values: list[float], labels: dict[float, str]) -> None:
    result = distances("vit")
    lines = tuple(Reference(value, name) for value, name in zip(values, "abc", strict=False))
    view = View("line", "depth", "value", "model", limits=(0, 10), references=lines)
    drawing = Drawing(result, view, "light")
    found = drawing.references(drawing.panels[0])
    assert {each.value: each.label for each in found} == labels


def test_names_of_tiles_are_no_wider_than_tiles() -> None:
    sheet = montage(np.zeros((2, 8, 8)), [f"{'very ' * 15}long {i}" for i in range(2)])
    assert all(CHARACTER * len(label) <= sheet.tile[0] + CHARACTER * 4 for label in sheet.labels)
    assert len(set(sheet.labels)) == 2


def test_bands_come_from_all_units_where_they_are_known() -> None:
    result = distances("vit")
    rows = [(b.start, b.end, b.kind) for b in unit_bands(result, result.table)]
    assert rows == [
        (-0.25, 0.25, "attention"),
        (0.25, 0.75, "attention"),
        (0.75, 1.25, "attention"),
    ]
    known = replace(result, about={"units": {"vit": [["a", "attention", 0.0], ["m", "mlp", 1.0]]}})
    assert [(b.start, b.end, b.kind) for b in unit_bands(known, known.table)] == [
        (-0.5, 0.5, "attention"),
        (0.5, 1.5, "mlp"),
    ]


def test_models_share_bands_only_where_they_are_alike() -> None:
    same = distances("vit", "deit")
    assert [b.lanes for b in unit_bands(same, same.table)] == [1, 1, 1]
    table = same.table.copy()
    table.loc[table["model"] == "deit", "kind"] = "conv"
    other = replace(same, table=table)
    assert [(b.model, b.lane, b.lanes) for b in unit_bands(other, table)] == [("vit", 0, 2)] * 3 + [
        ("deit", 1, 2)
    ] * 3


def test_a_model_keeps_its_colour_if_others_have_no_rows() -> None:
    together = [f"m{i}" for i in range(8)]
    result = replace(distances("m6", "m7"), about={"beside": together})
    found = colour_scale(result, result.views[0], "light")
    assert found is not None
    assert found.colours == tuple(model_colours(together).values())[6:]
    assert found.colours != tuple(model_colours(["m6", "m7"]).values()), "these two would be free"


def test_panels_hold_each_row_once() -> None:
    result = distances("vit", "deit")
    parts = split_panels(result, result.views[1])
    assert [part.title for part in parts] == ["vit", "deit"]
    assert [part.rows["model"].unique().tolist() for part in parts] == [["vit"], ["deit"]]
    assert depth_limits(parts[0]) == (-0.25, 1.25)
    assert [part.title for part in split_panels(result, result.views[0])] == [""]


def test_order_of_levels() -> None:
    table = pd.DataFrame({
        "kind": ["mlp", "stem", "attention"], "head": [10, 2, 2], "unit": ["b", "a", "b"],
        "size": pd.Categorical(["large", "small", "large"], ["small", "huge", "large"]),
    })  # fmt: skip
    columns = tuple(Column(name, "order", "x") for name in map(str, table))
    result = Result("x", table, columns)
    assert column_levels(result, "kind") == ["stem", "attention", "mlp"]
    assert column_levels(result, "head") == [2, 10]
    assert column_levels(result, "unit") == ["b", "a"]
    assert column_levels(result, "size") == ["small", "large"]


def test_colours_are_those_of_the_palette() -> None:
    result = distances("vit", "deit")
    models = colour_scale(result, result.views[0], "dark")
    assert models is not None
    assert (models.levels, models.colours) == (
        ("vit", "deit"),
        tuple(model_colours(["vit", "deit"], "dark").values()),
    )
    kinds = colour_scale(result, View("line", "depth", "value", "kind"), "light")
    assert kinds is not None
    assert kinds.colour_of("attention") == KIND_COLOURS["attention"]
    heads = colour_scale(result, result.views[1], "light")
    assert heads is not None
    assert heads.colours == (LINE_RAMPS["light"][0], LINE_RAMPS["light"][-1])
    depth = colour_scale(spectrum(), spectrum().views[0], "light")
    assert depth is not None
    assert depth.ends == (0.0, 1.0)
    named = (*result.columns[:1], Column("unit", "category", "Names."), *result.columns[2:])
    units = colour_scale(
        replace(result, columns=named), replace(result.views[0], colour="unit"), "dark"
    )
    assert units is not None
    assert units.colours == MEASURE_COLOURS["dark"][:3], "names that are neither models nor kinds"


def test_more_models_than_colours_have_dashes_and_shapes() -> None:
    many = distances(*(f"m{i}" for i in range(10)))
    ten = colour_scale(many, many.views[0], "light")
    assert ten is not None
    styles = model_styles(f"m{i}" for i in range(10))
    assert ten.dashes == tuple(style.dash for style in styles.values())
    assert (ten.dash_of("m7"), ten.shape_of("m7")) == ((), "circle")
    assert (ten.dash_of("m8"), ten.shape_of("m8")) == ((6, 3), "square")
    eight = distances(*(f"m{i}" for i in range(8)))
    solid = colour_scale(eight, eight.views[0], "light")
    assert solid is not None
    assert (solid.dashes, solid.shapes, solid.dash_of("m7")) == ((), (), ())


def test_blend_is_linear_between_stops() -> None:
    ramp = ("#000000", "#102030", "#FFFFFF")
    assert [ramp_colour(ramp, w) for w in (0, 0.25, 0.5, 1, 7, -1)] == [
        "#000000", "#081018", "#102030", "#FFFFFF", "#FFFFFF", "#000000",
    ]  # fmt: skip


def test_limits_hold_everything_that_is_drawn() -> None:
    result = distances("vit")
    low, high = value_limits(result, result.views[0]) or (0, 0)
    assert low == pytest.approx(-1 - 2 * 0.05 * 23.0), "with room for the strip of units"
    assert high == pytest.approx(22 + 0.05 * 23.0)
    higher = replace(result.views[0], references=(Reference(99.0, "far"),))
    assert value_limits(result, higher) == pytest.approx((-1 - 10.0, 99 + 12.5))
    logged = value_limits(result, result.views[2])
    assert logged == pytest.approx((21**-0.05, 21**1.05)), "zero has no place on a log axis"
    assert value_limits(similarity(), similarity().views[0]) == (0, 1)
    assert value_limits(similarity(), similarity().views[1]) == pytest.approx((0, 1)), (
        "as far to both sides of 0.5"
    )
    assert value_limits(reliability(), reliability().views[0]) == pytest.approx((0, 0.84)), (
        "bars stand on zero"
    )
    differing = distances("vit", "resnet").table.assign(kind=["attention"] * 6 + ["conv"] * 6)
    strips = replace(distances("vit", "resnet"), table=differing)
    assert value_limits(strips, result.views[0]) == pytest.approx(
        (-1 - 3 * 0.05 * 23, 22 + 0.05 * 23)
    ), "room below"
    empty = replace(result, table=result.table.head(0))
    assert value_limits(empty, result.views[2]) is None


def test_bars_over_a_quantity_share_its_steps() -> None:
    result = reliability()
    rows = bar_spans(result, result.views[0], result.table)
    first: Any = rows[rows["confidence"] == 0.1]
    np.testing.assert_allclose(first["start"], [0.1 - 0.092, 0.1])
    np.testing.assert_allclose(first["end"], [0.1, 0.1 + 0.092])
    alone = replace(result.views[0], facet="model")
    np.testing.assert_allclose(
        bar_spans(result, alone, result.table)["end"] - result.table["confidence"], 0.092
    )


def test_labels_keep_apart() -> None:
    assert list(spaced_labels(5, 100, 11)) == [0, 1, 2, 3, 4]
    assert list(spaced_labels(100, 400, 11)) == list(range(0, 100, 3))
    assert not list(spaced_labels(0, 0, 11))
