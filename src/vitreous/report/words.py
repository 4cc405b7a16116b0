"""How numbers, intervals, lists and names are written; whatever comes from outside is escaped here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape as escape_html
from typing import Any


def escape(words: object) -> str:
    """Text for HTML, also within quotes; control characters, which HTML does not know, are replaced, and so are halves
    of characters, as file names have that are no UTF-8."""
    return escape_html("".join("\ufffd" if _foreign(c) else c for c in str(words)))


def _foreign(c: str) -> bool:
    return (c < " " and c not in "\n\t") or "\ud800" <= c <= "\udfff"


def number(value: Any, digits: int = 3) -> str:
    """Three digits that count, without an exponent where a reader would stumble over it: 0.0123, 12.3, 1,230."""
    value = float(value)
    if math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return f"{value:g}".replace("-", "−").replace("inf", "∞")
    size = math.floor(math.log10(abs(value)))
    if not -5 < size < 7:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    places = max(digits - 1 - size, 0)
    return f"{round(value, places):,.{places}f}".replace("-", "−")


def ends(low: Any, high: Any) -> str:
    """An interval, with as many places as tell its ends apart; nothing where there is none."""
    low, high = float(low), float(high)
    if math.isnan(low) or math.isnan(high):
        return ""
    digits = _digits(low, high)
    return f"{number(low, digits)} to {number(high, digits)}"


def _digits(low: float, high: float) -> int:
    """As many as tell them apart, from three to five."""
    return next((digits for digits in (3, 4) if number(low, digits) != number(high, digits)), 5)


def measured(value: Any, low: Any = math.nan, high: Any = math.nan, unit: str = "") -> str:
    """A value with its interval, both as exact: `12.3 px (12.1 to 12.5)`."""
    around = ends(low, high)
    words = number(value, _digits(low, high) if around else 3) + (f"\u00a0{unit}" if unit else "")
    return f"{words} ({around})" if around else words


def share(value: Any) -> str:
    """0.9871 as 98.7 %."""
    return f"{100 * float(value):.1f}\u00a0%"


def shares(value: Any, low: Any, high: Any) -> str:
    """The same with its interval."""
    if math.isnan(float(low)):
        return share(value)
    return f"{share(value)} ({100 * float(low):.1f} to {100 * float(high):.1f})"


def listed(items: Sequence[str]) -> str:
    """a, b and c."""
    return (
        items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""
    )


def several(count: int, one: str, many: str = "") -> str:
    """1 unit, 2 units."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
