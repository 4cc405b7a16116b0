"""Altair charts: valid Vega-Lite, the palette's colours, bands where they belong, files without a
browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import altair as alt
import numpy as np
import pytest
import vl_convert
from PIL import Image

from results.conftest import MADE, VIEWS, distances, filters, reliability, similarity, spectrum
from vitreous.errors import VitreousError
from vitreous.palette import (
    KIND_COLOURS,
    PAPERS,
    RAMPS,
    Theme,
    contrast_ratio,
    model_colours,
)
from vitreous.results import UNIT_COLUMNS, Column, Result, View, style
from vitreous.results.charts import chart_spec, chart_svg


def spec(result: Result, view: int = 0, theme: Theme = "light") -> dict[str, Any]:
    """What Altair makes a chart of, which the next test checks."""
    return chart_spec(result, result.view(view), theme)


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All dicts of a specification."""
    if isinstance(tree, dict):
        yield tree
        for child in tree.values():
            yield from nodes(child)
    elif isinstance(tree, list):
        for child in tree:
            yield from nodes(child)


def marks(tree: Any, kind: str) -> list[dict[str, Any]]:
    return [
        node
        for node in nodes(tree)
        if isinstance(node.get("mark"), dict) and node["mark"]["type"] == kind
    ]


def rows_of(tree: dict[str, Any], node: dict[str, Any]) -> list[dict[str, Any]]:
    data = node["data"]
    return cast(
        list[dict[str, Any]], tree["datasets"][data["name"]] if "name" in data else data["values"]
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_every_view_is_valid_and_stands_alone(name: str, view: int, theme: Theme) -> None:
    """`to_dict` checks against Vega-Lite's schema; vl-convert then has to make marks of it."""
    result = MADE[name]()
    chart = result.chart(view, theme)
    whole = chart.to_dict()
    config, given = whole["config"], spec(result, view, theme)
    assert {key: whole[key] for key in given} == {**given, "config": config}
    for key, value in given["config"].items():  # Altair adds sizes of its own to "view"
        shared = (
            {name: config[key][name] for name in value} if isinstance(value, dict) else config[key]
        )
        assert shared == value
    assert all("url" not in node.get("data", {}) for node in nodes(whole))
    json.dumps(whole, allow_nan=False)
    assert whole["config"]["background"] == PAPERS[theme][1]
    drawn = chart_svg(chart)
    assert PAPERS[theme][1].lower() in drawn.lower()
    assert "NaN" not in drawn
    assert result.views[view].title in drawn


def test_labels_are_written() -> None:
    drawn = chart_svg(distances("vit", "convit").chart())
    for words in (
        "distance (pixels)",
        "depth",
        "vit",
        "convit",
        "uniform attention",
        "kind of unit",
        "attention",
    ):
        assert f">{words}<" in drawn
    assert ">frequency (π)<" in chart_svg(spectrum().chart())
    assert ">as sure as right<" in chart_svg(reliability().chart())


def test_bands_lie_behind_the_marks_at_their_depths() -> None:
    result = replace(
        distances("vit"),
        about={"units": {"vit": [["s", "stem", 0.0], ["a", "attention", 0.5], ["h", "head", 1.0]]}},
    )
    whole = spec(result)
    first = whole["layer"][0]
    assert first["mark"]["type"] == "rect"
    assert "opacity" not in first["mark"], "a pale strip would not stand out from the paper"
    assert [(row["start"], row["end"], row["kind"]) for row in rows_of(whole, first)] == [
        (-0.25, 0.25, "stem"), (0.25, 0.75, "attention"), (0.75, 1.25, "head"),
    ]  # fmt: skip
    scale = first["encoding"]["fill"]["scale"]
    assert scale["domain"] == ["stem", "attention", "head"]
    assert scale["range"] == [KIND_COLOURS["stem"], KIND_COLOURS["attention"], KIND_COLOURS["head"]]
    assert first["encoding"]["x"]["scale"]["domain"] == [-0.25, 1.25]
    # In the picture 440 pixels are 1.5 of depth, so the middle band is a third of them, from 146.67
    # on, at the foot of 260 pixels.
    drawn = chart_svg(result.chart())
    assert re.search(rf'd="M146\.6\d+,{260 - style.LANE}h146\.6\d+v{style.LANE}h-146', drawn)


def test_ribbons_keep_their_own_opacity() -> None:
    whole = spec(distances("vit"), 1)
    [ribbon] = marks(whole, "area")
    assert ribbon["mark"]["opacity"] == style.RIBBON
    assert (ribbon["encoding"]["y"]["field"], ribbon["encoding"]["y2"]["field"]) == ("low", "high")
    assert all("opacity" not in line["mark"] for line in marks(whole, "line"))
    edges = [line["encoding"]["y"]["field"] for line in marks(whole, "line")]
    assert edges == ["low", "high", "value"], "opaque edges, as the ribbon is pale"
    drawn = chart_svg(distances("vit").chart(1))
    assert f'opacity="{style.RIBBON}"' in drawn


def test_colours_of_models_are_ordered_and_the_same_in_every_panel() -> None:
    [points] = marks(spec(distances("vit", "convit")), "point")
    assert points["encoding"]["color"]["scale"] == {
        "domain": ["vit", "convit"],
        "range": list(model_colours(["vit", "convit"]).values()),
    }
    facets = spec(distances("vit", "convit"), 1)
    assert len(facets["concat"]) == 2
    assert facets["resolve"]["scale"]["color"] == "shared"
    assert len({json.dumps(line["encoding"]["y"]["scale"]) for line in marks(facets, "line")}) == 1


def test_tooltips_have_five_lines_and_the_interval_in_one() -> None:
    result = distances("vit")
    [points] = marks(spec(result), "point")
    assert [tip["title"] for tip in points["encoding"]["tooltip"]] == [
        "model", "unit", "head", "distance (pixels)", "n",
    ]  # fmt: skip
    chosen = replace(result, views=(replace(result.views[0], tooltip=("head", "stage")),))
    [points] = marks(spec(chosen), "point")
    assert [tip["field"] for tip in points["encoding"]["tooltip"]] == ["head", "stage"]
    with pytest.raises(VitreousError, match="has 6 columns in its tooltip; it has room for 5"):
        replace(
            result, views=(replace(result.views[0], tooltip=tuple(map(str, result.table))[:6]),)
        )


def test_an_interval_is_written_with_its_value() -> None:
    """The expression of a tooltip, evaluated by Vega as the text of marks."""
    result = distances("vit")
    table = result.table.assign(value=0.5312, low=[0.48] * 5 + [np.nan], high=[0.58] * 5 + [np.nan])
    whole = spec(replace(result, table=table))
    [points] = marks(whole, "point")
    points["mark"] = {"type": "text"}
    points["encoding"] = {"text": {"field": "value_shown", "type": "nominal"}}
    drawn = vl_convert.vegalite_to_svg({**points, "datasets": whole["datasets"]})
    assert drawn.count(">0.531 (0.48 to 0.58)<") == 5
    assert drawn.count(">0.531<") == 1


def test_a_chart_contains_only_the_columns_it_needs() -> None:
    lines = View("line", "depth", "value", "model", detail="head")
    whole = spec(replace(distances("vit"), views=(lines,)))
    [row, *_] = next(rows for rows in whole["datasets"].values())
    assert set(row) == {"model", "unit", "depth", "head", "value", "low", "high", "n"}
    whole = spec(distances("vit"), 0)
    points = marks(whole, "point")[0]
    assert "stage" not in rows_of(whole, points)[0]
    by_head = replace(distances("vit", "convit").views[0], facet="head")
    facets = spec(replace(distances("vit", "convit"), views=(by_head,)))
    assert len(facets["datasets"]) == 3, "two panels of rows, and the strip that both have"


def test_heat_maps_have_square_cells_and_the_ramp_of_the_theme() -> None:
    for theme in ("light", "dark"):
        whole = spec(similarity(), 0, theme)
        assert whole["width"] == whole["height"] == {"step": 26}
        assert whole["encoding"]["color"]["scale"]["range"] == list(RAMPS[theme])
        assert whole["encoding"]["color"]["scale"]["domain"] == pytest.approx(
            np.linspace(0, 1, 7).tolist()
        )
    assert whole["encoding"]["y"]["sort"] == ["u3", "u2", "u1", "u0"]
    assert (
        len(re.findall(r'aria-roledescription="rect mark"', chart_svg(similarity().chart()))) == 15
    ), "a hole has no cell"


def test_a_hundred_by_a_hundred_cells() -> None:
    """More rows than Altair lets through by default, without changing that default; labels thin
    out."""
    whole: dict[str, Any] = similarity(100).chart().to_dict()
    assert whole["width"] == {"step": 4}
    assert len(rows_of(whole, whole)) == 10_000
    assert len(whole["encoding"]["x"]["axis"]["values"]) <= 400 / 11
    assert "max_rows" not in alt.data_transformers.options


def test_more_models_than_colours_are_dashed() -> None:
    result = distances(*(f"m{i}" for i in range(9)))
    [line] = marks(spec(result, 2), "line")
    assert line["encoding"]["strokeDash"]["scale"]["range"] == [[1, 0]] * 8 + [[6, 3]]


def test_more_models_than_colours_have_shapes() -> None:
    [points] = marks(spec(distances(*(f"m{i}" for i in range(9)))), "point")
    assert points["encoding"]["shape"]["scale"]["range"] == ["circle"] * 8 + ["square"]
    [few] = marks(spec(distances("a", "b")), "point")
    assert "shape" not in few["encoding"]


def test_models_that_differ_have_a_strip_each() -> None:
    result = distances("vit", "resnet")
    table = result.to_frame()
    table.loc[table["model"] == "resnet", "kind"] = "conv"
    whole = spec(replace(result, table=table))
    strips = [node for node in whole["layer"] if node["mark"]["type"] == "rect"]
    assert [{row["model"] for row in rows_of(whole, strip)} for strip in strips] == [
        {"vit"},
        {"resnet"},
    ]
    assert [(s["mark"]["yOffset"], s["mark"]["y2Offset"]) for s in strips] == [(-17, -9), (-8, 0)]
    assert all(s["encoding"]["y2"]["value"] == "height" for s in strips), "whatever the height is"


def test_tiles_are_the_pictures() -> None:
    drawn = chart_svg(filters().chart())
    assert "data:image/png;base64," in drawn
    assert all(f">{i}<" in drawn for i in range(1, 6))


def test_figures_are_written_as_their_suffix_says(tmp_path: Path) -> None:
    result = distances("vit")
    assert result.figure(tmp_path / "new" / "a.svg").read_text().startswith("<svg")
    assert result.figure(tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    with Image.open(result.figure(tmp_path / "a.png")) as picture:
        wide = picture.width
    points = re.search(r'width="(\d+)"', (tmp_path / "new" / "a.svg").read_text())
    assert points is not None
    assert wide == pytest.approx(2 * int(points[1]), abs=2)
    with pytest.raises(VitreousError, match=r"as 'a.gif'; its name ends in \.svg, \.png, \.pdf"):
        result.figure(tmp_path / "a.gif")


def test_an_empty_table_draws_an_empty_chart() -> None:
    result = distances("vit")
    empty = replace(
        result,
        table=result.table.head(0),
        views=(View("line", "depth", "value", "model", bands=True),),
    )
    assert "distance (pixels)" in chart_svg(empty.chart())


def test_a_view_shows_the_rows_with_true() -> None:
    chosen = replace(
        distances("vit"),
        table=distances("vit").table.assign(first=lambda table: table["head"] == 0),
        columns=(
            *distances("vit").columns,
            Column("first", "category", "Whether it is the first head."),
        ),
        views=(View("line", "depth", "value", "model", where="first"),),
    )
    whole = spec(chosen)
    assert [row["head"] for row in rows_of(whole, marks(whole, "line")[0])] == [0, 0, 0]
    assert len(chosen.table) == 6
    _, ax = chosen.plot()
    assert ax.lines[0].get_ydata().tolist() == [0.0, 10.0, 20.0]


def test_groups_of_tiles_stand_under_their_names() -> None:
    table = filters().table.assign(model=["a", "a", "a", "b", "b"], shown=True)
    columns = (
        *filters().columns,
        UNIT_COLUMNS[0],
        Column("shown", "category", "Whether it has a picture."),
    )
    views = (View("tiles", "component", facet="model", array="tiles"),)
    result = replace(filters(), table=table, columns=columns, views=views)
    assert all(f">{word}<" in chart_svg(result.chart()) for word in ("a", "b", "5"))
    _, ax = result.plot()
    places = {text.get_text(): text.get_position() for text in ax.texts}
    assert places["a"][1] < places["1"][1] == places["3"][1] < places["b"][1] < places["4"][1]
    assert places["4"][0] == places["1"][0]
    fewer = replace(views[0], where="shown")
    tiles = {"tiles": result.arrays["tiles"][:3]}
    narrowed = replace(
        result, table=table.assign(shown=table["model"] == "a"), views=(fewer,), arrays=tiles
    )
    assert ">b<" not in chart_svg(narrowed.chart())
    with pytest.raises(VitreousError, match="has 3 images and the table 5 rows"):
        replace(narrowed, table=table)


def test_panels_of_different_models_share_the_colours_of_kinds() -> None:
    """A panel whose model has no downsampling must not give its colours to the legend."""
    result = distances("vit", "swin")
    plain = [[f"u{i}", kind, i / 2] for i, kind in enumerate(("stem", "attention", "head"))]
    deeper = [*plain[:2], ["down", "downsample", 0.75], plain[2]]
    whole = spec(replace(result, about={"units": {"vit": plain, "swin": deeper}}), view=1)
    domains = [node["encoding"]["fill"]["scale"]["domain"] for node in marks(whole, "rect")]
    assert domains == [["stem", "attention", "downsample", "head"]] * 2


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_every_mark_stands_out_from_the_paper(name: str, view: int, theme: Theme) -> None:
    """Marks that carry data are opaque, in colours of the palette; only areas are pale, and those
    have lines along their edges."""
    ink, paper = PAPERS[theme]
    whole = spec(MADE[name](), view, theme)
    for node in nodes(whole):
        mark = node.get("mark")
        if not isinstance(mark, dict) or mark["type"] in ("area", "image", "text"):
            continue
        alone = mark.get("color") == ink  # a reference
        assert mark.get("opacity", 1) in (0, 1) or (alone and mark["opacity"] >= 0.6), mark
        for channel in ("color", "fill"):
            scale = node["encoding"].get(channel, {}).get("scale")
            if scale and mark["type"] != "rect":
                low = [contrast_ratio(colour, paper) for colour in scale["range"]]
                assert min(low) >= 3, (mark, scale)
