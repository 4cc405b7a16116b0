"""Views: how to draw a result, as data that can be stored and drawn by more than one library."""

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
    """A line to compare with: chance, uniform attention, the value of a paper."""

    value: float
    label: str
    axis: Literal["x", "y", "slope"] = "y"
    """The axis on which the value lies; a slope is the line y = value · x."""


@dataclass(frozen=True, slots=True)
class View:
    """One figure of a result; `x`, `y`, `colour`, `facet`, `detail`, `low`, `high` and `where` are
    names of columns."""

    mark: Mark
    x: str = ""
    y: str = ""
    colour: str = ""
    """The value of a heat-map; otherwise what distinguishes lines, points and bars."""
    facet: str = ""
    """One panel for each of its values."""
    detail: str = ""
    """Separate lines of one colour, such as the heads of a model."""
    low: str = ""
    high: str = ""
    references: tuple[Reference, ...] = ()
    log: tuple[Axis, ...] = ()
    limits: tuple[float, float] | None = None
    """Limits of the y axis, or of the colours of a heat-map (default: from the data)."""
    middle: float | None = None
    """The centre of a diverging colour scale of a heat-map (default: a sequential scale)."""
    bands: bool = False
    """Whether to show the kinds of units as bands behind an axis of depth."""
    where: str = ""
    """A column of booleans: only rows with True are drawn."""
    array: str = ""
    """Tiles only: the array of images, one for each row; `x` labels each, `facet` each group."""
    title: str = ""
    how_to_read: str = ""
    """Two sentences for readers who see this kind of figure for the first time."""

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> View:
        """Return the view of which `raw` is `dataclasses.asdict`, also after JSON."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()
        }
        values["references"] = tuple(Reference(**each) for each in raw["references"])
        return cls(**values)

    def check(self, columns: Mapping[str, Column], arrays: Mapping[str, Any]) -> None:
        """Raise if the view cannot be drawn: when the result is made, not when it is drawn."""
        if self.mark not in get_args(Mark):
            marks = get_args(Mark)
            raise UnknownName("mark", self.mark, marks, f"Marks are {', '.join(marks)}.")
        for role in ("x", "y", "colour", "facet", "detail", "low", "high", "where"):
            name = getattr(self, role)
            if name and name not in columns:
                hint = f"Columns are {', '.join(columns)}."
                raise UnknownName(f"column (the view's {role})", name, columns, hint)
        needed = {"heatmap": ("x", "y", "colour"), "tiles": ("array",)}.get(self.mark, ("x", "y"))
        missing = [role for role in needed if not getattr(self, role)]
        if missing or bool(self.low) != bool(self.high):
            lacks = " and ".join(missing) or "one of low and high"
            raise VitreousError(f"A {self.mark} view lacks {lacks}; name a column for each.")
        if self.mark == "tiles" and self.array not in arrays:
            raise UnknownName("array (the view's tiles)", self.array, arrays)
        if self.bands and (self.x != "depth" or not {"model", "unit", "kind"} <= set(columns)):
            raise VitreousError(
                f"A view has bands over {self.x!r}; they need x='depth' and columns model, unit "
                "and kind."
            )


def depth_view(y: str = "value", **rest: Any) -> View:
    """Return a view of one number by depth: a line for each model, with its interval.

    Parameters
    ----------
    y
        The column; its interval is in `low` and `high`, or for another than `value` in the columns
        with these endings.
    rest
        Other fields of the view.

    Examples
    --------
    >>> depth_view("cosine", facet="token", title="Does the branch agree with the skip?")
    """
    low, high = ("low", "high") if y == "value" else (f"{y}_low", f"{y}_high")
    return View("line", x="depth", y=y, colour="model", low=low, high=high, bands=True, **rest)
