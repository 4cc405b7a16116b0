"""Charts drawn in advance: small, well formed, and the same picture as Vega's."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import vl_convert
from PIL import Image

from results.conftest import MADE, VIEWS, distances, filters, similarity
from vitreous.palette import RAMPS, model_colours
from vitreous.report.static_charts import MAX_BYTES, static_chart
from vitreous.results.charts import chart_svg
from vitreous.results.compact_svg import compact_svg
from vitreous.results.style import FONT

LONG = "vit_small_patch16_224.augreg_in21k_ft_in1k"


def pixels(drawn: str) -> Any:
    """An SVG on white paper, as resvg draws it."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" font-family="{FONT}" '
    alone = drawn if "xmlns" in drawn else drawn.replace("<svg ", head, 1)
    image = Image.open(BytesIO(vl_convert.svg_to_png(alone))).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB")).astype(float)


@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_the_small_drawing_is_the_same_picture(name: str, view: int) -> None:
    drawn = chart_svg(MADE[name]().chart(view))
    small = compact_svg(drawn, "A title", "x-")
    assert len(small) < (0.75 if "<image" in small else 0.4) * len(drawn)
    theirs, ours = pixels(drawn), pixels(small)
    assert theirs.shape == ours.shape
    difference = np.abs(theirs - ours).max(-1)
    assert difference.max() < 96, "coordinates are rounded to a tenth of a pixel"
    assert (difference > 48).mean() < 0.005


@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_every_view_is_small_and_well_formed(name: str, view: int) -> None:
    result = MADE[name]()
    drawn = static_chart(result, view, 520)
    assert len(drawn) <= 12_000
    root = ElementTree.fromstring(drawn)
    assert root.tag == "svg"
    assert root[0].tag == "title"
    assert root[0].text == (result.views[view].title or result.name)
    assert not re.search(r"aria-|font-family|class=|\d\.\d\d\d|NaN|undefined", no_images(drawn))
    assert float(root.get("width", "inf")) <= 560


def no_images(drawn: str) -> str:
    return re.sub(r'href="[^"]*"', "", drawn)


def test_points_have_their_places_and_colours() -> None:
    drawn = static_chart(distances("vit", "convit"), 0, 520)
    for model, colour in model_colours(["vit", "convit"]).items():
        dots = re.findall(rf'<path d="([^"]*)" stroke="{colour}"[^>]*linecap="round"', drawn)
        assert sum(dot.count("M") for dot in dots) >= 6, model
        assert f">{model}</text>" in drawn


def test_cells_are_pixels_with_the_colours_of_their_numbers() -> None:
    drawn = static_chart(similarity(), 0, 520)
    found = re.search(r'<image[^>]*href="data:image/png;base64,([^"]*)"', drawn)
    assert found
    image = np.asarray(Image.open(BytesIO(base64.b64decode(found[1]))))
    assert image.shape == (4, 4, 4)
    ramp = [int(RAMPS["light"][-1][i : i + 2], 16) for i in (1, 3, 5)]
    assert all(image[3 - i, i, :3].tolist() == ramp for i in range(4)), "CKA of 1, from below"
    assert image[2, 0, 3] == 0, "the row without a number: unit u0 across, u1 up"
    assert (image[..., 3] == 255).sum() == 15
    assert "pixelated" in drawn


def test_two_drawings_in_a_page_do_not_share_names() -> None:
    one, two = (
        set(re.findall(r'id="([^"]*)"', static_chart(similarity(), i, 520))) for i in (0, 1)
    )
    assert one
    assert not one & two


def test_any_number_of_points_is_bounded() -> None:
    models = [f"{LONG}_{i}" for i in range(14)]
    result = distances(*models)
    rows = pd.concat([result.table.assign(depth=k / 60, value=np.sin(k)) for k in range(60)])
    many = replace(result, table=rows.reset_index(drop=True), about={})
    drawn = static_chart(many, 0, 520)
    assert drawn.startswith('<img alt="Distance"')
    assert len(drawn) <= MAX_BYTES + 200


def test_tiles_are_one_image() -> None:
    drawn = static_chart(filters(), 0, 520)
    assert drawn.count("<image") == 1
    noise = np.random.default_rng(0).random((5, 400, 400, 3))
    large = replace(filters(), arrays={"tiles": noise})
    assert len(static_chart(large, 0, 520)) <= MAX_BYTES


def test_names_cannot_end_the_drawing() -> None:
    evil = "</svg><script>alert(1)</script>"
    result = distances(evil)
    drawn = static_chart(replace(result, views=(replace(result.views[0], title=evil),)), 0, 520)
    root = ElementTree.fromstring(drawn)
    assert "<script" not in drawn
    assert root[0].text == evil
