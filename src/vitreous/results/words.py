"""Numbers, intervals, lists and names as text, escaped for HTML where they come from outside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape as escape_html
from typing import Any


def escape(words: object) -> str:
    """Escape text for HTML, also within quotes.

    Control characters, which HTML does not know, and lone surrogates, as file names have that are
    no UTF-8, become U+FFFD.
    """
    return escape_html("".join("\ufffd" if _is_invalid(c) else c for c in str(words)))


def _is_invalid(c: str) -> bool:
    return (c < " " and c not in "\n\t") or "\ud800" <= c <= "\udfff"


def format_number(value: Any, digits: int = 3) -> str:
    """Three significant digits, with an exponent only for tiny or huge numbers: 0.0123, 1,230."""
    value = float(value)
    if math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return f"{value:g}".replace("-", "−").replace("inf", "∞")
    size = math.floor(math.log10(abs(value)))
    if not -5 < size < 7:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    if abs(round(value, digits - 1 - size)) >= 10 ** (size + 1):
        size += 1  # 0.9996 is 1.00
    places = max(digits - 1 - size, 0)
    return f"{round(value, places):,.{places}f}".replace("-", "−")


def format_interval(low: Any, high: Any) -> str:
    """`0.9991 to 0.9994`, with as many digits as tell the ends apart; empty where one is NaN."""
    low, high = float(low), float(high)
    if math.isnan(low) or math.isnan(high):
        return ""
    digits = _digits(low, high)
    return f"{format_number(low, digits)} to {format_number(high, digits)}"


def _digits(low: float, high: float) -> int:
    """The number of digits that tells two numbers apart, from three to five; three for equals."""
    if math.isclose(low, high):
        return 3
    for digits in (3, 4):
        if format_number(low, digits) != format_number(high, digits):
            return digits
    return 5


def format_estimate(value: Any, low: Any = math.nan, high: Any = math.nan, unit: str = "") -> str:
    """A value with its interval, both with the same number of digits: `12.3 px (12.1 to 12.5)`."""
    interval = format_interval(low, high)
    text = format_number(value, _digits(low, high) if interval else 3)
    if unit:
        text += f"\u00a0{unit}"
    return f"{text} ({interval})" if interval else text


def format_percent(value: Any, low: Any = math.nan, high: Any = math.nan) -> str:
    """A share as a percentage, with its interval if there is one: `98.7 % (98.1 to 99.2)`."""
    text = f"{100 * float(value):.1f}\u00a0%"
    if math.isnan(float(low)):
        return text
    return f"{text} ({100 * float(low):.1f} to {100 * float(high):.1f})"


def join_words(items: Sequence[str], last: str = "and") -> str:
    """`a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def plural(count: int, one: str, many: str = "") -> str:
    """`1 unit`, `2 units`; `many` is the plural where it is not formed with an s."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
