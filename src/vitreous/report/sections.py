"""The section of one measurement: findings, figures, how to read them, what was left out, table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from vitreous.measure.section import section_of, sentences_of
from vitreous.report.guard import Guard
from vitreous.report.packing import block, chart_data, compact_json
from vitreous.results import Result, View
from vitreous.results.words import escape, format_number, join_words, plural

ROWS = 8
"""Rows of a table that are shown; the CSV has all of them."""


def section(
    guard: Guard,
    name: str,
    result: Result | None,
    left_out: Mapping[str, Any],
    component: str = "",
    beside: str = "",
) -> list[str]:
    """Return the lines of a section.

    Parameters
    ----------
    guard
        Notes what cannot be rendered.
    name
        Of the measurement.
    result
        None if it could not be measured; then the section says why.
    left_out
        What was left out: a reason for each model, or for its units.
    component
        HTML before the charts.
    beside
        HTML beside the first chart.
    """
    declared = section_of(name, result)
    lines = [
        f'<section class="question" id="{escape(name)}" aria-labelledby="{escape(name)}-asks">',
        f'<h3 id="{escape(name)}-asks">{escape(declared.title)}</h3>',
    ]
    explanation = declared.explains or (_explain_value(result) if result else "")
    if explanation:
        lines.append(f'<p class="says">{escape(explanation)}</p>')
    if result is not None:
        lines += guard.lines(f"The findings of {name}", _findings, result)
    if component:
        lines.append(component)
    if result is not None and not result.table.empty:
        lines += guard.lines(f"The figures of {name}", _figures, result, beside, guard)
    notes = []
    if declared.paper and result:
        notes.append(f'<p class="paper"><b>In the papers.</b> {escape(declared.paper)}</p>')
    notes += guard.lines(f"What was left out of {name}", omissions, left_out)
    if notes:
        lines += ['<div class="notes">', *notes, "</div>"]
    if result is not None:
        lines += guard.lines(f"The table of {name}", numbers, result)
    return [*lines, "</section>"]


def _explain_value(result: Result) -> str:
    """Return what the column of the value says, for measurements without an explanation."""
    return next((column.says for column in result.columns if column.name == "value"), "")


def _findings(result: Result) -> list[str]:
    sentences = sentences_of(result)
    return [f'<p class="found">{" ".join(sentences)}</p>'] if sentences else []


def _figures(result: Result, beside: str, guard: Guard) -> list[str]:
    lines, wide = ['<div class="figures">'], wide_views(result.views)
    for i, view in enumerate(result.views):
        lines += guard.lines(f"Figure {i + 1} of {result.name}", figure, result, view, i, i in wide)
        if beside and i == 0:
            lines.append(beside)
    return [*lines, "</div>"]


def wide_views(views: Sequence[View]) -> set[int]:
    """Return the numbers of the views that take a whole row.

    These are heat-maps, tiles and views of many panels, and the first of the others if one of them
    would have no neighbour.
    """
    narrow = [
        i
        for i, view in enumerate(views)
        if not view.facet and view.mark in ("line", "scatter", "bar")
    ]
    return set(range(len(views))) - set(narrow[len(narrow) % 2 :])


def figure(result: Result, view: View, i: int, wide: bool) -> list[str]:
    """Return the place of a chart, which a script draws when it comes into view, and its notes."""
    title = view.title or section_of(result.name, result).title
    place = f"{result.name}-{i}"
    height = 320 if view.mark != "tiles" else 260
    notes = f"<b>How to read it.</b> {escape(view.how_to_read)}" if view.how_to_read else ""
    references = dict.fromkeys(
        f"{escape(each.label)}: {format_number(each.value)}"
        for each in view.references
        if each.axis != "slope"
    )
    if references:
        notes += f" <b>To compare with.</b> {'; '.join(references)}."
    save = f'<button type="button" data-save="{escape(place)}"'
    buttons = f'{save} data-as="svg">SVG</button>{save} data-as="png">PNG</button>'
    lines = [
        "<figure data-wide>" if wide else "<figure>",
        f'<figcaption><h4>{escape(title)}</h4><span class="tools">{buttons}</span></figcaption>',
        f'<div class="chart" id="{escape(place)}" data-height="{height}" role="group" '
        f'aria-label="{escape(title)}"><noscript>Charts are drawn by a script, which is switched '
        "off; the numbers are below.</noscript></div>",
    ]
    if view.mark == "heatmap":
        lines.append(f'<div class="across" id="{escape(place)}-across" aria-hidden="true"></div>')
    if notes:
        lines.append(f'<p class="read">{notes}</p>')
    return [*lines, "</figure>", block(f"chart-{place}", compact_json(chart_data(result, i)))]


def omissions(left_out: Mapping[str, Any]) -> list[str]:
    """Return a list of the models and units that were left out, grouped by the reason."""
    reasons: dict[str, list[str]] = {}
    for model, why in left_out.items():
        if isinstance(why, str):
            reasons.setdefault(why, []).append(f"<b>{escape(model)}</b>")
            continue
        units: dict[str, list[str]] = {}
        for unit, reason in why.items():
            units.setdefault(str(reason), []).append(unit)
        for reason, names in units.items():
            reasons.setdefault(reason, []).append(f"<b>{escape(model)}</b> ({_name_units(names)})")
    lines = [f"<li>{join_words(who)}: {escape(reason)}</li>" for reason, who in reasons.items()]
    if not lines:
        return []
    return [f'<div class="omitted"><b>Left out.</b><ul>{"".join(lines)}</ul></div>']


def _name_units(units: Sequence[str]) -> str:
    if len(units) <= 3:
        return join_words([f"<code>{escape(unit)}</code>" for unit in units])
    return f"{plural(len(units), 'unit')} from <code>{escape(units[0])}</code> on"


def numbers(result: Result) -> list[str]:
    """Return the first rows, what the columns mean, and the whole table as a file."""
    name, count = escape(result.name), len(result.table)
    options = "; ".join(
        f"{escape(k)} = {escape(_option_text(v))}"
        for k, v in result.about.get("options", {}).items()
    )
    about = plural(count, "row") + (f" · options: {options}" if options else "")
    says = "".join(
        f"<dt><code>{escape(c.name)}</code></dt><dd>{escape(c.says)}</dd>" for c in result.columns
    )
    return [
        f'<details class="data"><summary>The numbers <span class="quiet">{about}</span></summary>',
        f'<div class="scroll" tabindex="0" role="region" aria-label="First rows of {name}">'
        f"{first_rows(result)}</div>",
        f'<p><button type="button" data-csv="{name}">Save {name}.csv</button></p>',
        f"<details><summary>What the columns hold</summary><dl>{says}</dl></details></details>",
        block(f"table-{result.name}", table_csv(result)),
    ]


def _option_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_option_text, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def table_csv(result: Result) -> str:
    """Return the whole table as CSV, numbers with all their digits."""
    return result.table.to_csv(index=False, lineterminator="\n")


def first_rows(result: Result) -> str:
    """Return the first rows of the table as HTML."""
    numeric = {c.name for c in result.columns if c.kind == "quantity"}
    shape = {c.name: ' class="number"' if c.name in numeric else "" for c in result.columns}
    heads = "".join(
        f'<th scope="col"{shape[c.name]} title="{escape(c.says)}">{escape(c.title)}</th>'
        for c in result.columns
    )
    rows = [
        "".join(f"<td{shape[str(key)]}>{escape(_cell(value))}</td>" for key, value in row.items())
        for row in result.table.head(ROWS).astype(object).to_dict("records")
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    more = len(result.table) - ROWS
    if more > 0:
        width = len(result.columns)
        body += f'<tr><td class="quiet" colspan="{width}">… and {more:,} more</td></tr>'
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    return format_number(value, 4) if isinstance(value, float) else str(value)
