"""How findings compare: values with intervals, by model, and who can be told from whom.

Two models are said to differ only where their intervals do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isfinite, nan
from typing import Any, NamedTuple

import pandas as pd

from vitreous.report.words import escape, listed, measured
from vitreous.results import Result


class Mean(NamedTuple):
    """A value and its interval. That of a mean over units is the mean of theirs, which is never too narrow: where all
    units move together with the images drawn it is exact, otherwise they cancel in part."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, stored: Mapping[str, float | None]) -> Mean:
        """From a result's `about`, where JSON knows no NaN and None stands for a number that is not there."""
        return cls(
            *(nan if (end := stored.get(name)) is None else float(end) for name in cls._fields)
        )


Show = Callable[[float, float, float], str]
Finding = Callable[[Result], Iterator[str]]


def bold(name: object) -> str:
    return f"<b>{escape(name)}</b>"


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def by_model(rows: pd.DataFrame, *names: str) -> dict[str, Mean]:
    """For each model the mean over its rows of a value and its ends."""
    found = rows.groupby("model", sort=False, observed=True)[
        list(names or ("value", "low", "high"))
    ].mean()
    return {
        str(name): Mean(*map(float, row))
        for name, row in zip(found.index, found.to_numpy(), strict=True)
    }


def apart(one: Mean, other: Mean) -> bool:
    """Whether two intervals leave room between them."""
    return one.low > other.high or other.low > one.high


def ranked(found: Mapping[str, Mean], first: str, last: str, alike: str, show: Show) -> str:
    """Who comes first and who last, by their values, or that nobody can tell. `{}` is the value, `{model}` its owner,
    `{models}` all of them. Models without a value are left out; nothing is said where none is left."""
    found = {name: mean for name, mean in found.items() if isfinite(mean.value)}
    if not found:
        return ""
    order = sorted(found, key=lambda name: -found[name].value)
    top, bottom = order[0], order[-1]
    ends = [show(*found[name]) for name in (top, bottom)]
    if len(order) == 1:
        return first.format(ends[0], model=bold(top)) + "."
    if not apart(found[top], found[bottom]):
        known = all(isfinite(end) for name in (top, bottom) for end in found[name])
        why = "the intervals overlap" if known else "there are too few images for intervals"
        return f"{alike.format(ends[1], ends[0], models=_all(list(found)))}; {why}."
    close = [
        [bold(other) for other in order if other != name and not apart(found[name], found[other])]
        for name in (top, bottom)
    ]
    words = [f" ({listed(each)} too close to tell apart)" if each else "" for each in close]
    said = (first.format(ends[0], model=bold(top)), last.format(ends[1], model=bold(bottom)))
    return f"{said[0]}{words[0]}; {said[1]}{words[1]}."


def _all(names: list[str]) -> str:
    counts = {2: "the two", 3: "all three", 4: "all four", 5: "all five", 6: "all six"}
    return counts.get(len(names), f"all {len(names)}")


def points(row: Mapping[str, Any], of: str = "value") -> str:
    """A difference of shares, in points of a hundred."""
    ends = ("low", "high") if of == "value" else (f"{of}_low", f"{of}_high")
    value, low, high = (100 * row[name] for name in (of, *ends))
    return measured(value, low, high, "points")
