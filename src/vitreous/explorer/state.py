"""The state of the page as plain data: image, changes of the image, edits, query, unit.

A state comes from a browser and is not trusted: a value of the wrong type or out of range raises an
error with a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, NamedTuple

from vitreous.data.corruptions import KINDS
from vitreous.errors import UnknownName, VitreousError

What = Literal["off", "skip", "uniform", "mean", "box"]
WHATS: tuple[What, ...] = ("off", "skip", "uniform", "mean", "box")
MAX_EDITS = 200
MAX_BOXES = 50
MAX_NAME = 300


class BadState(VitreousError):
    """An invalid state, which our page never sends."""


class UnitEdit(NamedTuple):
    """One edit of one unit: switched off, without its skip, or with other attention."""

    model: int
    unit: str
    what: What


class Noise(NamedTuple):
    """Noise in a frequency band; frequency and width are shares of the Nyquist frequency."""

    frequency: float
    width: float
    strength: float
    """Root mean square after the filter, for levels from 0 to 1."""


class Rectangle(NamedTuple):
    """A rectangle in shares of the image."""

    top: float
    left: float
    bottom: float
    right: float


@dataclass(frozen=True)
class Changes:
    """Changes of an image before a model gets it; none by default."""

    corruption: tuple[str, int] | None = None
    """Name and severity."""
    low_pass: float = 1.0
    """Cut-off as a share of Nyquist's frequency; 1 keeps everything."""
    high_pass: float = 0.0
    """Cut-off as a share of Nyquist's frequency; 0 keeps everything."""
    noise: Noise | None = None
    boxes: tuple[Rectangle, ...] = ()

    def __bool__(self) -> bool:
        return self != Changes()


class Place(NamedTuple):
    """A point of the image in shares of its height and width."""

    row: float
    column: float


@dataclass(frozen=True)
class State:
    """Everything a view depends on."""

    image: str
    changes: Changes = Changes()
    edits: tuple[UnitEdit, ...] = ()
    mirror: bool = False
    """Whether edits of one model are made in the other, too, at the same relative depth."""
    query: Place | None = None
    """The query of attention; None is the class token, or all patches if there is none."""
    unit: tuple[int, str] | None = None
    """Model and name of the unit whose stream is shown."""


def parse_state(raw: Any) -> State:
    """Check and convert a state that a page has sent.

    Examples
    --------
    >>> parse_state({"image": "d0", "changes": {"low_pass": 0.5}}).changes.low_pass
    0.5
    """
    given = _mapping(raw, "A state")
    query = given.get("query", "class")
    return State(
        image=_word(given.get("image"), "image"),
        changes=parse_changes(given.get("changes")),
        edits=_edits(given.get("edits")),
        mirror=_flag(given.get("mirror", False), "mirror"),
        query=None if query in ("class", None) else Place(*_shares(query, "query", 2)),
        unit=_unit(given.get("unit")),
    )


def parse_changes(raw: Any) -> Changes:
    """Check and convert image changes that a page has sent; missing keys are no change."""
    given = _mapping({} if raw is None else raw, "changes")
    low, high = given.get("low_pass"), given.get("high_pass")
    return Changes(
        corruption=_corruption(given.get("corruption")),
        low_pass=1.0 if low is None else _share(low, "low_pass"),
        high_pass=0.0 if high is None else _share(high, "high_pass"),
        noise=_noise(given.get("noise")),
        boxes=_boxes(given.get("boxes")),
    )


def _corruption(raw: Any) -> tuple[str, int] | None:
    if raw is None:
        return None
    given = _mapping(raw, "corruption")
    name, severity = _word(given.get("name"), "corruption"), given.get("severity")
    if name not in KINDS:
        raise UnknownName("corruption", name, KINDS)
    if isinstance(severity, bool) or not isinstance(severity, int) or not 1 <= severity <= 5:
        raise BadState("The severity of a corruption is a whole number from 1 to 5.")
    return name, severity


def _noise(raw: Any) -> Noise | None:
    if raw is None:
        return None
    given = _mapping(raw, "noise")
    noise = Noise(*(_share(given.get(name), f"noise.{name}") for name in Noise._fields))
    return noise if noise.strength > 0 else None


def _boxes(raw: Any) -> tuple[Rectangle, ...]:
    boxes = []
    for each in _items(raw, "boxes", MAX_BOXES):
        box = Rectangle(*_shares(each, "A box", 4))
        if box.top > box.bottom or box.left > box.right:
            raise BadState("A box is [top, left, bottom, right], in this order.")
        boxes.append(box)
    return tuple(boxes)


def _edits(raw: Any) -> tuple[UnitEdit, ...]:
    edits = []
    for each in _items(raw, "edits", MAX_EDITS):
        given = _mapping(each, "An edit")
        what = given.get("what")
        if what not in WHATS:
            raise BadState(f"An edit is one of {', '.join(WHATS)}.")
        unit = _word(given.get("unit"), "unit")
        edits.append(UnitEdit(_number(given.get("model", 0), "model"), unit, what))
    return tuple(dict.fromkeys(edits))  # without duplicates


def _unit(raw: Any) -> tuple[int, str] | None:
    if raw is None:
        return None
    given = _mapping(raw, "unit")
    return _number(given.get("model", 0), "model"), _word(given.get("name"), "unit")


def _mapping(raw: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise BadState(f"{what} has to be an object.")
    return raw


def _items(raw: Any, what: str, most: int) -> Sequence[Any]:
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise BadState(f"{what} has to be a list.")
    if len(raw) > most:
        raise BadState(f"There are {len(raw)} {what}; at most {most} fit into a view.")
    return raw


def _word(raw: Any, what: str) -> str:
    if not isinstance(raw, str) or not 0 < len(raw) <= MAX_NAME:
        raise BadState(f"The name of {what} is missing or has the wrong type.")
    return raw


def _flag(raw: Any, what: str) -> bool:
    if not isinstance(raw, bool):
        raise BadState(f"{what} is true or false.")
    return raw


def _number(raw: Any, what: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw < 1000:
        raise BadState(f"The number of a {what} counts from 0.")
    return raw


def _share(raw: Any, what: str) -> float:
    is_number = isinstance(raw, (int, float)) and not isinstance(raw, bool)
    if not is_number or not isfinite(raw) or not 0 <= raw <= 1:
        raise BadState(f"{what} takes numbers from 0 to 1.")
    return float(raw)


def _shares(raw: Any, what: str, count: int) -> list[float]:
    if not isinstance(raw, list) or len(raw) != count:
        raise BadState(f"{what} takes {count} numbers from 0 to 1.")
    return [_share(each, what) for each in raw]
