"""Views: how to draw a result, as data that can be stored and drawn by more than one library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from vitreous.errors import UnknownName, VitreousError
from vitreous.results.column import Column

Mark = Literal["line", "heatmap", "bar", "scatter", "tiles"]
Axis = Literal["x", "y"]
TOOLTIP_LINES = 5
"""Maximum number of lines in the tooltip of a mark."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A line to compare with: chance, uniform attention, the value of a paper.

    Examples
    --------
    >>> Reference(0.1, "chance").axis
    'y'
    """

    value: float
    label: str
    axis: Literal["x", "y", "slope"] = "y"
    """The axis on which the value lies; a slope is the line y = value · x."""


@dataclass(frozen=True, slots=True)
class View:
    """One figure of a result; `x`, `y`, `colour`, `facet`, `detail`, `size`, `low`, `high`, `sort`,
    `opens` and `where` are names of columns.

    Examples
    --------
    >>> view = View("line", x="depth", y="value", low="low", high="high", colour="model")
    >>> view.mark, view.references
    ('line', ())
    """

    mark: Mark
    x: str = ""
    y: str = ""
    colour: str = ""
    """The value of a heat-map; otherwise what distinguishes lines, points and bars."""
    facet: str = ""
    """One panel for each of its values."""
    detail: str = ""
    """Separate lines of one colour, such as the heads of a model."""
    size: str = ""
    """A quantity that the area of points shows, such as the number of images in a bin."""
    low: str = ""
    high: str = ""
    references: tuple[Reference, ...] = ()
    log: tuple[Axis, ...] = ()
    limits: tuple[float, float] | None = None
    """Limits of the y axis, or of the colours of a heat-map (default: from the data)."""
    middle: float | None = None
    """The centre of a diverging colour scale of a heat-map (default: a sequential scale)."""
    bands: bool = False
    """Whether to show the kinds of units as a strip along an axis of depth."""
    filled: bool = False
    """Whether to fill the area under lines, for densities."""
    zoomed: bool = False
    """Whether the title of the value axis says that it does not begin at zero, for shares."""
    square: bool = False
    """Whether both axes have the `limits` and the same length."""
    free: bool = False
    """Whether every panel has limits of its own, for panels of different measures."""
    matrix: bool = False
    """Heat-maps only: rows at one place are averaged, for a matrix of models. Where rows and
    columns are the same models, a value is shown on both sides of the diagonal."""
    sort: str = ""
    """A quantity: bars, or the rows of a heat-map, are in the order of its mean, from the highest
    on."""
    opens: str = ""
    """A column that is the facet of a later view: a mark of this view leads to the panel of that
    one with the same entry."""
    where: str = ""
    """A column of booleans: only rows with True are drawn."""
    array: str = ""
    """Tiles only: the array of images, one for each row; `x` labels each, `facet` each group."""
    tooltip: tuple[str, ...] = ()
    """Columns in the tooltip of a mark, at most five (default: `tooltip_columns` chooses)."""
    label: str = ""
    """Title of the value axis (default: that of its column)."""
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
        roles = (
            "x", "y", "colour", "facet", "detail", "size", "low", "high", "sort", "opens", "where",
        )  # fmt: skip
        named = [(role, getattr(self, role)) for role in roles if getattr(self, role)]
        for role, name in (*named, *(("tooltip", each) for each in self.tooltip)):
            if name not in columns:
                hint = f"Columns are {', '.join(columns)}."
                raise UnknownName(f"column (the view's {role})", name, columns, hint)
        if len(self.tooltip) > TOOLTIP_LINES:
            raise VitreousError(
                f"A view has {len(self.tooltip)} columns in its tooltip; it has room for "
                f"{TOOLTIP_LINES}."
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


def interval_ends(name: str, columns: Mapping[str, Column]) -> tuple[str, str] | None:
    """Return the columns with the interval of a column; None if there are none."""
    ends = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
    return ends if set(ends) <= set(columns) else None


def tooltip_columns(view: View, columns: Mapping[str, Column]) -> list[str]:
    """Return the columns in the tooltip of a mark: those of the view, or what tells it apart.

    A unit stands for its depth. The interval of a quantity is shown with it and takes no line.
    """
    if view.tooltip:
        return list(view.tooltip)
    value = view.colour if view.mark == "heatmap" else view.y
    names = [value, "model", view.y, view.x, view.facet, view.colour, view.detail, "unit"]
    names += ["head", view.size, "n"]
    hidden = {"", "depth"} if "unit" in columns else {""}
    hidden |= {"pair"} if {"model", "other_model"} <= set(columns) and not view.opens else set()
    known = [name for name in dict.fromkeys(names) if name in columns and name not in hidden]
    chosen = known[:TOOLTIP_LINES]
    order = ["model", "unit", "head", view.facet, view.detail, view.colour, view.x, view.y]
    place = {name: i for i, name in enumerate(dict.fromkeys(order)) if name != value}
    return sorted(chosen, key=lambda name: place.get(name, 90 if name == value else 99))
