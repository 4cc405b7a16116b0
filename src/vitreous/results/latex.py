"""Tables for papers: LaTeX with booktabs, escaped names, numbers rounded to their certainty."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from vitreous.errors import UnknownName, VitreousError

if TYPE_CHECKING:
    from vitreous.results.column import Column
    from vitreous.results.result import Result

IntervalStyle = Literal["brackets", "pm", "none"]
"""`0.93 [0.90, 0.95]`, `0.93 ± 0.03` (half the width of the interval), or the value alone."""

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\symbol{34}",
    "`": r"\symbol{96}", "[": "{[}", "]": "{]}", "*": "{*}",
}  # fmt: skip
"""Characters with a special meaning in LaTeX. Braces around a bracket or star at the beginning of a
row prevent that LaTeX reads it as an option of the row before."""
SYMBOLS = {
    "×": r"$\times$", "−": "$-$", "–": "--", "—": "---", "…": r"\ldots{}", "·": r"$\cdot$",
    "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\to$", "∞": r"$\infty$", "²": "$^2$",
    "³": "$^3$", "°": r"$^\circ$", "π": r"$\pi$", "α": r"$\alpha$", "β": r"$\beta$",
    "γ": r"$\gamma$", "δ": r"$\delta$", "ε": r"$\epsilon$", "λ": r"$\lambda$", "µ": r"$\mu$",
    "μ": r"$\mu$", "ρ": r"$\rho$", "σ": r"$\sigma$", "τ": r"$\tau$", "Δ": r"$\Delta$",
    "Σ": r"$\Sigma$", "‖": r"$\|$", "∥": r"$\|$", "\u00a0": "~", "’": r"\textquoteright{}",
    "‘": r"\textquoteleft{}", "“": r"\textquotedblleft{}", "”": r"\textquotedblright{}",
}  # fmt: skip
LETTERS = {*map(chr, range(0xC0, 0x180))} - {*"×÷ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ"}
"""Accented Latin letters that pdfLaTeX accepts with any font encoding."""
LONG = 45
"""Rows that fit on a page; longer tables break across pages."""


def escape_latex(words: object) -> str:
    """Escape text for LaTeX, including pdfLaTeX.

    A character that pdfLaTeX has no glyph for becomes its code: `[U+1F600]`.

    >>> escape_latex("50 % of vit_tiny")
    '50 \\\\% of vit\\\\_tiny'
    """
    text = unicodedata.normalize("NFC", " ".join(str(words).split()))
    escaped = [_escape_character(character) for character in text]
    for place in range(1, len(text)):
        if text[place - 1 : place + 1] in ("--", "''"):
            escaped[place] = "{}" + escaped[place]  # or two hyphens would become a dash
    return "".join(escaped)


def _escape_character(character: str) -> str:
    known = SPECIAL.get(character) or SYMBOLS.get(character)
    if known is not None:
        return known
    if " " <= character <= "~" or character in LETTERS:
        return character
    return f"{{[}}U+{ord(character):04X}{{]}}"


def latex_number(
    value: Any, low: Any = math.nan, high: Any = math.nan, style: IntervalStyle = "brackets"
) -> str:
    """Format a number with its interval, rounded to two digits of half the interval's width.

    Without an interval it has four significant digits. Very small and very large numbers get a
    common power of ten.

    Examples
    --------
    >>> latex_number(0.93127, 0.9012, 0.9534)
    '$0.931\\\\ [0.901, 0.953]$'
    >>> latex_number(0.93127, 0.9012, 0.9534, "pm")
    '$0.931 \\\\pm 0.026$'
    """
    value, low, high = float(value), float(low), float(high)
    if math.isnan(value):
        return "--"
    if math.isinf(value):
        return r"$\infty$" if value > 0 else r"$-\infty$"
    has_ends = math.isfinite(low) and math.isfinite(high)
    largest = max(abs(value), abs(low), abs(high)) if has_ends else abs(value)
    power = 0 if -4 <= _size(largest) < 6 else _size(largest)
    value, low, high = (each / 10.0**power for each in (value, low, high))
    half = (high - low) / 2 if has_ends else 0.0
    if half < 1e-6 * largest / 10.0**power:  # only rounding, as for CKA of a unit with itself
        half = 0.0
    text = _rounding(half, largest / 10.0**power)
    number = text(value)
    if has_ends and style == "brackets":
        number += rf"\ [{text(low)}, {text(high)}]"
    elif has_ends and style == "pm":
        number += rf" \pm {text(half)}"
        number = f"({number})" if power else number
    return rf"${number} \times 10^{{{power}}}$" if power else f"${number}$"


def _rounding(half: float, largest: float) -> Callable[[float], str]:
    """Return a function that formats numbers: two digits of half an interval, at most six."""
    if half <= 0:
        return lambda number: f"{number:.4g}" if abs(number) < 1e4 else f"{number:.0f}"
    places = max(min(1 - _size(half), 5 - _size(largest)), 0)

    def text(number: float) -> str:
        rounded = f"{number:.{places}f}"
        return rounded.lstrip("-") if float(rounded) == 0 else rounded

    return text


def _size(value: float) -> int:
    """The power of ten of the first digit: 0 for 1 to 9, -1 for 0.1 to 0.9; 0 for zero."""
    return math.floor(math.log10(abs(value))) if value else 0


def latex_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    align: str,
    caption: str = "",
    label: str = "",
) -> str:
    """Format cells, which are LaTeX already, as a table; more than a page is a longtable.

    Parameters
    ----------
    heads, rows
        The header and the rows, all of the same length.
    align
        A letter for each column: l, r, or p{4cm} for text that is broken into lines.
    caption, label
        Caption and label of the table. With one of them the table floats.
    """
    if label and not re.fullmatch(r"[\w:.+/-]+", label, re.ASCII):
        raise VitreousError(
            f"label={label!r} is not one that LaTeX can refer to; use letters, digits, colons and "
            "hyphens, such as 'tab:variance'."
        )
    header = f"{' & '.join(heads)} \\\\"
    body = [f"{' & '.join(row)} \\\\" for row in rows]
    titled = ([f"\\caption{{{escape_latex(caption)}}}"] if caption else []) + (
        [f"\\label{{{label}}}"] if label else []
    )
    if len(rows) > LONG:
        lines = ["% \\usepackage{booktabs, longtable}", f"\\begin{{longtable}}{{{align}}}"]
        lines += ["".join(titled) + " \\\\"] if titled else []
        lines += ["\\toprule", header, "\\midrule", "\\endhead", "\\bottomrule", "\\endfoot"]
        return "\n".join([*lines, *body, "\\end{longtable}", ""])
    inner = [f"\\begin{{tabular}}{{{align}}}", "\\toprule", header, "\\midrule", *body]
    inner += ["\\bottomrule", "\\end{tabular}"]
    if titled:
        inner = ["\\begin{table}", "\\centering", *titled, *inner, "\\end{table}"]
    return "\n".join(["% \\usepackage{booktabs}", *inner, ""])


def result_latex(
    result: Result, columns: Sequence[str] | None, interval: IntervalStyle, caption: str, label: str
) -> str:
    """A result as a LaTeX table."""
    if interval not in get_args(IntervalStyle):
        known = get_args(IntervalStyle)
        raise UnknownName("style of intervals", str(interval), known, f"Known: {', '.join(known)}.")
    if isinstance(columns, str):
        columns = [columns]
    chosen = [result.column(name) for name in columns or _default_columns(result)]
    if not chosen:
        raise VitreousError(f"A table of {result.name!r} needs at least one column; name some.")
    ends = {column.name: _ends(result, column.name) for column in chosen}
    heads = [
        escape_latex(column.title + _heading(interval, ends[column.name])) for column in chosen
    ]
    rows = [
        [_cell(row, column, ends[column.name], interval) for column in chosen]
        for row in result.table.to_dict("records")
    ]
    align = "".join("r" if column.kind == "quantity" else "l" for column in chosen)
    return latex_table(heads, rows, align, caption, label)


def _default_columns(result: Result) -> list[str]:
    """The model, the columns that distinguish its rows, and the value (or else all quantities)."""
    from pandas.api.types import is_bool_dtype

    table = result.table
    chosen: list[str] = []
    told_apart = 1
    for column in result.columns:
        if column.kind == "quantity" or is_bool_dtype(table[column.name]):
            continue
        count = len(table[[*chosen, column.name]].drop_duplicates())
        if column.name == "model" or count > told_apart:
            chosen.append(column.name)
            told_apart = count
    if "value" in table:
        return [*chosen, "value"]
    ends = {end for column in result.columns for end in _ends(result, column.name) or ()}
    quantities = [each.name for each in result.columns if each.kind == "quantity"]
    return chosen + [name for name in quantities if name not in ends]


def _ends(result: Result, name: str) -> tuple[str, str] | None:
    """The columns with the interval of a column, if there are any."""
    low, high = ("low", "high") if name == "value" else (f"{name}_low", f"{name}_high")
    return (low, high) if {low, high} <= set(result.table.columns) else None


def _heading(interval: IntervalStyle, ends: tuple[str, str] | None) -> str:
    if ends is None or interval == "none":
        return ""
    return ", 95 % interval" if interval == "brackets" else ", ± half the 95 % interval"


def _cell(
    row: dict[Any, Any], column: Column, ends: tuple[str, str] | None, interval: IntervalStyle
) -> str:
    value = row[column.name]
    if column.kind != "quantity":
        return "" if value is None or value != value else escape_latex(value)
    low, high = (row[end] for end in ends) if ends else (math.nan, math.nan)
    return latex_number(value, low, high, interval)
