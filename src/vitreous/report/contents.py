"""What surrounds the cards: the table of contents with its search, the title, and the buttons."""

from __future__ import annotations

from vitreous import __version__
from vitreous.claims.loading import unjudged
from vitreous.measure.inspection import Inspection
from vitreous.measure.report_section import GROUPS, arrange, sections_of
from vitreous.report import origin
from vitreous.report.judgement import Judgement, warnings
from vitreous.results.names import ROOMY, short_names
from vitreous.results.weight_origin import model_records, weights_file
from vitreous.results.words import escape, join_words, plural

SEARCH = """\
<div class="search scripted"><input type="search" id="search" placeholder="Search" \
aria-label="Search the report" aria-controls="search-results" autocomplete="off">\
<ul id="search-results" aria-label="Search results" hidden></ul></div>"""
ABSENT = ' class="absent" title="not measured"'
BUTTONS = """\
<button type="button" id="unfold">Expand all</button>\
<button type="button" id="theme">Dark</button>\
<button type="button" id="print">Print</button>"""


def contents(inspection: Inspection, judgement: Judgement | None) -> list[str]:
    """Return the table of contents."""
    lines = [f'<nav aria-label="Contents">{SEARCH}<details open><summary>Contents</summary><ul>']
    measured = bool(inspection or inspection.left_out)
    if measured:
        lines.append('<li><a href="#first">Overview</a></li>')
    if judgement:
        lines.append('<li><a href="#verdicts">Findings of the papers</a></li>')
    if not measured:
        return [*lines, "</ul></details></nav>"]
    if inspection.anatomies:
        lines.append('<li><a href="#models">Anatomy</a></li>')
    for group, names in arrange([*inspection, *inspection.left_out], inspection).items():
        inside = "".join(
            f'<li><a href="#{escape(name)}"{"" if name in inspection else ABSENT}>'
            f"{escape(declared.title)}</a></li>"
            for name, declared in sections_of(names, inspection).items()
        )
        lines.append(f'<li><a href="#{group}">{escape(GROUPS[group])}</a><ul>{inside}</ul></li>')
    return [*lines, '<li><a href="#origin">Provenance</a></li></ul></details></nav>']


def page_title(inspection: Inspection, names: list[str]) -> str:
    """Return the title as HTML: the models, or their number where a line would not hold them."""
    if not (inspection or inspection.left_out):
        return "Verdicts"
    if len(names) <= 4 and sum(map(len, names)) <= 64:
        weights = f" <small>{escape(file)}</small>" if (file := _only_file(inspection)) else ""
        shown = join_words([f"<span>{escape(name)}</span>" for name in names])
        return f"Inside {shown}{weights}"
    return f"Inside <span>{plural(len(names), 'model')}</span>"


def _only_file(inspection: Inspection) -> str:
    """Return the file of the weights, if the models have one between them."""
    files = {weights_file(record) for _, record in model_records(inspection)}
    return files.pop() if len(files) == 1 else ""


def head(inspection: Inspection, names: list[str]) -> list[str]:
    """Return title, provenance, warnings, and the buttons for models, theme and printing."""
    shown = short_names(names, ROOMY)
    chips = "".join(
        f'<button type="button" class="chip" data-model="{escape(name)}" aria-pressed="false" '
        f'title="{escape(name)}"><i class="dot model-{i}"></i>'
        f"<span>{escape(shown[name])}</span></button>"
        for i, name in enumerate(names)
    )
    if len(names) > 1:
        chips = (
            '<div class="chips scripted" role="group" aria-label="Show only these models">'
            f"{chips}</div>"
        )
    else:
        chips = ""
    return [
        f"<header><h1>{page_title(inspection, names)}</h1>",
        f'<p class="facts">{origin.provenance_line(inspection)}</p></header>',
        *(
            f'<p class="caution" role="note">{escape(each)}</p>'
            for each in warnings(unjudged(inspection))
        ),
        f'<div class="bar">{chips}<div class="switches scripted">{BUTTONS}</div></div>',
    ]


def head_of_verdicts(judgement: Judgement | None) -> list[str]:
    """Return title and buttons of a page of verdicts alone."""
    judged = plural(len(judgement.verdicts), "finding") if judgement else ""
    return [
        f'<header><h1>Verdicts</h1><p class="facts">{judged} · vitreous {escape(__version__)}</p>'
        "</header>",
        f'<div class="bar"><div class="switches scripted">{BUTTONS}</div></div>',
    ]
