"""Results that compare two models: the matrix of one pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitreous.errors import UnknownName, VitreousError

if TYPE_CHECKING:
    import pandas as pd

    from vitreous.results.result import Result

NEEDED = ("model", "layer", "other_model", "other_layer")


def matrix_between(result: Result, one: str, other: str, column: str) -> pd.DataFrame:
    """Layers of `one` × layers of `other`, in the order of the models."""
    table = result.table
    if not set(NEEDED) <= set(table.columns):
        raise VitreousError(
            f"Result {result.name!r} does not compare pairs of units; that of 'cka' does."
        )
    result.column(column)
    models = list(dict.fromkeys([*table["model"], *table["other_model"]]))
    for name in (one, other):
        if name not in models:
            has = f"This result compares {', '.join(models)}"
            alone = " only; inspect both models together" if len(models) == 1 else ""
            raise UnknownName("model", str(name), models, f"{has}{alone}.")
    rows = table[(table["model"] == one) & (table["other_model"] == other)]
    turned = rows.empty  # the rows of the table belong to the model that was measured first
    if turned:
        rows = table[(table["model"] == other) & (table["other_model"] == one)]
    if rows.empty:
        raise VitreousError(
            f"Result {result.name!r} has {one!r} and {other!r} but not their pair; inspect both "
            "together."
        )
    down, right = (list(dict.fromkeys(rows[name])) for name in ("layer", "other_layer"))
    matrix = rows.pivot(index="layer", columns="other_layer", values=column)
    matrix = matrix.loc[down, right]
    matrix = matrix.T if turned else matrix
    return matrix.rename_axis(index=one, columns=other)
