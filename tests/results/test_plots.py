"""The same views with matplotlib: figure and axes, the same colours and places, and no setting left
behind."""

from __future__ import annotations

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from results.conftest import MADE, VIEWS, distances, filters, reliability, similarity
from vitreous.errors import VitreousError
from vitreous.palette import KIND_COLOURS, PAPERS, Theme, model_colours
from vitreous.results import style


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_every_view_gives_figure_and_axes(name: str, view: int, theme: Theme) -> None:
    before = dict(mpl.rcParams)
    result = MADE[name]()
    fig, ax = result.plot(view=view, theme=theme)
    assert isinstance(fig, Figure)
    assert to_hex(fig.get_facecolor()) == PAPERS[theme][1].lower()
    assert dict(mpl.rcParams) == before
    faceted = result.views[view].facet
    assert len(ax) == 2 if faceted else isinstance(ax, Axes)
    fig.canvas.draw()


def test_drawing_into_given_axes() -> None:
    fig, mine = plt.subplots()
    got, ax = distances("vit").plot(mine)
    assert (got, ax) == (fig, mine)
    assert mine.get_ylabel() == "distance (pixels)"
    assert mine.get_title(loc="left") == "Distance"
    with pytest.raises(VitreousError, match="has 2 panels and was given one ax; leave ax out"):
        distances("vit", "convit").plot(mine, view=1)


def test_points_are_where_the_numbers_are() -> None:
    _, ax = distances("vit", "convit").plot()
    dots = [c for c in ax.collections if len(c.get_offsets()) == 6]
    assert len(dots) == 2
    np.testing.assert_allclose(
        dots[0].get_offsets(), [[b / 2, 10 * b + h] for b in range(3) for h in range(2)]
    )
    assert [to_hex(dot.get_facecolor()[0]) for dot in dots] == [
        colour.lower() for colour in model_colours(["vit", "convit"]).values()
    ]


def test_bands_are_where_they_belong() -> None:
    result = replace(
        distances("vit"), about={"units": {"vit": [["s", "stem", 0.0], ["a", "attention", 1.0]]}}
    )
    _, ax = result.plot()
    found = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert [(p.get_x(), p.get_width(), to_hex(p.get_facecolor())) for p in found] == [
        (-0.5, 1.0, KIND_COLOURS["stem"].lower()), (0.5, 1.0, KIND_COLOURS["attention"].lower()),
    ]  # fmt: skip
    assert ax.get_xlim() == (-0.5, 1.5)


def test_cells_are_where_the_numbers_are() -> None:
    _, ax = similarity().plot()
    cells = ax.images[0].get_array()
    assert np.isnan(cells.filled(np.nan)[1, 0]), "the row without a value: unit u0 across, u1 up"
    np.testing.assert_allclose(np.diag(cells), 1.0)
    assert cells[0, 3] == 0.25
    assert ax.get_facecolor()[3] == style.HOLE
    assert [label.get_text() for label in ax.get_xticklabels()] == ["u0", "u1", "u2", "u3"]


def test_bars_side_by_side() -> None:
    _, ax = reliability().plot()
    bars = sorted((b.get_x() + b.get_width() / 2, b.get_height()) for b in ax.patches)
    np.testing.assert_allclose(bars[:2], [[0.054, 0], [0.146, 0]])
    _, axes = distances("vit", "deit").plot(view=3)
    assert len(axes[0].patches) == 6
    np.testing.assert_allclose(
        sorted(b.get_x() + b.get_width() / 2 for b in axes[0].patches)[:2], [-0.2, 0.2]
    )


def test_ribbons_and_lines() -> None:
    _, axes = distances("vit", "deit").plot(view=1)
    assert [len(ax.lines) for ax in axes] == [6, 6], "with the edges of their ribbons"
    low = axes[0].collections[0].get_paths()[0].vertices[:, 1].min()
    assert low == -1
    assert axes[0].get_ylim() == axes[1].get_ylim()


def test_the_tenth_model_is_dashed() -> None:
    _, ax = distances(*(f"m{i}" for i in range(10))).plot(view=2)
    assert [line.get_linestyle() for line in ax.lines] == ["-"] * 16 + ["--"] * 4


def test_tiles_keep_their_pixels() -> None:
    _, ax = filters().plot()
    assert len(ax.images) == 5
    expected = np.round(255 * filters().arrays["tiles"][0])
    np.testing.assert_array_equal(ax.images[0].get_array(), expected)
