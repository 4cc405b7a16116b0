"""Drawings are checked as a reader would: parsed back, measured, and compared with the units they
stand for."""

from __future__ import annotations

import re
from itertools import chain, combinations
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from vitreous.errors import UnknownName, VitreousError
from vitreous.palette import KIND_COLOURS, PAPERS, REACH_GLYPHS, contrast_ratio
from vitreous.specimen.anatomy import Anatomy, Unit, panels
from vitreous.specimen.drawing_svg import count, svg

SVG = "{http://www.w3.org/2000/svg}"


def parsed(anatomies: list[Anatomy], theme: Any = "light") -> ElementTree.Element:
    return ElementTree.fromstring(svg(anatomies, theme=theme))


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if element.get("class") == name]


def rectangle(element: ElementTree.Element) -> tuple[float, float, float, float]:
    """Left, top, right, bottom."""
    x, y, width, height = (float(element.get(key, "0")) for key in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    across, down = (min(one[i + 2], other[i + 2]) - max(one[i], other[i]) for i in (0, 1))
    return min(across, down) > 0.02  # coordinates are rounded to a hundredth


def inside(inner: tuple[float, ...], outer: tuple[float, ...]) -> bool:
    return (
        inner[0] >= outer[0]
        and inner[1] >= outer[1]
        and inner[2] <= outer[2] + 0.02
        and inner[3] <= outer[3] + 0.02
    )


def test_every_unit_is_drawn_or_counted(anatomies: list[Anatomy]) -> None:
    root = parsed(anatomies)
    groups = of_class(root, "unit")
    assert sum(int(group.get("data-units", "0")) for group in groups) == sum(map(len, anatomies))
    titles = [group.findtext(f"{SVG}title") or "" for group in groups]
    drawn = [unit for model in anatomies for unit in model]
    if len(groups) == len(drawn):
        for unit, title, group in zip(drawn, titles, groups, strict=True):
            assert title.startswith(f"{unit.name}: {unit.kind}")
            assert of_class(group, "box")[0].get("fill") == KIND_COLOURS[unit.kind]


def test_boxes_do_not_overlap_and_stay_on_the_sheet(anatomies: list[Anatomy]) -> None:
    root = parsed(anatomies)
    sheet = tuple(map(float, (root.get("viewBox") or "").split()))
    grounds = [rectangle(element) for element in of_class(root, "panel")]
    for ground in grounds:
        assert inside(ground, sheet)
    for one, other in combinations(grounds, 2):
        assert not overlap(one, other)
    marks = [rectangle(element) for element in [*of_class(root, "box"), *of_class(root, "bar")]]
    for mark in marks:
        assert sum(inside(mark, ground) for ground in grounds) == 1
    for one, other in combinations(marks, 2):
        assert not overlap(one, other)
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", "-1")) <= sheet[2]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read(anatomies: list[Anatomy], theme: Any) -> None:
    root = parsed(anatomies, theme)
    for group in of_class(root, "unit"):
        box = of_class(group, "box")[0].get("fill", "")
        for mark in chain(group.iter(f"{SVG}text"), group.iter(f"{SVG}path")):
            assert contrast_ratio(mark.get("fill", mark.get("stroke", "")), box) >= 4.5
    ink, paper = PAPERS[theme]
    ground = mixed(ink, paper, 0.045)
    for text in root.iter(f"{SVG}text"):
        if text.get("fill") is None:
            assert (
                contrast_ratio(mixed(ink, ground, float(text.get("fill-opacity", "1"))), ground)
                >= 4.5
            )
            assert float(text.get("font-size", "0")) >= 10


def mixed(over: str, under: str, opacity: float) -> str:
    pairs = ((int(over[i : i + 2], 16), int(under[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(opacity * a + (1 - opacity) * b):02X}" for a, b in pairs)


def test_a_drawing_is_self_contained(anatomies: list[Anatomy]) -> None:
    text = svg(anatomies)
    assert text.count("http") == 1
    assert not re.search(r"\b(id|href|src|on\w+)=|url\(|<style|<script|<image", text)
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert all(model.model in (root.findtext(f"{SVG}title") or "") for model in anatomies)


def single(model: str, units: list[Unit]) -> list[Anatomy]:
    return [Anatomy(model, (3, 224, 224), tuple(units), sum(unit.parameters for unit in units))]


def test_names_are_escaped() -> None:
    nasty = """<b onload="x">&'\x00"""
    root = parsed(single(nasty, [Unit(nasty, "conv", 0, 1, 0.0, (7, 7), 8, ("<i>",))]))
    title = nasty.replace("\x00", "\ufffd") + ": conv, <i> + 7×7, 8 channels, 0 parameters"
    assert of_class(root, "unit")[0][0].text == title


def test_height_is_the_logarithm_of_channels_and_bars_are_linear() -> None:
    widths, parameters = (64, 128, 256, 1024), (1000, 2000, 3000, 4000)
    sizes = enumerate(zip(widths, parameters, strict=True))
    root = parsed(
        single(
            "m", [Unit(f"c.{i}", "conv", i, 1, 0.0, (8, 8), c, parameters=p) for i, (c, p) in sizes]
        )
    )
    heights = [float(box.get("height", "0")) for box in of_class(root, "box")]
    assert np.diff(heights) / np.log2([2, 2, 4]) == pytest.approx(
        (heights[3] - heights[0]) / 4, abs=0.01
    )
    bars = [float(bar.get("height", "0")) for bar in of_class(root, "bar")]
    assert np.array(bars) / parameters == pytest.approx(bars[3] / 4000)
    assert len({rectangle(bar)[3] for bar in of_class(root, "bar")}) == 1


def test_an_arch_a_skip_and_a_dot_a_head(anatomies: list[Anatomy]) -> None:
    root = parsed(anatomies)
    folded = any(int(group.get("data-units", "0")) > 1 for group in of_class(root, "unit"))
    parts = [panel for model in anatomies for panel in panels(model, fold=folded)]
    drawn = [slot[0] for panel in parts for slot in chain(*panel)]
    arches = "".join(path.get("d", "") for path in of_class(root, "skips"))
    assert arches.count("M") == sum(unit.skip for unit in drawn)
    dots = [
        path.get("d", "").count("M")
        for group in of_class(root, "unit")
        for path in of_class(group, "heads")
    ]
    if max([unit.heads or 0 for unit in drawn], default=0) <= 16:
        assert dots == [unit.heads for unit in drawn if unit.heads]


def test_every_reach_has_its_glyph(drawings: dict[str, list[Anatomy]]) -> None:
    root = parsed(drawings["ragged"])
    drawn = [path.get("d") for group in of_class(root, "unit") for path in of_class(group, "reach")]
    assert drawn == [REACH_GLYPHS[unit.reach] for unit in drawings["ragged"][0] if unit.reach]
    assert set(drawn) == set(REACH_GLYPHS.values())


def test_a_legend_explains_what_occurs_and_nothing_else(drawings: dict[str, list[Anatomy]]) -> None:
    words = {element.text for element in parsed(drawings["resnet"]).iter(f"{SVG}text")}
    assert {"stem", "conv", "downsample", "head", "skip", "parameters"} <= words
    assert not {"attention", "mlp", "global", "class token", "n alike"} & words
    words = {element.text for element in parsed(drawings["deep"]).iter(f"{SVG}text")}
    assert {
        "attention",
        "mlp",
        "global",
        "class token",
        "register token",
        "n alike",
        "×74",
    } <= words


def test_panels_are_stages(drawings: dict[str, list[Anatomy]]) -> None:
    texts = [element.text or "" for element in parsed(drawings["swin"]).iter(f"{SVG}text")]
    assert [text for text in texts if re.fullmatch(r"\d+×\d+", text)] == [
        "56×56",
        "56×56",
        "28×28",
        "14×14",
        "7×7",
    ]
    assert [text for text in texts if text.startswith("stage ")] == [
        f"stage {i}" for i in (1, 2, 3, 4)
    ]
    assert "• 14×14" in {element.text for element in parsed(drawings["vit"]).iter(f"{SVG}text")}


def test_models_share_one_scale(drawings: dict[str, list[Anatomy]]) -> None:
    root = parsed(drawings["four"])
    assert len({box.get("width") for box in of_class(root, "box")}) == 1
    boxes = [box for box in of_class(root, "box") if box.get("fill") != KIND_COLOURS["head"]]
    units = [unit for model in drawings["four"] for unit in model if unit.kind != "head"]
    heights: dict[int | None, set[str]] = {}
    for unit, box in zip(units, boxes, strict=True):
        heights.setdefault(unit.channels, set()).add(box.get("height", ""))
    assert all(len(seen) == 1 for seen in heights.values())


def test_a_long_name_is_cut_short() -> None:
    root = parsed(single("a" * 300, [Unit("head", "head", 0, 1, 0.0, None, 10)]))
    title = next(element.text or "" for element in root.iter(f"{SVG}text"))
    assert 20 < len(title) < 80
    assert title.endswith("a…")


def test_same_text_every_time(anatomies: list[Anatomy]) -> None:
    assert svg(anatomies) == svg([Anatomy.from_json(model.to_json()) for model in anatomies])


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1 k"),
        (5_717_416, "5.72 M"),
        (999_700, "1 M"),
        (148_000, "148 k"),
        (1_843_000_000, "1.84 G"),
    ],
)
def test_count(number: int, words: str) -> None:
    assert count(number).replace("\u00a0", " ") == words


def test_nothing_to_draw() -> None:
    with pytest.raises(VitreousError, match="nothing to draw"):
        svg([])


def test_unknown_theme() -> None:
    with pytest.raises(UnknownName, match="no theme 'drak'"):
        svg(single("m", []), theme="drak")  # type: ignore[arg-type]
