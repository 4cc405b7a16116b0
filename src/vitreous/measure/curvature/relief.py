"""What a landscape comes to: heights at every point, how fast they rise, and the statistics of table C5."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.partial import Numbers
from vitreous.measure.probe import interval
from vitreous.palette import RAMPS, Theme
from vitreous.results import Column, Reference, Result, View, estimate, style, wilson

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
Row = dict[str, Any]

COLUMNS = (
    Column("model", "category", "The model."),
    Column(
        "part",
        "category",
        "A point of the grid; a ring, the mean over a square around the centre; or the whole.",
    ),
    Column("measure", "category", "What the value is."),
    Column("x", "quantity", "How far along the first direction.", label="first direction"),
    Column("y", "quantity", "How far along the second direction.", label="second direction"),
    Column("radius", "quantity", "The larger of the two distances from the centre."),
    Column("direction", "category", "Of the points on an axis: which one they lie on."),
    Column(
        "along",
        "quantity",
        "Of the points on an axis: how far along.",
        label="distance from the trained weights",
    ),
    Column("rise", "quantity", "NLL minus that of the trained weights.", label="rise of the NLL"),
    Column(
        "rise_low", "quantity", "Lower end of the 95 % interval of the rise, over the same images."
    ),
    Column("rise_high", "quantity", "Upper end of the 95 % interval of the rise."),
    Column("accuracy", "quantity", "Share of the images that are right."),
    Column(
        "l2", "quantity", "½ · decay · |w|² over all parameters (of a ring: its rise).", label="L2"
    ),
    Column(
        "norms",
        "quantity",
        "Σ‖W‖, the norms of all parameters added up (of a ring: its rise).",
        label="Σ‖W‖",
    ),
    Column("point", "category", "Whether the row is a point of the grid."),
    Column("section", "category", "Whether the row is drawn in a section."),
    Column("ring", "category", "Whether the row is a ring whose loss has risen for sure."),
    Column(
        "border",
        "category",
        "Whether the row says what a term of the loss has risen by at the border.",
    ),
    *estimate("NLL at a point; its rise on a ring; or the measure.", label="loss"),
)
"""One table for points, rings and statistics of the whole, told apart by `part`."""


@dataclass(frozen=True)
class Heights:
    """What was found at each point; the first axis of `nll` and `right` are the resamplings of the images."""

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


def heights(parts: Sequence[Numbers], count: int, decay: float) -> Heights:
    """Of all pieces in order. What is not finite becomes NaN."""
    joined = {
        key: np.concatenate([part[key].numpy() for part in parts])
        for key in ("nll", "right", "square", "norms")
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        nll, right = ((joined[key] / parts[0]["count"].numpy()).T for key in ("nll", "right"))
    nll = np.where(np.isfinite(nll[0]), nll, np.nan)
    return Heights(nll, right, 0.5 * decay * joined["square"], joined["norms"], decay, count)


def rows(where: Array, found: Heights, classes: int) -> Iterator[Row]:
    """Rows of one model."""
    places = np.column_stack([where, np.zeros(len(where))])[:, :2].round(9)
    flat = where.shape[1] == 1
    yield from _points(places, found, flat)
    for radius in sorted({float(x) for x in places[:, 0] if x > 0}):
        yield _ring(places, found, radius)
    yield from _whole(places, found, classes)


def _points(places: Array, found: Heights, flat: bool) -> Iterator[Row]:
    heights, rises = interval(found.nll, found.count), interval(found.rises(), found.count)
    for i, (x, y) in enumerate(places.tolist()):
        ends = {
            "value": heights.mean[i],
            "low": heights.low[i],
            "high": heights.high[i],
            "n": found.count,
        }
        risen = {"rise": rises.mean[i], "rise_low": rises.low[i], "rise_high": rises.high[i]}
        on = "first" if y == 0 else "second" if x == 0 else None
        row = _row(
            "point",
            "NLL",
            **ends,
            **risen,
            x=x,
            y=np.nan if flat else y,
            radius=max(abs(x), abs(y)),
        )
        row |= {
            "accuracy": found.right[0, i],
            "l2": found.l2[i],
            "norms": found.norms[i],
            "section": on is not None,
        }
        yield row | {"direction": on, "along": {"first": x, "second": y}.get(on or "", np.nan)}
        if x == y == 0 and not flat:  # it lies on both axes
            yield row | {"direction": "second", "along": y, "part": "centre", "point": False}


def _ring(places: Array, found: Heights, radius: float) -> Row:
    """Mean over the points on the axes and diagonals of a square around the centre, as in table C5."""
    on = _on(places, radius)
    rise = interval(found.rises()[:, on].mean(1), found.count)
    above = {
        "ring": bool(rise.mean > 0 and not rise.low <= 0)
    }  # what is drawn on an axis of powers
    ends = {"value": rise.mean, "low": rise.low, "high": rise.high}
    more = {
        "l2": _risen(found.l2, on, found.centre),
        "norms": _risen(found.norms, on, found.centre),
    }
    same = {
        "rise": rise.mean,
        "rise_low": rise.low,
        "rise_high": rise.high,
        "accuracy": found.right[0, on].mean(),
    }
    return _row(
        "ring", "rise of the NLL", **ends, **same, **more, **above, radius=radius, n=found.count
    )


def _on(places: Array, radius: float) -> NDArray[np.intp]:
    return np.flatnonzero(np.isin(np.abs(places), [0, radius]).all(1) & (places != 0).any(1))


def _risen(values: Array, on: NDArray[np.intp], centre: int) -> float:
    return float(values[on].mean() - values[centre])


def _whole(places: Array, found: Heights, classes: int) -> Iterator[Row]:
    """The statistics of table C5, and those that HDV-11 is judged by."""
    middle, radius = found.centre, np.abs(places).max(1)
    accuracy = wilson(found.right[0, middle] * found.count, found.count)
    for measure, at in (
        ("NLL of the centre", interval(found.nll[:, middle], found.count)),
        ("accuracy of the centre", accuracy),
    ):
        ends = {"value": at.mean, "low": at.low, "high": at.high, "n": found.count}
        yield _row("whole", measure, **ends)
    on = _on(places, radius.max())
    rise = interval(found.rises()[:, on].mean(1), found.count)
    yield _row(
        "whole",
        "rise of NLL",
        value=rise.mean,
        low=rise.low,
        high=rise.high,
        border=True,
        n=found.count,
    )
    for measure, value in {
        "rise of L2": _risen(found.l2, on, middle),
        "rise of norms": found.decay * _risen(found.norms, on, middle),
    }.items():
        yield _row("whole", measure, value=value, border=True, n=found.count)
    known = np.isfinite(found.nll[0])
    rises = found.rises()[0]
    numbers = {
        "share of points worse than guessing": np.mean(~known | (found.nll[0] > log(classes))),
        "share of points not finite": np.mean(~known),
        "largest rise of the NLL": rises[known].max(),
        "L2 of the centre": found.l2[middle],
        "Σ‖W‖ of the centre": found.norms[middle],
        "decay · Σ‖W‖ of the centre": found.decay * found.norms[middle],
    }
    for measure, value in numbers.items():
        yield _row("whole", measure, value=float(value), n=found.count)


def _row(part: str, measure: str, **given: Any) -> Row:
    blank = {column.name: np.nan for column in COLUMNS if column.kind == "quantity"}
    flags = {"point": part == "point", "section": False, "ring": False, "border": False}
    return {**blank, "part": part, "measure": measure, "direction": None, **flags, **given}


FILTERS = "moves every filter by its own length"
"""What a step of 1 does along directions that are normalised filter by filter."""


def views(dimensions: int, classes: int, step: str = FILTERS) -> tuple[View, ...]:
    """How to look at it; a line has no map."""
    guessing = log(classes)
    found = (
        View(
            "heatmap", x="x", y="y", colour="value", facet="model", limits=(0.0, 2 * guessing), where="point",
            title="The loss around the trained weights",
            how_to_read=f"The trained weights are in the middle; a step of 1 {step}. Pale is a low loss; "
            f"guessing has {guessing:.2f}, half-way up the scale, which ends at twice that, and grey "
            "cells are not finite. A wide pale basin is a flat minimum along these two directions.",
        ),
        View(
            "line", x="radius", y="rise", colour="model", low="rise_low", high="rise_high", where="ring",
            log=("y",),
            title="How fast the loss rises",
            how_to_read="Each point is the mean rise of the NLL over the points at one distance, two on each axis and "
            "diagonal, and its 95 % interval over images. Look at the order of the models close to the centre and "
            "farther out: they need not be the same.",
        ),
        View(
            "line", x="along", y="value", colour="model", facet="direction", low="low", high="high", where="section",
            limits=(0.0, 2 * guessing), references=(Reference(guessing, "guessing"),),
            title="Sections through the trained weights",
            how_to_read="Each line is the NLL along one of the two directions, with its 95 % interval over images; "
            "what is higher than twice guessing is drawn at the edge. A minimum that is not at 0 means that the "
            "weights were not trained on these images, or not to the end.",
        ),
        View(
            "scatter", x="measure", y="value", colour="model", low="low", high="high", log=("y",), where="border",
            title="What rises towards the border",
            how_to_read="By how much each term has risen at the border of the grid: the NLL, the L2 term ½ · decay · "
            "|w|², and decay · Σ‖W‖ (norms), which Park and Kim plot in its place. Where one of these lies above the "
            "NLL, a picture of the sum shows the norm of the weights and not what the model has learned.",
        ),
    )  # fmt: skip
    return found if dimensions == 2 else found[1:]


def surface(result: Result, model: str = "", theme: Theme = "light") -> Figure:
    """A landscape as a surface in three dimensions, cut off at twice the loss of guessing; of the first model, if
    none is named."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import LinearSegmentedColormap

    points = result.table[result.table["point"] & result.table["y"].notna()]
    known = list(dict.fromkeys(points["model"]))
    if not known:
        raise VitreousError(
            "A landscape of one dimension is a line and no surface; ask with dimensions=2."
        )
    if model and model not in known:
        raise UnknownName("model of this landscape", model, known)
    grid = points[points["model"] == (model or known[0])].pivot(
        index="y", columns="x", values="value"
    )
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
            title=model or known[0],
        )
        axes.view_init(elev=35, azim=-55)
    return figure
