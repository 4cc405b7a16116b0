"""Checks of arguments and options: against their annotations, and against the ranges of common
numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import inf, isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from vitreous.errors import VitreousError

type_hints = cache(get_type_hints)
"""The annotations of a class or function. They are strings, which `get_type_hints` compiles anew
in every call."""

_TYPES_IN_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a word",
    bool: "true or false",
    NoneType: "None",
}

_RANGES: dict[str, tuple[float, float, str]] = {
    "seed": (0, 2**63 - 1, "a whole number from 0 to 2^63 - 1"),
    "limit": (1, inf, "at least one image, or 'all'"),
    "size": (1, inf, "at least one image"),
    "test_size": (1, inf, "at least one image"),
    "batch": (1, inf, "at least one image"),
    "shard": (1, inf, "at least one image"),
    "seeds": (1, 10**6, "at least one training of each model"),
    "workers": (1, 4096, "at least one process"),
    "until": (0, inf, "a number of minutes, 0 or more"),
    "top": (1, inf, "at least one class"),
    "height": (100, 10_000, "a number of pixels from 100 to 10,000"),
    "fraction": (1e-9, 1, "a share above 0 and up to 1"),
}
"""Minimum, maximum and description of the numbers that commands and functions share."""


def check_ranges(**given: Any) -> None:
    """Raise for the first number outside its range; other names and other types pass."""
    for name, value in given.items():
        if name not in _RANGES or isinstance(value, bool):
            continue
        low, high, words = _RANGES[name]
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, (int, float)) and not low <= number <= high:
                raise VitreousError(f"{name}={value} was asked for; it is {words}.")


def parse_limit(limit: Any) -> int | None:
    """A maximum number of images as users give it; None for all of them.

    >>> parse_limit("all"), parse_limit(None), parse_limit(64), parse_limit("64")
    (None, None, 64, 64)
    """
    if limit is None or limit == "all":
        return None
    is_whole = fits_annotation(limit, int) or (isinstance(limit, str) and limit.isdecimal())
    is_whole = is_whole or (hasattr(limit, "__index__") and not isinstance(limit, bool))  # numpy's
    if not is_whole or int(limit) < 1:
        raise VitreousError(f"limit={limit} was asked for; it is {_RANGES['limit'][2]}.")
    return int(limit)


def fits_annotation(value: Any, hint: Any) -> bool:
    """Whether a value has the type of an annotation. True is not a number, and neither is NaN."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits_annotation(value, option) for option in inner)
    if origin is Literal:
        return any(type(value) is type(option) and value == option for option in inner)
    if origin in (tuple, Sequence):
        if not isinstance(value, (tuple, list)):
            return False
        if origin is Sequence or inner[-1] is Ellipsis:
            inner = inner[:1] * len(value)
        return len(value) == len(inner) and all(map(fits_annotation, value, inner))
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


def annotation_in_words(hint: Any) -> str:
    """An annotation as an error names it: "a whole number or None", "a list of numbers"."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(annotation_in_words, inner))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, inner))
    if origin in (tuple, Sequence):
        item = annotation_in_words(inner[0]).removeprefix("a ").removeprefix("one of ")
        return f"a list of {item}" if item.endswith("'") else f"a list of {item}s"
    if hint in _TYPES_IN_WORDS:
        return _TYPES_IN_WORDS[hint]
    return hint.__name__ if isinstance(hint, type) and origin is None else str(hint)


def as_tuples(value: Any) -> Any:
    """Replace lists by tuples at every depth, which undoes what a round trip through JSON does."""
    if isinstance(value, Mapping):
        return {key: as_tuples(inner) for key, inner in value.items()}
    return tuple(map(as_tuples, value)) if isinstance(value, (list, tuple)) else value
