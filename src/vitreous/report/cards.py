"""The card of one measurement: one sentence and one chart, and everything else folded under it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from textwrap import dedent
from typing import Any

import pandas as pd

from vitreous.claims.verdicts import Verdict
from vitreous.measure.report_section import find_measurement, section_of, sentences_of
from vitreous.report.guard import Guard
from vitreous.report.packing import block, chart_data, compact_json
from vitreous.report.papers import link_papers
from vitreous.report.static_charts import static_chart
from vitreous.results import Result, View
from vitreous.results.panels import has_marks
from vitreous.results.words import escape, format_number, join_words, plural

ROWS = 8
"""Rows of a table that are shown without JavaScript; the script shows all of them."""
STATIC_WIDTH = 520
"""Width of a chart that is drawn in advance, for readers without JavaScript and for printing."""


def card(
    guard: Guard,
    name: str,
    result: Result,
    left_out: Mapping[str, Any],
    *,
    wide: bool = False,
    models: Sequence[str] = (),
    explorer: str = "",
    beside: str = "",
    verdicts: Sequence[Verdict] = (),
) -> list[str]:
    """Return the lines of a card.

    Parameters
    ----------
    guard
        Notes what cannot be rendered.
    name
        Of the measurement.
    result
        What was measured.
    left_out
        What was left out: a reason for each model, or for its units.
    wide
        Whether no other card stands beside it.
    models
        Names of all models of the page; sentences are filtered by the models they name.
    explorer
        HTML of a component that opens on demand, such as the attention explorer.
    beside
        HTML among the further charts.
    verdicts
        Verdicts on findings that rest on this measurement.
    """
    label = escape(name)
    lines = [
        f'<section class="question{" wide" if wide else ""}" id="{label}" '
        f'aria-labelledby="{label}-asks">',
        f'<h3 id="{label}-asks">{escape(section_of(name, result).title)}</h3>',
    ]
    sentences = guard.lines(f"The findings of {name}", findings, result, models)
    lines += sentences[:1]
    views = [number for number, view in enumerate(result.views) if has_marks(result, view)]
    if views:
        what = f"Figure {views[0] + 1} of {name}"
        lines += guard.lines(what, figure, result, views.pop(0), guard)
    elif result.views and not sentences:
        lines.append('<p class="quiet">There is no number to draw; the table has the reasons.</p>')
    rest = sentences[1:]
    for number in views:
        what = f"Figure {number + 1} of {name}"
        rest += guard.lines(what, figure, result, number, guard)
    folds = [
        fold("explore", "Explore", [explorer]),
        fold("more", _count_more(len(sentences) - 1, len(views)), [*rest, beside]),
        fold("method", "Method", guard.lines(f"The method of {name}", _method, name, result)),
        fold("claims", f"Findings ({len(verdicts)})",
             guard.lines(f"The findings on {name}", _claims, verdicts)),
        fold("table", "Table", guard.lines(f"The table of {name}", numbers, result)),
        fold("left-out", "Left out", guard.lines(f"What was left out of {name}", omissions,
                                                 left_out)),
    ]  # fmt: skip
    return [*lines, '<div class="folds">', *folds, "</div></section>"]


def absences(left_out: Mapping[str, Mapping[str, Any]], guard: Guard) -> list[str]:
    """Return one card for all measurements of a group that have no result, with the reasons."""
    lines = ['<div class="card absences"><h3>Not measured</h3>']
    for name, why in left_out.items():
        label, title = escape(name), escape(section_of(name).title)
        lines += [
            f'<section id="{label}"><h4>{title}</h4>',
            *guard.lines(f"What was left out of {name}", reasons_list, why),
            "</section>",
        ]
    return [*lines, "</div>"]


def stands_alone(results: Mapping[str, Result]) -> set[str]:
    """Return the cards that are as wide as the page: without a chart, or without a neighbour."""
    alone: set[str] = set()
    waiting = ""
    for name, result in results.items():
        if not any(has_marks(result, view) for view in result.views):
            alone |= {name, waiting}
            waiting = ""
        else:
            waiting = "" if waiting else name
    return (alone | {waiting}) - {""}


def findings(result: Result, models: Sequence[str]) -> list[str]:
    """Return a paragraph for each sentence on a result."""
    return [f'<p class="found">{mark_models(each, models)}</p>' for each in sentences_of(result)]


def _count_more(sentences: int, charts: int) -> str:
    words = [plural(charts, "chart")] if charts > 0 else []
    words += [plural(sentences, "sentence")] if sentences > 0 else []
    return f"More ({', '.join(words)})"


def fold(kind: str, title: str, lines: Sequence[str]) -> str:
    """Return a part of a card that opens on demand; "" if there is nothing in it."""
    if not any(lines):
        return ""
    inside = "\n".join(lines)
    return (
        f'<details class="fold" data-fold="{kind}"><summary>{title}</summary>'
        f'<div class="inside">{inside}</div></details>'
    )


def mark_models(sentence: str, models: Sequence[str]) -> str:
    """Return a sentence with the models that it names as data, so that chips can filter it."""
    named = [name for name in models if f"<b>{escape(name)}</b>" in sentence]
    return f'<span data-models="{escape(compact_json(named))}">{sentence}</span>'


# --- charts ---


def figure(result: Result, number: int, guard: Guard) -> list[str]:
    """Return the place of a chart, which a script draws when it comes into view.

    The first chart of a card is also drawn in advance, for readers without JavaScript and for
    printing.
    """
    view = result.views[number]
    data = compact_json(chart_data(result, number))
    title = view.title or section_of(result.name, result).title
    place = f"{result.name}-{number}"
    save = f'<button type="button" data-save="{escape(place)}"'
    buttons = f'{save} data-as="svg">SVG</button>{save} data-as="png">PNG</button>'
    still = "This chart is drawn by a script; the table has its numbers."
    if number == 0:
        still = guard.text(
            f"The still picture of {place}", static_chart, result, number, STATIC_WIDTH
        )
    wide = " data-wide" if view.facet or view.mark in ("heatmap", "tiles") else ""
    lines = [
        f"<figure{wide}><figcaption><h4>{escape(title)}</h4>"
        f'<span class="tools scripted">{buttons}</span></figcaption>',
        chart_place(place, place, title, still),
    ]
    if view.mark == "heatmap":
        lines.append(f'<div class="across" id="{escape(place)}-across" aria-hidden="true"></div>')
    if notes := _reading(view):
        lines.append(f'<p class="read">{notes}</p>')
    return [*lines, "</figure>", block(f"chart-{place}", data)]


def chart_place(place: str, data: str, title: str, still: str = "") -> str:
    """Return the element in which a script draws the chart with the block `chart-DATA`."""
    return (
        f'<div class="chart" id="{escape(place)}" data-chart="{escape(data)}" tabindex="0" '
        f'role="group" aria-roledescription="chart" aria-label="{escape(title)}">'
        f"<noscript>{still}</noscript></div>"
    )


def _reading(view: View) -> str:
    """Return how to read a chart, and the values of its reference lines."""
    notes = f"<b>How to read it.</b> {escape(view.how_to_read)}" if view.how_to_read else ""
    references = dict.fromkeys(
        f"{escape(each.label)}: {format_number(each.value)}"
        for each in view.references
        if each.axis != "slope"
    )
    return f"{notes} <b>To compare with.</b> {'; '.join(references)}." if references else notes


# --- method and findings ---


def _method(name: str, result: Result) -> list[str]:
    """Return what is measured, what the papers found, formula, and the options that were used."""
    declared = section_of(name, result)
    lines = []
    if explanation := declared.explains or _explain_value(result):
        lines.append(f"<p>{escape(explanation)}</p>")
    if declared.paper:
        lines.append(f'<p class="paper"><b>In the papers.</b> {link_papers(declared.paper)}</p>')
    lines += _docstring(name)
    options = {k: v for k, v in result.about.get("options", {}).items() if v not in (None, "", [])}
    if options:
        words = "; ".join(f"{escape(k)} = {escape(_option_text(v))}" for k, v in options.items())
        lines.append(f'<p class="quiet">Options: {words}.</p>')
    return lines


def _explain_value(result: Result) -> str:
    """Return what the column of the value says, for measurements without an explanation."""
    return next((column.says for column in result.columns if column.name == "value"), "")


def _docstring(name: str) -> list[str]:
    """Return the documentation of a measurement's file: paragraphs, and its indented formulas."""
    measurement = find_measurement(name)
    module = sys.modules.get(measurement.__module__) if measurement else None
    text = inspect.cleandoc(module.__doc__ or "") if module else ""
    lines = []
    for paragraph in text.split("\n\n")[1:]:  # the first says what the title says
        if paragraph.startswith("    "):
            lines.append(f'<pre class="formula">{escape(dedent(paragraph))}</pre>')
        else:
            parts = escape(" ".join(paragraph.split())).split("`")
            words = "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts))
            lines.append(f"<p>{words}</p>")
    return lines


