"""In short: what the results say, in sentences computed from them. Nothing is said that was not measured."""

from __future__ import annotations

from vitreous.measure.inspection import Inspection
from vitreous.report.findings import HEADLINES, findings
from vitreous.report.guard import Guard
from vitreous.report.questions import question
from vitreous.report.words import escape, several


def lines(inspection: Inspection, guard: Guard) -> list[str]:
    """The first section of the page: a sentence for each of the main questions, with the way to its charts."""
    found: list[str] = []
    for name in HEADLINES:
        if name in inspection:
            found += guard.lines(f"The findings of {name}", _headline, inspection, name)
    if not found:
        asked = several(len(inspection), "question was", "questions were")
        found = [f"<li>{asked} answered; the charts say what was found.</li>"]
    return ['<section id="summary" class="card"><h2>In short</h2><ul>', *found, "</ul></section>"]


def _headline(inspection: Inspection, name: str) -> list[str]:
    said = findings(inspection[name])
    where = f'<a class="where" href="#{name}" aria-label="{escape(question(name).asks)}">→</a>'
    return [f"<li>{said[0]} {where}</li>"] if said else []
