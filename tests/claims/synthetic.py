"""Results as a study would have them, made up: what a claim must say of them is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from vitreous.claims.evidence import Exhibit
from vitreous.claims.facts import checked, told
from vitreous.results import Column, Result

SPREAD = 1e-3
"""Half the width of an interval, where a row does not say it."""


class Case(NamedTuple):
    """Evidence that must support a claim, and evidence that must refute it."""

    supported: Sequence[Exhibit]
    refuted: Sequence[Exhibit]


def result(name: str, rows: Sequence[Mapping[str, Any]], classes: int = 10, **about: Any) -> Result:
    """A result with these rows; `low` and `high` are a little below and above `value` unless they are given."""
    table = pd.DataFrame(list(rows))
    if "value" in table and "low" not in table:
        table["low"], table["high"] = table["value"] - SPREAD, table["value"] + SPREAD
    columns = tuple(Column(str(each), _kind(table[each]), "Made up.") for each in table)
    given = {
        "versions": {"vitreous": "0"},
        "data": {"fingerprint": "0", "classes": classes},
        **about,
    }
    return Result(name, table, columns, about=given)


def _kind(values: pd.Series) -> Any:
    return "quantity" if is_numeric_dtype(values) and not is_bool_dtype(values) else "category"


def exhibit(
    model: str,
    *results: Result,
    data: str = "cifar10",
    seed: int = 0,
    other: str = "",
    **facts: Any,
) -> Exhibit:
    """A trained model with these results, which call it by its facts; rows that name no model are its own."""
    own = checked(model, facts)
    name = told(own)
    return Exhibit(
        {**own, "data": data, "seed": seed}, {r.name: _of(r, name) for r in results}, name, other
    )


def _of(given: Result, name: str) -> Result:
    if "model" in given.table:
        return given
    table = given.table.assign(model=name)
    return Result(
        given.name,
        table,
        (*given.columns, Column("model", "category", "Made up.")),
        about=given.about,
    )


def accuracy(percent: float, **about: Any) -> Result:
    row = {"measure": "top-1", "class": "all", "overall": True, "value": percent / 100}
    return result("accuracy", [row], **about)


def hessian(nep: float = 0.0, ape: float = 1.0) -> Result:
    return result("hessian", [{"measure": "NEP", "value": nep}, {"measure": "APE", "value": ape}])


def training(rows: Sequence[Mapping[str, Any]]) -> Result:
    """The record of a training: measure, epoch, value, and reading, layer and head where it has them."""
    blank = {"reading": "", "layer": -1, "head": -1}
    return result(
        "training", [{**blank, **row, "low": row["value"], "high": row["value"]} for row in rows]
    )
