"""The table of a landscape: points, rings and statistics; its views, and a surface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import estimated
from vitreous.measure.resampling import Array
from vitreous.palette import RAMPS, Theme
from vitreous.results import (
    Column,
    Estimate,
    Reference,
    Result,
    View,
    estimate,
    style,
    wilson,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]

COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "part",
        "category",
        "`point` of the grid, `centre` (again, for the second axis), `ring` or `whole`.",
    ),
    Column("measure", "category", "What the value is, in words."),
    Column("x", "quantity", "Distance along the first direction.", label="first direction"),
    Column("y", "quantity", "Distance along the second direction.", label="second direction"),
    Column("radius", "quantity", "The larger of the two distances from the centre."),
    Column("direction", "category", "Axis that a point lies on: `first` or `second`."),
    Column(
        "along",
        "quantity",
        "Distance along that axis.",
        label="distance from the trained weights",
    ),
    Column("rise", "quantity", "NLL minus that of the trained weights.", label="rise of the NLL"),
    Column("rise_low", "quantity", "Lower end of the 95 % interval of the rise."),
    Column("rise_high", "quantity", "Upper end of the 95 % interval of the rise."),
    Column("accuracy", "quantity", "Share of images classified correctly."),
    Column("l2", "quantity", "½ · decay · ‖w‖²; for a ring, its rise.", label="L2"),
    Column("norms", "quantity", "Σ‖W‖, the sum of all norms; for a ring, its rise.", label="Σ‖W‖"),
    Column("point", "category", "Whether the row is a point of the grid."),
    Column("section", "category", "Whether the row is drawn along an axis."),
    Column("ring", "category", "Whether the row is a ring whose rise is significantly positive."),
    Column("border", "category", "Whether the row is the rise of a term at the border."),
    *estimate("NLL at a point; its rise on a ring; or the measure.", label="loss"),
)
"""One table for points, rings and statistics of the whole; `part` tells them apart."""


@dataclass(frozen=True)
class Heights:
    """Losses and norms at each point; the first axis of `nll` and `right` are replicates."""

    nll: Array
    right: Array
    l2: Array
    norms: Array
    decay: float
    count: int

    @property
    def centre(self) -> int:
        return self.nll.shape[1] // 2

    def rises(self) -> Array:
        return self.nll - self.nll[:, self.centre, None]


def join_heights(parts: Sequence[Numbers], count: int, decay: float) -> Heights:
    """Join the pieces of one model, in order; points whose loss is not finite become NaN."""
    joined = {
        key: np.concatenate([part[key].numpy() for part in parts])
        for key in ("nll", "right", "square", "norms")
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        nll, right = ((joined[key] / parts[0]["count"].numpy()).T for key in ("nll", "right"))
    nll = np.where(np.isfinite(nll[0]), nll, np.nan)
    return Heights(nll, right, 0.5 * decay * joined["square"], joined["norms"], decay, count)


def landscape_rows(where: Array, heights: Heights, classes: int) -> Iterator[Row]:
    """Yield the rows of one model: points, rings, statistics of the whole."""
    places = np.column_stack([where, np.zeros(len(where))])[:, :2].round(9)
    yield from _points(places, heights, one_dimensional=where.shape[1] == 1)
    for radius in sorted({float(x) for x in places[:, 0] if x > 0}):
        yield _ring(places, heights, radius)
    yield from _whole(places, heights, classes)


def _points(places: Array, heights: Heights, one_dimensional: bool) -> Iterator[Row]:
    losses = estimated(heights.nll, heights.count)
    rises = estimated(heights.rises(), heights.count)
    for i, (x, y) in enumerate(places.tolist()):
        axis = "first" if y == 0 else "second" if x == 0 else None
        row = _row(
            "point",
            "NLL",
            value=losses[i],
            rise=rises[i],
            n=heights.count,
            x=x,
            y=np.nan if one_dimensional else y,
            radius=max(abs(x), abs(y)),
            accuracy=heights.right[0, i],
            l2=heights.l2[i],
            norms=heights.norms[i],
            section=axis is not None,
        )
        yield row | {"direction": axis, "along": {"first": x, "second": y}.get(axis or "", np.nan)}
        if x == y == 0 and not one_dimensional:  # the centre lies on both axes
            yield row | {"direction": "second", "along": y, "part": "centre", "point": False}


def _ring(places: Array, heights: Heights, radius: float) -> Row:
    """Average over the points on the axes and diagonals of a square around the centre."""
    on = _on_ring(places, radius)
    rise = estimated(heights.rises()[:, on].mean(1), heights.count)
    return _row(
        "ring",
        "rise of the NLL",
        value=rise,
        rise=rise,
        n=heights.count,
        radius=radius,
        accuracy=heights.right[0, on].mean(),
        l2=_rise(heights.l2, on, heights.centre),
        norms=_rise(heights.norms, on, heights.centre),
        ring=bool(rise.value > 0 and not rise.low <= 0),  # drawn on a logarithmic axis
    )


def _on_ring(places: Array, radius: float) -> NDArray[np.intp]:
    """Return the numbers of the points at one distance, on the axes and diagonals."""
    return np.flatnonzero(np.isin(np.abs(places), [0, radius]).all(1) & (places != 0).any(1))


def _rise(values: Array, on: NDArray[np.intp], centre: int) -> float:
    return float(values[on].mean() - values[centre])


def _whole(places: Array, heights: Heights, classes: int) -> Iterator[Row]:
    """Yield the statistics of the whole landscape."""
    count, centre = heights.count, heights.centre
    nll = estimated(heights.nll[:, centre], count)
    yield _row("whole", "NLL of the centre", value=nll, n=count)
    right = heights.right[:, centre]
    accuracy = Estimate(*wilson(right[0] * count, count), right[1:])
    yield _row("whole", "accuracy of the centre", value=accuracy, n=count)

    border = _on_ring(places, np.abs(places).max())
    rise = estimated(heights.rises()[:, border].mean(1), count)
    l2 = _rise(heights.l2, border, centre)
    norms = heights.decay * _rise(heights.norms, border, centre)
    yield _row("whole", "rise of NLL", value=rise, border=True, n=count)
    yield _row("whole", "rise of L2", value=l2, border=True, n=count)
    yield _row("whole", "rise of norms", value=norms, border=True, n=count)

    finite = np.isfinite(heights.nll[0])
    statistics = {
        "share of points worse than guessing": np.mean(~finite | (heights.nll[0] > log(classes))),
        "share of points not finite": np.mean(~finite),
        "largest rise of the NLL": heights.rises()[0][finite].max(),
        "L2 of the centre": heights.l2[centre],
        "Σ‖W‖ of the centre": heights.norms[centre],
        "decay · Σ‖W‖ of the centre": heights.decay * heights.norms[centre],
    }
    for measure, value in statistics.items():
        yield _row("whole", measure, value=float(value), n=count)


def _row(part: str, measure: str, **entries: Any) -> Row:
    blank: Row = {"part": part, "measure": measure, "direction": None}
    for name in ("x", "y", "radius", "along", "rise", "accuracy", "l2", "norms"):
        blank[name] = np.nan
    flags = {"point": part == "point", "section": False, "ring": False, "border": False}
    return {**blank, **flags, **entries}


FILTERS = "moves every filter by its own length"
"""What a step of 1 does along directions that are normalised filter by filter."""


def landscape_views(dimensions: int, classes: int, step: str = FILTERS) -> tuple[View, ...]:
    """Return the views; a line has no map."""
    guessing = log(classes)
    views = (
        View(
            "heatmap", x="x", y="y", colour="value", facet="model", limits=(0.0, 2 * guessing),
            where="point",
            title="The loss around the trained weights",
            how_to_read=f"The trained weights are in the middle; a step of 1 {step}. Pale is a low "
            f"loss. The scale ends at twice the loss of guessing, {guessing:.2f}; grey cells are "
            "not finite. A wide pale basin is a flat minimum along these two directions.",
        ),
        View(
            "line", x="radius", y="rise", colour="model", low="rise_low", high="rise_high",
            where="ring", log=("y",),
            title="How fast the loss rises",
            how_to_read="Each point is the mean rise of the NLL over the points at one distance, "
            "two on each axis and diagonal, with its 95 % interval over images. The order of the "
            "models close to the centre and farther out need not be the same.",
        ),
        View(
            "line", x="along", y="value", colour="model", facet="direction", low="low", high="high",
            where="section", limits=(0.0, 2 * guessing),
            references=(Reference(guessing, "guessing"),),
            title="Sections through the trained weights",
            how_to_read="Each line is the NLL along one of the two directions, with its 95 % "
            "interval over images; it is cut off at twice the loss of guessing. A minimum that is "
            "not at 0 means that the weights were not trained on these images, or not to the end.",
        ),
        View(
            "scatter", x="measure", y="value", colour="model", low="low", high="high", log=("y",),
            where="border",
            title="What rises towards the border",
            how_to_read="By how much each term has risen at the border of the grid: the NLL, the "
            "L2 term ½ · decay · |w|², and decay · Σ‖W‖ (norms), which Park & Kim 2022 plot in its "
            "place. Where one of these is above the NLL, a plot of the sum shows the norm of the "
            "weights and not what the model has learned.",
        ),
    )  # fmt: skip
    return views if dimensions == 2 else views[1:]


def surface(result: Result, model: str = "", theme: Theme = "light") -> Figure:
    """Draw a landscape as a surface in three dimensions, cut off at twice the loss of guessing.

    Parameters
    ----------
    result
        Of the analysis `landscape`, in two dimensions.
    model
        Name of the model (default: the first).

    Examples
    --------
    >>> found = vitreous.analyse("nano:vit", "world:shapes", {"landscape": {"points": 11}})
    >>> surface(found["landscape"], "nano:vit")
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import LinearSegmentedColormap

    points = result.table[result.table["point"] & result.table["y"].notna()]
    models = list(dict.fromkeys(points["model"]))
    if not models:
        raise VitreousError(
            "A landscape of one dimension is a line, not a surface; use dimensions=2."
        )
    if model and model not in models:
        raise UnknownName("model of this landscape", model, models)
    model = model or models[0]
    grid = points[points["model"] == model].pivot(index="y", columns="x", values="value")
    top = (result.views[0].limits or (0.0, np.inf))[1]
    x, y = np.meshgrid(grid.columns, grid.index)
    with plt.rc_context(style.matplotlib(theme)):
        figure = plt.figure(figsize=(5, 4), layout="constrained")
        axes: Any = figure.add_subplot(projection="3d")
        ramp = LinearSegmentedColormap.from_list("vitreous", list(RAMPS[theme]))
        heights = np.minimum(grid.to_numpy(dtype=float), top)
        axes.plot_surface(
            x, y, heights, cmap=ramp, vmin=0, vmax=top, rstride=1, cstride=1, edgecolor="none"
        )
        axes.grid(False)
        axes.set(
            xlabel="first direction",
            ylabel="second direction",
            zlabel="NLL",
            zlim=(0, top),
            title=model,
        )
        axes.view_init(elev=35, azim=-55)
    return figure
