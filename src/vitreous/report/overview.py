"""The first screen: the models, three sentences, the attention explorer and three key charts."""

from __future__ import annotations

import re

from vitreous.measure.inspection import Inspection
from vitreous.measure.report_section import section_of, sentences_of
from vitreous.report import attention, models
from vitreous.report.cards import chart_place, mark_models
from vitreous.report.guard import Guard
from vitreous.results import Result
from vitreous.results.panels import has_marks
from vitreous.results.words import escape

SENTENCES = KEY_CHARTS = 3
MAX_PANELS = 2
"""Panels of a chart on the first screen."""
CLAUSE = re.compile(r"(?:&#?\w+;|\([^)]*\)|[^;])*")


def overview_section(inspection: Inspection, names: list[str], guard: Guard) -> list[str]:
    """Return the lines of the first screen."""
    shown = key_charts(inspection, names)
    explorer = ""
    maps = dict(inspection).get("attention_maps")
    if maps is not None and attention.has_maps(maps):
        explorer = guard.text("The attention explorer", attention.attention_viewer, maps, True)
    lines = [
        f'<section id="first" aria-label="Overview"{"" if explorer else " data-plain"}>',
        '<div class="card" id="summary"><h2>Models</h2>',
        guard.text("The table of the models", models.models_table, inspection, names, True),
        guard.text("The legend of kinds", models.kinds_legend, inspection),
        *guard.lines("The summary", _sentences, inspection, names, shown, guard),
        "</div>",
    ]
    if explorer:
        lines += ['<div class="card" id="explorer"><h2>Attention</h2>', explorer, "</div>"]
    if shown:
        lines.append('<div class="keys">')
        for name in shown:
            what = f"The key chart of {name}"
            lines += guard.lines(what, _key_chart, inspection[name], names, guard)
        lines.append("</div>")
    return [*lines, "</section>"]


def key_charts(inspection: Inspection, names: list[str]) -> list[str]:
    """Return the measurements whose first chart is shown on the first screen.

    Measurements say with their place (`Section.key`) which come first; the others fill what these
    leave free, but for accuracy and cost, which the table beside has. Those that concern fewer than
    half of the models are left out, so that a report of ResNets does not open with the attention of
    the one ViT among them; so are charts of many panels.
    """
    sections = {name: section_of(name, result) for name, result in inspection.items()}
    ranked = sorted(
        (not each.key, each.key, name)
        for name, each in sections.items()
        if each.key or each.group != "overview"
    )
    wanted = [name for *_, name in ranked if _covers(inspection[name], names)]
    return wanted[:KEY_CHARTS]


def _covers(result: Result, names: list[str]) -> bool:
    """Whether a chart concerns half of the models, has marks to compare, and few enough panels."""
    if result.table.empty or not result.views or "model" not in result.table:
        return False
    view = result.views[0]
    if view.facet and result.rows_of(view).table[view.facet].nunique() > MAX_PANELS:
        return False
    present = set(map(str, result.table["model"].unique()))
    if not has_marks(result, view) or len(result.rows_of(view).table) < 2:
        return False
    return 2 * sum(name in present for name in names) >= len(names)


def _sentences(
    inspection: Inspection, names: list[str], shown: list[str], guard: Guard
) -> list[str]:
    """Return up to three sentences, each with a link to its card.

    Key charts have a sentence of their own. Measurements say with their place
    (`Section.headline`) which come first; the others fill what these leave free.
    """
    sections = {name: section_of(name, result) for name, result in inspection.items()}
    ordered = sorted(
        (name for name in sections if name not in shown),
        key=lambda name: (not sections[name].headline, sections[name].headline, name),
    )
    items: list[str] = []
    for name in ordered:
        if len(items) < SENTENCES:
            items += guard.lines(f"The findings of {name}", _headline, inspection, name, names)
    return ["<ul>", *items, "</ul>"] if items else []


def _headline(inspection: Inspection, name: str, names: list[str]) -> list[str]:
    sentences = sentences_of(inspection[name])
    title = section_of(name, inspection[name]).title
    found = f"{mark_models(sentences[0], names)} {_link(name, title)}" if sentences else ""
    return [f"<li>{found}</li>"] if found else []


def _link(name: str, title: str) -> str:
    return f'<a class="where" href="#{escape(name)}" aria-label="{escape(title)}">→</a>'


def first_clause(sentence: str) -> str:
    """Return a sentence up to its first semicolon outside parentheses and HTML entities."""
    clause = CLAUSE.match(sentence)
    return sentence if clause is None or clause.end() == len(sentence) else f"{clause[0]}."


def _key_chart(result: Result, names: list[str], guard: Guard) -> list[str]:
    """Return a small copy of the first chart of a card, with its sentence and a link to it."""
    title = section_of(result.name, result).title
    place, name = f"key-{result.name}-0", escape(result.name)
    what = f"The findings of {result.name}"
    sentence = guard.lines(what, _key_sentence, result, title, names)
    return [
        f'<figure class="card key"><figcaption><h3><a href="#{name}">{escape(title)}</a></h3>'
        "</figcaption>",
        chart_place(place, f"{result.name}-0", title),
        *sentence,
        "</figure>",
    ]


def _key_sentence(result: Result, title: str, names: list[str]) -> list[str]:
    """Return the first clause of what a measurement found, and a link to the rest."""
    clauses = [first_clause(sentence) for sentence in sentences_of(result)[:1]]
    return [
        f'<p class="found">{mark_models(clause, names)} {_link(result.name, title)}</p>'
        for clause in clauses
    ]
