"""Surfaces in three dimensions: where corners lie, what is cut off, and that the page and the
figures have them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vitreous import Inspection
from vitreous.commands.inspect_run import load_inspection
from vitreous.palette import RAMPS
from vitreous.report.figures import write_figures
from vitreous.report.guard import Guard
from vitreous.report.page import page
from vitreous.report.surface import (
    ACROSS,
    DOWN,
    HEIGHT,
    SHADES,
    UP,
    WIDTH,
    height_colours,
    surface_figure,
    surface_svg,
)

found = load_inspection("nano")["landscape"]


def polygons(text: str) -> list[tuple[int, np.ndarray]]:
    """Shade and corners of every patch."""
    patches = re.findall(r'<polygon class="height-(\d+)" points="([^"]*)"', text)
    return [
        (int(shade), np.array([each.split(",") for each in at.split()], dtype=float))
        for shade, at in patches
    ]


def grid(values: list[list[float]]) -> pd.DataFrame:
    return pd.DataFrame(
        values, index=np.linspace(-1, 1, len(values)), columns=np.linspace(-1, 1, len(values[0]))
    )


def test_corners_lie_where_a_parallel_projection_puts_them() -> None:
    ((shade, corners),) = polygons(surface_svg(grid([[0.0, 1.0], [2.0, 4.0]]), 4.0, "model"))
    floor = HEIGHT - 90
    middle = WIDTH / 2
    wanted = [
        (middle, floor - DOWN),
        (middle + ACROSS, floor - UP / 4),
        (middle, floor + DOWN - UP),
        (middle - ACROSS, floor - UP / 2),
    ]
    assert corners.flatten().tolist() == pytest.approx(
        np.array(wanted).flatten().tolist(), abs=0.06
    )
    assert shade == int(SHADES * 1.75 / 4)


def test_surfaces_are_painted_back_to_front_clipped_and_without_non_finite_patches() -> None:
    values = np.full((4, 4), 9.0)
    values[3, 3] = np.nan
    patches = polygons(surface_svg(grid(values.tolist()), 4.0, "model"))
    assert len(patches) == 8  # of nine
    assert {shade for shade, _ in patches} == {SHADES - 1}
    lowest = [corners[:, 1].max() for _, corners in patches]
    assert lowest == sorted(lowest)
    assert min(corners[:, 1].min() for _, corners in patches) == pytest.approx(
        HEIGHT - 90 - DOWN - UP, abs=0.06
    )


def test_colours_run_through_the_ramp_of_the_theme() -> None:
    for theme in ("light", "dark"):
        colours = list(height_colours(theme).values())
        assert (colours[0], colours[-1], len(colours)) == (
            RAMPS[theme][0],
            RAMPS[theme][-1],
            SHADES,
        )


def test_the_page_has_a_surface_for_every_model_and_nothing_that_its_policy_forbids() -> None:
    text = page(Inspection({"landscape": found}, {}, {}))
    side = found.about["options"]["points"]
    models = list(found.about["models"])
    assert len(polygons(text)) == len(models) * (side - 1) ** 2
    for model in models:
        assert f"Surface of the loss of {model}" in text
    assert "style=" not in surface_figure(found)
    places = [text.index(each) for each in ('id="landscape-0"', 'id="landscape-1"', 'surfaces">')]
    assert places == sorted(places)


def test_a_line_has_no_surface() -> None:
    line = replace(found, table=found.table.assign(y=np.nan))
    assert surface_figure(line) == ""


def test_figures_have_a_file_for_every_model(tmp_path: Path) -> None:
    two = found.table[found.table["model"].isin(["nano:vit", "nano:resnet"])]
    few = replace(found, table=two, views=found.views[:1])
    written = write_figures(Inspection({"landscape": few}, {}, {}), tmp_path, Guard())
    surfaces = {path.name for path in written if "surface" in path.name}
    assert surfaces == {
        f"landscape-surface-nano_{model}.{kind}"
        for model in ("vit", "resnet")
        for kind in ("svg", "pdf", "png")
    }
    assert all((tmp_path / name).stat().st_size > 1000 for name in surfaces)
