"""Shorten long names for axes and legends: the middle is left out, and all stay distinct."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

LIMIT = 28
"""Maximum number of characters of a name in an axis or a legend."""
ROOMY = 36
"""Maximum number of characters where there is more space, as in a table of models."""
ELLIPSIS = "…"
BETWEEN = " × "
"""Separates the names of two models that are compared."""


def short_names(names: Iterable[str], limit: int = LIMIT) -> dict[str, str]:
    """Return the short form of each name: names that are too long lose their middle.

    If short forms are equal, they show the part in which the names differ, or else are numbered.

    Parameters
    ----------
    names
        The names that appear together.
    limit
        Maximum number of characters; a few more where that is too few to tell names apart.

    Examples
    --------
    >>> short_names(["vit_small_patch16_224.augreg_in21k_ft_in1k"])
    {'vit_small_patch16_224.augreg_in21k_ft_in1k': 'vit_small_pat…_in21k_ft_in1k'}
    """
    full = list(dict.fromkeys(names))
    short = {name: _shorten(name, limit) for name in full}
    for group in _with_equal_short_form(short):
        start = _first_difference(group)
        short |= {name: _with_part(name, start, limit) for name in group}
    for group in _with_equal_short_form(short):
        for number, name in enumerate(group, 1):
            counter = f" ({number})"
            fitting = _shorten(name, max(limit - len(counter), 3)) + counter
            taken = fitting in short.values()
            short[name] = f"{short[name]}{counter}" if taken else fitting
    return short


def _with_equal_short_form(short: dict[str, str]) -> list[list[str]]:
    """Return the names with equal short forms, in groups."""
    groups = defaultdict(list)
    for name, shown in short.items():
        groups[shown].append(name)
    return [group for group in groups.values() if len(group) > 1]


def _first_difference(names: list[str]) -> int:
    """Return the index of the first character in which names differ."""
    columns = zip(*names, strict=False)
    same = (len(set(characters)) == 1 for characters in columns)
    return next((i for i, alike in enumerate(same) if not alike), min(map(len, names)))


def _shorten(name: str, limit: int) -> str:
    """Return a name without its middle; of a pair of compared names both are shortened."""
    if len(name) <= limit:
        return name
    one, between, other = name.partition(BETWEEN)
    if between:
        each = max(limit - len(BETWEEN), 2) // 2
        return f"{_shorten(one, each)}{BETWEEN}{_shorten(other, each)}"
    kept = limit - 1
    return f"{name[: kept // 2]}{ELLIPSIS}{name[-(kept - kept // 2) :]}"


def _with_part(name: str, start: int, limit: int) -> str:
    """Return a name with its beginning, its end, and the part that begins at `start`."""
    part = (limit - 2) // 3
    left = max(start - 1, 0)
    if left <= part:
        return f"{name[: limit - 1 - part]}{ELLIPSIS}{name[-part:]}"
    if left + part >= len(name) - part:
        return f"{name[:part]}{ELLIPSIS}{name[-(limit - 1 - part) :]}"
    return f"{name[:part]}{ELLIPSIS}{name[left : left + part]}{ELLIPSIS}{name[-part:]}"
