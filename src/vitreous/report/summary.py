"""In short: what the results say, in sentences computed from them. Nothing is said that was not measured."""

from __future__ import annotations

from vitreous.measure.inspection import Inspection
from vitreous.measure.section import section_of, sentences_of
from vitreous.report.guard import Guard
from vitreous.results.words import escape, plural


def lines(inspection: Inspection, guard: Guard) -> list[str]:
    """The first section of the page: a sentence for each of the main questions, with the way to its charts."""
    found: list[str] = []
    headlines = {name: place for name in inspection if (place := section_of(name).headline)}
    for name in sorted(headlines, key=lambda name: headlines[name]):
        found += guard.lines(f"The findings of {name}", _headline, inspection, name)
    if not found:
        asked = plural(len(inspection), "question was", "questions were")
        found = [f"<li>{asked} answered; the charts say what was found.</li>"]
    return ['<section id="summary" class="card"><h2>In short</h2><ul>', *found, "</ul></section>"]


def _headline(inspection: Inspection, name: str) -> list[str]:
    said = sentences_of(inspection[name])
    where = f'<a class="where" href="#{name}" aria-label="{escape(section_of(name).title)}">→</a>'
    return [f"<li>{said[0]} {where}</li>"] if said else []
