"""Columns say what they hold, so that axes, tooltips and tables of contents need not be written twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from vitreous.errors import VitreousError

ColumnKind = Literal["quantity", "category", "order"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result: a quantity lies on an axis, a category has names, an order has names that follow each
    other (blocks, heads, bins)."""

    name: str
    kind: ColumnKind
    says: str
    """What it holds, in one sentence."""
    measure: str = ""
    """What a quantity is measured in: pixels, π, %."""
    label: str = ""
    """What to write on an axis; the name, where nothing is given."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise VitreousError(
                f"A column is called {self.name!r}; use letters, digits and underscores only."
            )
        if self.kind not in get_args(ColumnKind):
            raise VitreousError(
                f"Column {self.name!r} is a {self.kind!r}; it has to be a quantity, a category or an order."
            )

    @property
    def title(self) -> str:
        """As on an axis: `distance (pixels)`."""
        label = self.label or self.name.replace("_", " ")
        return f"{label} ({self.measure})" if self.measure else label


UNIT_COLUMNS = (
    Column("model", "category", "The model, by the name it was opened with."),
    Column("unit", "order", "The unit, by its module path."),
    Column("kind", "category", "What the unit computes."),
    Column("stage", "order", "The stage the unit is in; 0 is the stem."),
    Column(
        "depth", "quantity", "Position among the model's units, 0 for the first and 1 for the last."
    ),
)
"""Where in a model a row was measured; the first columns of a table."""


def estimate(
    says: str, *, label: str = "", measure: str = ""
) -> tuple[Column, Column, Column, Column]:
    """A measured value, its interval and the number of images it rests on; the last columns of a table."""
    label = label or "value"
    return (
        Column("value", "quantity", says, measure, label),
        Column("low", "quantity", "Lower end of the 95 % interval.", measure, f"{label}, low"),
        Column("high", "quantity", "Upper end of the 95 % interval.", measure, f"{label}, high"),
        Column("n", "quantity", "Number of images."),
    )


FIRST = tuple(column.name for column in UNIT_COLUMNS)
LAST = ("value", "low", "high", "n")


def ordered(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of columns in the order of every table: where, what in particular, how much."""
    own = [name for name in names if name not in FIRST + LAST]
    return (*(n for n in FIRST if n in names), *own, *(n for n in LAST if n in names))
