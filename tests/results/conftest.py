"""Results made by hand, of every shape that is drawn."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ["MPLBACKEND"] = "Agg"

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from vitreous.results import UNIT_COLUMNS, Column, Reference, Result, View, estimate


@pytest.fixture(autouse=True)
def _figures_are_closed() -> Iterator[None]:
    yield
    plt.close("all")


def distances(*models: str) -> Result:
    """Three attention units and two heads a model, as `attention_distance` will say it."""
    rows = [
        {"model": model, "unit": f"blocks.{b}.attn", "kind": "attention", "stage": 1,
         "depth": b / 2, "head": head, "value": 10.0 * b + head, "low": 10.0 * b + head - 1,
         "high": 10.0 * b + head + 1, "n": 64}
        for model in models for b in range(3) for head in range(2)
    ]  # fmt: skip
    value = estimate("Mean distance.", label="distance", measure="pixels")
    columns = (*UNIT_COLUMNS, Column("head", "order", "The head."), *value)
    uniform = (Reference(21.5, "uniform attention"),)
    views = (
        View(
            "scatter",
            "depth",
            "value",
            "model",
            low="low",
            high="high",
            references=uniform,
            bands=True,
            title="Distance",
        ),
        View("line", "depth", "value", "head", facet="model", low="low", high="high", bands=True),
        View("line", "depth", "value", "model", detail="head", log=("y",)),
        View("bar", "unit", "value", "head", facet="model", low="low", high="high"),
    )
    about = {
        "seed": 0,
        "models": {model: {"fingerprint": "ab"} for model in models},
        "seconds": 1.5,
        "date": "today",
    }
    return Result("attention_distance", pd.DataFrame(rows), columns, views, about=about)


def similarity(size: int = 4) -> Result:
    """A heat-map with a hole in it."""
    table = pd.DataFrame(
        [
            {"unit": f"u{i}", "other": f"u{j}", "value": 1 / (1 + abs(i - j))}
            for i in range(size)
            for j in range(size)
        ]
    )
    table.loc[1, "value"] = np.nan
    columns = (
        Column("unit", "order", "One."),
        Column("other", "order", "The other."),
        Column("value", "quantity", "CKA.", label="CKA"),
    )
    views = (
        View("heatmap", "unit", "other", "value", limits=(0, 1)),
        View("heatmap", "unit", "other", "value", middle=0.5),
    )
    return Result("cka", table, columns, views)


def reliability() -> Result:
    """Bars over a quantity, and the line of who is as sure as right."""
    rows = [
        {"model": m, "confidence": (b + 0.5) / 5, "value": b / 5}
        for m in ("a", "b")
        for b in range(5)
    ]
    columns = (
        UNIT_COLUMNS[0],
        Column("confidence", "quantity", "Middle of the bin."),
        Column("value", "quantity", "Share right."),
    )
    right = Reference(1.0, "as sure as right", "slope")
    return Result(
        "calibration",
        pd.DataFrame(rows),
        columns,
        (View("bar", "confidence", "value", "model", references=(right,)),),
    )


def spectrum() -> Result:
    """Lines coloured by a number."""
    rows = [
        {"depth": d / 4, "frequency": f / 7, "value": -d * f / 4}
        for d in range(5)
        for f in range(8)
    ]
    columns = (
        UNIT_COLUMNS[4],
        Column("frequency", "quantity", "Frequency.", "π"),
        Column("value", "quantity", "Log amplitude."),
    )
    views = (
        View("line", "frequency", "value", "depth", references=(Reference(0.5, "half", "x"),)),
    )
    return Result("fourier", pd.DataFrame(rows), columns, views)


def filters() -> Result:
    """Pictures, one a row."""
    table = pd.DataFrame({"component": [1, 2, 3, 4, 5], "value": [0.5, 0.2, 0.1, 0.1, 0.1]})
    columns = (
        Column("component", "order", "Number of the component."),
        Column("value", "quantity", "Share of energy."),
    )
    tiles = np.linspace(0, 1, 5 * 6 * 6 * 3).reshape(5, 6, 6, 3)
    return Result(
        "filters", table, columns, (View("tiles", "component", array="tiles"),), {"tiles": tiles}
    )


MADE = {
    "distances": lambda: distances("vit", "convit"),
    "similarity": similarity,
    "reliability": reliability,
    "spectrum": spectrum,
    "filters": filters,
}
VIEWS = [(name, view) for name, make in MADE.items() for view in range(len(make().views))]
"""Every view of every result above."""
