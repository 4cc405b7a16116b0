"""Options of models and fields of recipes: tested against the types they declare, and brought to plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

KINDS = {
    int: "a whole number",
    float: "a number",
    str: "a word",
    bool: "true or false",
    NoneType: "None",
}


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says; True is not a number, and neither is NaN."""
    if get_origin(hint) in (Union, UnionType):
        return any(fits(value, option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return any(type(value) is type(option) and value == option for option in get_args(hint))
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        if not isinstance(value, (tuple, list)):
            return False
        each = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(each) and all(map(fits, value, each))
    if get_origin(hint) is Sequence:
        return isinstance(value, (tuple, list)) and all(
            fits(each, get_args(hint)[0]) for each in value
        )
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, get_origin(hint) or hint)


def words(hint: Any) -> str:
    """An annotation as a reader would say it."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(words(option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(option) for option in get_args(hint))
    if get_origin(hint) in (tuple, Sequence):
        inner = words(get_args(hint)[0]).removeprefix("a ").removeprefix("one of ")
        return f"a list of {inner}" if inner.endswith("'") else f"a list of {inner}s"
    if hint in KINDS:
        return KINDS[hint]
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint)


def plain(value: Any) -> Any:
    """Lists become tuples, so that what is read from JSON is what was written."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value
