"""Charts of centred kernel alignment: a matrix of models, and layer by layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vitreous.results import View

if TYPE_CHECKING:
    import pandas as pd

MANY_PAIRS = 2
"""Above this number of pairs of models, the first chart is a matrix of means."""


def has_many_pairs(table: pd.DataFrame) -> bool:
    """Whether a table compares so many pairs of models that a matrix gives an overview."""
    sides = (table["model"].nunique(), table["other_model"].nunique())
    return table["pair"].nunique() > MANY_PAIRS and min(sides) > 1


MATRIX = View(
    "heatmap",
    x="other_model",
    y="model",
    colour="value",
    limits=(0.0, 1.0),
    matrix=True,
    opens="pair",
    title="Similarity of every two models (mean CKA)",
    how_to_read="Each cell is the mean CKA over all pairs of layers of two models; on the diagonal "
    "the two are one model. The next charts have every pair of layers.",
)
SELF = View(
    "heatmap",
    x="other_layer",
    y="layer",
    colour="value",
    facet="pair",
    where="within",
    limits=(0.0, 1.0),
    title="Similarity of representations within a model (CKA)",
    how_to_read="Each cell compares two layers on the same images, from 0 (nothing in common) to "
    "1 (the same up to rotation and scale). Dark blocks along the diagonal are stages that do "
    "similar things; an evenly dark square is a model whose layers change little.",
)
CROSS = replace(
    SELF,
    where="across",
    title="Similarity of representations between models (CKA)",
    how_to_read="Each cell compares a layer of one model with a layer of another on the same "
    "images. Where the darkest cells run, one model does at that depth what the other does at "
    "this one.",
)


def cka_views(table: pd.DataFrame) -> tuple[View, ...]:
    """Return the charts of a table of CKA; with many models an overview comes first."""
    across = table[table["across"]]
    if has_many_pairs(across):
        return MATRIX, SELF, CROSS
    return (SELF, CROSS) if len(across) else (SELF,)
