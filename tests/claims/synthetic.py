"""Results as a study would have them, made up: what a claim must say of them is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from vitreous.claims.evidence import EvidenceItem
from vitreous.claims.facts import check_facts, describe_facts
from vitreous.results import Column, Result

SPREAD = 1e-3
"""Half the width of an interval, where a row does not say it."""


class Case(NamedTuple):
    """Evidence on which a claim holds, and evidence on which it does not, of one training each.

    `weaker` is evidence of a smaller effect, where none lies on the way between the two.
    """

    holds: Sequence[EvidenceItem]
    fails: Sequence[EvidenceItem]
    weaker: Sequence[EvidenceItem] = ()


def three_seeds(items: Sequence[EvidenceItem]) -> list[EvidenceItem]:
    """The same evidence from three trainings, numbered one after the other."""
    step = 1 + max((item.seed for item in items), default=0)
    return [
        replace(item, facts={**item.facts, "seed": item.seed + step * number})
        for number in range(3)
        for item in items
    ]


def result(name: str, rows: Sequence[Mapping[str, Any]], classes: int = 10, **about: Any) -> Result:
    """A result with these rows; `low` and `high` are a little below and above `value` unless they
    are given."""
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


def item(
    model: str,
    *results: Result,
    data: str = "cifar10",
    seed: int = 0,
    other: str = "",
    **facts: Any,
) -> EvidenceItem:
    """A trained model with these results, which call it by its facts; rows that name no model are
    its own."""
    own = check_facts(model, facts)
    name = describe_facts(own)
    return EvidenceItem(
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


BATCHES, TOP = 60, 5


def hessian(nep: float = 0.0, ape: float = 1.0) -> Result:
    """Eigenvalues of batches, of which a share `nep` is negative and the others are `ape` in the
    mean."""
    count = BATCHES * TOP
    negative = set(np.linspace(0, count - 1, round(nep * count)).astype(int).tolist())
    rows = []
    for number in range(count):
        batch = number // TOP
        size = ape * (1 + 0.02 * (-1) ** batch)
        value = -size if number in negative else size
        rows.append({"measure": "eigenvalue", "batch": batch, "value": value})
    return result("hessian", rows)


LENGTHS = ("steps", "rate_sum")


def training(rows: Sequence[Mapping[str, Any]]) -> Result:
    """The record of a training: measure, epoch, value, and reading, layer and head where it has
    them. Unless rows say its length, it was long enough for every claim."""
    if not any(row["measure"] in LENGTHS for row in rows):
        rows = [*rows, *({"measure": each, "epoch": 0, "value": 1e6} for each in LENGTHS)]
    blank = {"reading": "", "layer": -1, "head": -1}
    full = [{**blank, **row, "low": row["value"], "high": row["value"]} for row in rows]
    return result("training", full, recipe={"decay": "matrices"})
