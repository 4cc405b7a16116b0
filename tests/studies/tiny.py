"""A study that takes a moment, and what must be the same however it is done."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd

from vitreous import claims
from vitreous.claims.book import find_claim
from vitreous.results import Result
from vitreous.studies.plan import Cell, plan
from vitreous.studies.scales import Scale, scale_named

CLAIMS = [find_claim(claims.every_claim(), each) for each in ("SLC-31", "SLC-33")]


def tiny() -> Scale:
    """A scale at which a training takes a moment."""
    scale = scale_named("sanity")
    short = scale.recipe.but(epochs=1, warmup=0.0, batch=32)
    return replace(
        scale,
        recipe=short,
        images=replace(scale.images, size=64, test_size=32),
        image_counts={"erf": 4},
    )


def cells() -> list[Cell]:
    return [*_planned()]


@cache
def _planned() -> list[Cell]:
    return plan(CLAIMS, tiny(), "world:shapes", [0])


def tables(root: Path) -> dict[str, pd.DataFrame]:
    return {
        f"{path.parent.name}/{path.stem}": Result.load(path).table
        for path in sorted(root.glob("exhibits/*/*.json"))
        if path.name != "exhibit.json"
    }


@cache
def _known_tables(root: Path) -> dict[str, pd.DataFrame]:
    """Those of a finished study, which nobody changes, and many are compared with."""
    return tables(root)


def equal(one: Path, other: Path, checkpoints: str = "*") -> None:
    """Tables and weights, bit by bit."""
    found, wanted = tables(one), _known_tables(other)
    assert found.keys() == wanted.keys()
    for name, table in found.items():
        pd.testing.assert_frame_equal(table, wanted[name], check_exact=True)
    which = f"trainings/*/weights/{checkpoints}"
    weights = [
        {path.relative_to(root): path.read_bytes() for path in root.glob(which)}
        for root in (one, other)
    ]
    assert weights[0] == weights[1]
    assert weights[0]
