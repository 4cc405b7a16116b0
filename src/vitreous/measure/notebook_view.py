"""An inspection as the output of a notebook cell: models, one line for each measurement, charts.

The output is self-contained and has no scripts, style sheets or network access. It has the colours
of the notebook.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from vitreous.errors import reason
from vitreous.measure.report_section import arrange, section_of, sentences_of
from vitreous.measure.summary import left_out_lines, summary_result
from vitreous.results import Result
from vitreous.results.notebook import figure_html
from vitreous.results.words import escape, format_number, plural

if TYPE_CHECKING:
    from vitreous.measure.inspection import Inspection

CHART, ALL_CHARTS = 20_000, 300_000
"""Maximum size of a chart and of all together, in bytes."""
REASONS = 6
"""Maximum number of lines about what was left out."""
QUIET = "opacity: 0.75"
CELL = "text-align: left; padding: 2px 12px 2px 0; border: 0"


def inspection_html(inspection: Inspection) -> str:
    """Return an inspection as HTML."""
    parts = [_heading(inspection), _models(inspection), *_measurements(inspection)]
    parts += [*_left_out(inspection), _next_calls(inspection)]
    content = "\n".join(filter(None, parts))
    return f'<div style="max-width: 62em; overflow-x: auto">\n{content}\n</div>\n'


def _heading(inspection: Inspection) -> str:
    known = (result.about["data"] for result in inspection.values() if "data" in result.about)
    data: dict[str, Any] = next(known, {})
    images = f" on {data['images']:,} images of {escape(data['name'])}" if data else ""
    models = plural(len(inspection.anatomies), "model")
    many = plural(len(inspection), "measurement")
    return f'<p style="margin: 4px 0"><b>Inspection</b> of {models}: {many}{images}</p>'


def _models(inspection: Inspection) -> str:
    """Return the summary as a table, with intervals as tooltips of the values."""
    summary = summary_result(inspection)
    if summary.table.empty:
        return ""
    columns = [c for c in summary.columns if not c.name.endswith(("_low", "_high"))]
    heads = ""
    for column in columns:
        heads += f'<th style="{CELL}" title="{escape(column.says)}">{escape(column.title)}</th>'
    rows = ""
    for row in summary.table.to_dict("records"):
        cells = "".join(f'<td style="{CELL}">{_number(row, c.name)}</td>' for c in columns)
        rows += f"<tr>{cells}</tr>\n"
    return f"<table><thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table>"


def _number(row: dict[Any, Any], name: str) -> str:
    value = row[name]
    if isinstance(value, str):
        return escape(value)
    if value != value:
        return "–"
    if name in ("units", "parameters"):
        return f"{value:,.0f}"
    show = _percent if name in ("accuracy", "ece") else format_number
    low, high = (row.get(f"{name}_{end}", float("nan")) for end in ("low", "high"))
    if low != low:
        return show(value)
    return f'<span title="95 % interval: {show(low)} to {show(high)}">{show(value)}</span>'


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _measurements(inspection: Inspection) -> list[str]:
    """Return one line for each measurement, which can be unfolded to its chart."""
    lines = []
    room = ALL_CHARTS
    arranged = arrange(inspection, inspection).values()
    for name in (name for names in arranged for name in names):
        result = inspection[name]
        chart = _part_or_error(partial(figure_html, result, min(CHART, room))) if room > 0 else ""
        if len(chart) > min(2 * CHART, room):
            chart = ""
        room -= len(chart)
        if not chart and result.views and len(result.table):
            code = escape(f'inspection["{name}"].plot()')
            chart = f'<p style="{QUIET}"><code>{code}</code> draws it.</p>'
        lines.append(_line(result, chart))
    return lines


def _part_or_error(make: Callable[[], str]) -> str:
    """Return a part of the output, or the error of making it, because a plugin may fail."""
    try:
        return make()
    except Exception as error:
        return f"<i>could not be rendered: {escape(reason(error))}</i>"


def _line(result: Result, chart: str) -> str:
    sentence = _part_or_error(lambda: "".join(sentences_of(result)[:1])) or plural(
        len(result.table), "row"
    )
    title = (
        f'<span style="{QUIET}">{escape(section_of(result.name, result).title)}</span> {sentence}'
    )
    opens = f'<summary style="cursor: pointer">{title}</summary>'
    name = f'<code style="{QUIET}">{escape(result.name)}</code>'
    small = f'<div style="max-width: 36em; padding: 4px 0 8px 16px">{chart}{name}</div>'
    return f'<details style="margin: 2px 0">{opens}{small}</details>'


def _left_out(inspection: Inspection) -> list[str]:
    lines = left_out_lines(inspection)
    more = len(lines) - REASONS
    if more > 0:
        lines[REASONS:] = [f"… and {more} more, in inspection.left_out and each result's about."]
    return [f'<p style="{QUIET}; margin: 2px 0">{escape(line)}</p>' for line in lines]


def _next_calls(inspection: Inspection) -> str:
    """Return suggestions of what to call next."""
    calls = ['inspection.save("results")', 'vitreous.report.write(inspection, "report.html")']
    if len(inspection):
        first = next(iter(inspection))
        name = first if re.fullmatch(r"\w+", first) else "…"
        calls = [f'inspection["{name}"].plot()', "inspection.to_latex()", *calls]
    code = " · ".join(f"<code>{escape(call)}</code>" for call in calls)
    return f'<p style="{QUIET}; margin: 6px 0">Next: {code}</p>'
