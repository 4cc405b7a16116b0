"""Long names for axes and legends: the beginning and the end, and never two alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

LIMIT = 28
"""Maximum number of characters of a name in an axis or a legend."""
ROOMY = 36
"""The same where there is more room, as in a table of models."""
ELLIPSIS = "…"
BETWEEN = " × "
"""Stands between the names of two models that are compared."""


def short_names(names: Iterable[str], limit: int = LIMIT) -> dict[str, str]:
    """Return each name as it is shown: names that are too long lose their middle.

    Names that would look the same show where they differ instead, and where that is not enough
    they are numbered.

    Parameters
    ----------
    names
        The names that are shown together.
    limit
        Maximum number of characters; a few more where that is too few to tell names apart.

    Examples
    --------
    >>> short_names(["vit_small_patch16_224.augreg_in21k_ft_in1k"])
    {'vit_small_patch16_224.augreg_in21k_ft_in1k': 'vit_small_pat…_in21k_ft_in1k'}
    """
    full = list(dict.fromkeys(names))
    short = {name: _shorten(name, limit) for name in full}
    for group in _alike(short):
        start = _first_difference(group)
        short |= {name: _around(name, start, limit) for name in group}
    for group in _alike(short):
        for number, name in enumerate(group, 1):
            counter = f" ({number})"
            fitting = _shorten(name, max(limit - len(counter), 3)) + counter
            taken = fitting in short.values()
            short[name] = f"{short[name]}{counter}" if taken else fitting
    return short


def _alike(short: dict[str, str]) -> list[list[str]]:
    """Return the names that are shown alike, in groups."""
    groups = defaultdict(list)
    for name, shown in short.items():
        groups[shown].append(name)
    return [group for group in groups.values() if len(group) > 1]


def _first_difference(names: list[str]) -> int:
    """Return the place of the first character in which names differ."""
    columns = zip(*names, strict=False)
    same = (len(set(characters)) == 1 for characters in columns)
    return next((i for i, alike in enumerate(same) if not alike), min(map(len, names)))


def _shorten(name: str, limit: int) -> str:
    """Return a name, or of two that are compared both, without the middle."""
    if len(name) <= limit:
        return name
    one, between, other = name.partition(BETWEEN)
    if between:
        each = max(limit - len(BETWEEN), 2) // 2
        return f"{_shorten(one, each)}{BETWEEN}{_shorten(other, each)}"
    kept = limit - 1
    return f"{name[: kept // 2]}{ELLIPSIS}{name[-(kept - kept // 2) :]}"


def _around(name: str, start: int, limit: int) -> str:
    """Return beginning and end of a name, and what follows from a place in its middle on."""
    part = (limit - 2) // 3
    left = max(start - 1, 0)
    if left <= part:
        return f"{name[: limit - 1 - part]}{ELLIPSIS}{name[-part:]}"
    if left + part >= len(name) - part:
        return f"{name[:part]}{ELLIPSIS}{name[-(limit - 1 - part) :]}"
    return f"{name[:part]}{ELLIPSIS}{name[left : left + part]}{ELLIPSIS}{name[-part:]}"
