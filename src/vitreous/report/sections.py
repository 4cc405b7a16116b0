"""One question on the page: what it asks, the pictures, how to read them, what was left out, and the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from vitreous.measure.section import section_of, sentences_of
from vitreous.report.guard import Guard
from vitreous.report.packing import block, chart, plain
from vitreous.results import Result, View
from vitreous.results.words import escape, format_number, join_words, plural

ROWS = 8
"""Rows of a table that are shown; all of them are in the CSV."""


def section(
    guard: Guard,
    name: str,
    result: Result | None,
    left_out: Mapping[str, Any],
    component: str = "",
    beside: str = "",
) -> list[str]:
    """The lines of a section; `component` is a picture that is no chart, before the charts, and `beside` one that goes
    with the first of them. Without a result, only why there is none."""
    declared = section_of(name)
    lines = [
        f'<section class="question" id="{escape(name)}" aria-labelledby="{escape(name)}-asks">',
        f'<h3 id="{escape(name)}-asks">{escape(declared.title)}</h3>',
    ]
    says = declared.explains or (_meaning(result) if result else "")
    lines += [f'<p class="says">{escape(says)}</p>'] if says else []
    lines += guard.lines(f"The findings of {name}", _found, result) if result is not None else []
    lines += [component] if component else []
    if result is not None and not result.table.empty:
        lines += guard.lines(f"The figures of {name}", _figures, result, beside, guard)
    notes = (
        [f'<p class="paper"><b>In the papers.</b> {escape(declared.paper)}</p>']
        if declared.paper and result
        else []
    )
    notes += guard.lines(f"What was left out of {name}", omitted, left_out)
    lines += ['<div class="notes">', *notes, "</div>"] if notes else []
    lines += guard.lines(f"The table of {name}", numbers, result) if result is not None else []
    return [*lines, "</section>"]


def _figures(result: Result, beside: str, guard: Guard) -> list[str]:
    lines, wide = ['<div class="figures">'], across(result.views)
    for i, view in enumerate(result.views):
        lines += guard.lines(f"Figure {i + 1} of {result.name}", figure, result, view, i, i in wide)
        lines += [beside] if beside and i == 0 else []
    return [*lines, "</div>"]


def _found(result: Result) -> list[str]:
    said = sentences_of(result)
    return [f'<p class="found">{" ".join(said)}</p>'] if said else []


def across(views: Sequence[View]) -> set[int]:
    """Which views have a row of their own: those of many panels, and the first of the others where one would be left
    without a neighbour."""
    narrow = [
        i
        for i, view in enumerate(views)
        if not view.facet and view.mark in ("line", "scatter", "bar")
    ]
    return set(range(len(views))) - set(narrow[len(narrow) % 2 :])


def figure(result: Result, view: View, i: int, wide: bool) -> list[str]:
    """A chart that is drawn when it comes into view, and how to read it."""
    title = view.title or section_of(result.name).title
    place = f"{result.name}-{i}"
    height = 320 if view.mark != "tiles" else 260
    notes = f"<b>How to read it.</b> {escape(view.how_to_read)}" if view.how_to_read else ""
    said = [
        f"{escape(each.label)}: {format_number(each.value)}"
        for each in view.references
        if each.axis != "slope"
    ]
    notes += f" <b>To compare with.</b> {'; '.join(dict.fromkeys(said))}." if said else ""
    return [
        "<figure data-wide>" if wide else "<figure>",
        f'<figcaption><h4>{escape(title)}</h4><span class="tools">{_tool(place, "svg")}{_tool(place, "png")}</span>'
        "</figcaption>",
        f'<div class="chart" id="{escape(place)}" data-height="{height}" role="group" aria-label="{escape(title)}">'
        "<noscript>Charts are drawn by a script, which is switched off; the numbers are below.</noscript></div>",
        *(
            [f'<div class="across" id="{escape(place)}-across" aria-hidden="true"></div>']
            * (view.mark == "heatmap")
        ),
        *([f'<p class="read">{notes}</p>'] if notes else []),
        "</figure>",
        block(f"chart-{place}", plain(chart(result, i))),
    ]


def _tool(place: str, kind: str) -> str:
    return f'<button type="button" data-save="{escape(place)}" data-as="{kind}">{kind.upper()}</button>'


def omitted(left_out: Mapping[str, Any]) -> list[str]:
    """Which models, and which of their units, were not asked, and why; those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for model, why in left_out.items():
        if isinstance(why, str):
            reasons.setdefault(why, []).append(f"<b>{escape(model)}</b>")
            continue
        units: dict[str, list[str]] = {}
        for unit, reason in why.items():
            units.setdefault(str(reason), []).append(unit)
        for reason, names in units.items():
            reasons.setdefault(reason, []).append(f"<b>{escape(model)}</b> ({_units(names)})")
    lines = [f"<li>{join_words(who)}: {escape(reason)}</li>" for reason, who in reasons.items()]
    return (
        [f'<div class="omitted"><b>Left out.</b><ul>{"".join(lines)}</ul></div>'] if lines else []
    )


def _units(units: Sequence[str]) -> str:
    shown = join_words([f"<code>{escape(unit)}</code>" for unit in units[:3]])
    return (
        shown
        if len(units) <= 3
        else f"{plural(len(units), 'unit')} from <code>{escape(units[0])}</code> on"
    )


def numbers(result: Result) -> list[str]:
    """The first rows, what the columns mean, and everything as a file."""
    name, count = escape(result.name), len(result.table)
    options = "; ".join(
        f"{escape(k)} = {escape(_given(v))}" for k, v in result.about.get("options", {}).items()
    )
    about = plural(count, "row") + (f" · options: {options}" if options else "")
    says = "".join(
        f"<dt><code>{escape(c.name)}</code></dt><dd>{escape(c.says)}</dd>" for c in result.columns
    )
    return [
        f'<details class="data"><summary>The numbers <span class="quiet">{about}</span></summary>',
        f'<div class="scroll" tabindex="0" role="region" aria-label="First rows of {name}">{table(result)}</div>',
        f'<p><button type="button" data-csv="{name}">Save {name}.csv</button></p>',
        f"<details><summary>What the columns hold</summary><dl>{says}</dl></details></details>",
        block(f"table-{result.name}", csv(result)),
    ]


def _given(value: Any) -> str:
    """An option as a reader would write it."""
    if isinstance(value, list):
        return ", ".join(map(_given, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def csv(result: Result) -> str:
    """The whole table; numbers with all their digits."""
    return result.table.to_csv(index=False, lineterminator="\n")


def table(result: Result) -> str:
    """The first rows as HTML."""
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
    more = len(result.table) - ROWS
    rest = (
        f'<tr><td class="quiet" colspan="{len(result.columns)}">… and {more:,} more</td></tr>'
        if more > 0
        else ""
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}{rest}</tbody></table>"


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    return format_number(value, 4) if isinstance(value, float) else str(value)


def _meaning(result: Result) -> str:
    """What a question we have no words for measures: what its value's column says."""
    found = [column.says for column in result.columns if column.name == "value"]
    return found[0] if found else ""
