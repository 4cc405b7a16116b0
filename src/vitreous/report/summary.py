"""The first section of a page: a sentence on each of the main measurements, from their results."""

from __future__ import annotations

from vitreous.measure.inspection import Inspection
from vitreous.measure.section import section_of, sentences_of
from vitreous.report.guard import Guard
from vitreous.results.words import escape, plural


def summary_section(inspection: Inspection, guard: Guard) -> list[str]:
    """Return the section, with a link from each sentence to its charts."""
    items: list[str] = []
    places = {name: section_of(name, result).headline for name, result in inspection.items()}
    headlines = {name: place for name, place in places.items() if place}
    for name in sorted(headlines, key=lambda name: headlines[name]):
        items += guard.lines(f"The findings of {name}", _headline, inspection, name)
    if not items:
        items = [f"<li>{plural(len(inspection), 'measurement')}; see the charts below.</li>"]
    return ['<section id="summary" class="card"><h2>In short</h2><ul>', *items, "</ul></section>"]


def _headline(inspection: Inspection, name: str) -> list[str]:
    sentences = sentences_of(inspection[name])
    title = section_of(name, inspection[name]).title
    link = f'<a class="where" href="#{name}" aria-label="{escape(title)}">→</a>'
    return [f"<li>{sentences[0]} {link}</li>"] if sentences else []
