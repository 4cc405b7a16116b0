"""How a result is looked at, as plain data: it can be stored, tested, and drawn by more than one library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from vitreous.errors import UnknownName, VitreousError
from vitreous.results.column import Column

Mark = Literal["line", "heatmap", "bar", "scatter", "tiles"]
Axis = Literal["x", "y"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A line to compare with: chance, uniform attention, a paper's value."""

    value: float
    label: str
    axis: Literal["x", "y", "slope"] = "y"
    """The axis on which the value lies; a slope is the line y = value · x."""


@dataclass(frozen=True, slots=True)
class View:
    """One picture of a result. `x`, `y`, `colour`, `facet`, `detail`, `low`, `high` and `where` name columns."""

    mark: Mark
    x: str = ""
    y: str = ""
    colour: str = ""
    """A heat-map's value; otherwise what lines, points and bars are told apart by."""
    facet: str = ""
    """One panel for each of its values."""
    detail: str = ""
    """Separate lines of one colour, such as the heads of a model."""
    low: str = ""
    high: str = ""
    references: tuple[Reference, ...] = ()
    log: tuple[Axis, ...] = ()
    limits: tuple[float, float] | None = None
    """Ends of the y axis, or of a heat-map's colours; from the data where not given."""
    middle: float | None = None
    """Where a heat-map's two opposite colours meet; without it colours run from little to much."""
    bands: bool = False
    """Kinds of units behind an axis of depth."""
    where: str = ""
    """A column of yes and no: only rows that say yes are drawn."""
    array: str = ""
    """Tiles only: pictures, one for each row drawn; `x` says what is written above each, `facet` what above a group."""
    title: str = ""
    how_to_read: str = ""
    """Two sentences for who sees this kind of picture for the first time."""

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> View:
        """The inverse of `dataclasses.asdict`, also after JSON."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()
        }
        values["references"] = tuple(Reference(**each) for each in raw["references"])
        return cls(**values)

    def check(self, columns: Mapping[str, Column], arrays: Mapping[str, Any]) -> None:
        """Refuse what cannot be drawn, when the result is made and not when somebody looks at it."""
        if self.mark not in get_args(Mark):
            raise UnknownName(
                "mark", self.mark, get_args(Mark), f"Marks are {', '.join(get_args(Mark))}."
            )
        for role in ("x", "y", "colour", "facet", "detail", "low", "high", "where"):
            name = getattr(self, role)
            if name and name not in columns:
                raise UnknownName(
                    f"column (the view's {role})",
                    name,
                    columns,
                    f"Columns are {', '.join(columns)}.",
                )
        needed = {"heatmap": ("x", "y", "colour"), "tiles": ("array",)}.get(self.mark, ("x", "y"))
        missing = [role for role in needed if not getattr(self, role)]
        if missing or bool(self.low) != bool(self.high):
            lacks = " and ".join(missing) or "one of low and high"
            raise VitreousError(f"A {self.mark} view lacks {lacks}; name a column for each.")
        if self.mark == "tiles" and self.array not in arrays:
            raise UnknownName("array (the view's tiles)", self.array, arrays)
        if self.bands and (self.x != "depth" or not {"model", "unit", "kind"} <= set(columns)):
            raise VitreousError(
                f"A view has bands over {self.x!r}; they need x='depth' and columns model, unit and kind."
            )
