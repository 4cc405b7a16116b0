"""Declared columns: what each holds, in which unit, and how an axis calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from vitreous.errors import VitreousError

ColumnKind = Literal["quantity", "category", "order"]


@dataclass(frozen=True, slots=True)
class Column:
    """The declaration of one column.

    Parameters
    ----------
    name
        As in the table.
    kind
        "quantity" for numbers on an axis, "category" for names, "order" for names that follow each
        other (blocks, heads, bins).
    says
        What it holds, in one sentence.
    measure
        The unit of a quantity: pixels, π, %.
    label
        The label of an axis (default: the name).

        Examples
        --------
        >>> Column("distance", "quantity", "Attention-weighted distance.", measure="pixels").title
        'distance (pixels)'
    """

    name: str
    kind: ColumnKind
    says: str
    measure: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise VitreousError(
                f"A column is called {self.name!r}; use letters, digits and underscores only."
            )
        if self.kind not in get_args(ColumnKind):
            raise VitreousError(
                f"Column {self.name!r} is a {self.kind!r}; it has to be a quantity, a category or "
                "an order."
            )

    @property
    def title(self) -> str:
        """Return the label with its unit, as `distance (pixels)`."""
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
"""The first columns of a table: the unit of the model that a row is about."""


def estimate(
    says: str, *, label: str = "", measure: str = ""
) -> tuple[Column, Column, Column, Column]:
    """Return the last columns of a table: a value, its 95 % interval and the number of images.

    Examples
    --------
    >>> [column.name for column in estimate("Mean distance.", measure="pixels")]
    ['value', 'low', 'high', 'n']
    """
    label = label or "value"
    return (
        Column("value", "quantity", says, measure, label),
        Column("low", "quantity", "Lower end of the 95 % interval.", measure, f"{label}, low"),
        Column("high", "quantity", "Upper end of the 95 % interval.", measure, f"{label}, high"),
        Column("n", "quantity", "Number of images."),
    )


FIRST = tuple(column.name for column in UNIT_COLUMNS)
LAST = ("value", "low", "high", "n")


def column_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return column names in the order of every table: unit, details, value with interval."""
    first = [name for name in FIRST if name in names]
    last = [name for name in LAST if name in names]
    return (*first, *(name for name in names if name not in FIRST + LAST), *last)