def _option_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_option_text, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _claims(verdicts: Sequence[Verdict]) -> list[str]:
    """Return links to the verdicts on findings that rest on this measurement."""
    items = [
        f'<li><a href="#{each.claim.id}">{each.claim.id}</a> {escape(each.claim.sentence)} '
        f"<b>{each.outcome}</b></li>"
        for each in verdicts
    ]
    return [f"<ul>{''.join(items)}</ul>"] if items else []


# --- what was left out, and the table ---


def omissions(left_out: Mapping[str, Any]) -> list[str]:
    """Return what was left out, under its heading; nothing if nothing was."""
    lines = reasons_list(left_out)
    return ['<div class="omitted"><b>Left out.</b>', *lines, "</div>"] if lines else []


def reasons_list(left_out: Mapping[str, Any]) -> list[str]:
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
    return [f"<ul>{''.join(lines)}</ul>"] if lines else []


def _name_units(units: Sequence[str]) -> str:
    if len(units) <= 3:
        return join_words([f"<code>{escape(unit)}</code>" for unit in units])
    return f"{plural(len(units), 'unit')} from <code>{escape(units[0])}</code> on"


def numbers(result: Result) -> list[str]:
    """Return the table: its first rows, which the script replaces by all, and what columns mean."""
    name = escape(result.name)
    kinds = [[c.name, c.title, c.kind == "quantity"] for c in result.columns]
    says = "".join(
        f"<dt><code>{escape(c.name)}</code></dt><dd>{escape(c.says)}</dd>" for c in result.columns
    )
    return [
        f'<div class="table" data-table="{name}" data-columns="{escape(compact_json(kinds))}">'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table of {name}">'
        f"{first_rows(result)}</div></div>",
        f'<p class="scripted"><button type="button" data-csv="{name}">Save {name}.csv</button></p>',
        f"<details><summary>Columns</summary><dl>{says}</dl></details>",
        block(f"table-{result.name}", table_csv(result)),
    ]


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
