"""The page: one HTML file from an inspection and its verdicts, which needs nothing beside it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from vitreous.errors import VitreousError
from vitreous.measure.inspection import Inspection
from vitreous.measure.report_section import GROUPS, arrange
from vitreous.palette import PAPERS, RAMPS
from vitreous.report import attention, models, origin, surface
from vitreous.report.cards import absences, card, stands_alone
from vitreous.report.contents import contents, head, head_of_verdicts
from vitreous.report.guard import Guard
from vitreous.report.judgement import Judgement
from vitreous.report.overview import overview_section
from vitreous.report.packing import block, compact_json, policy_hash
from vitreous.report.report_path import check_report_path
from vitreous.report.style import asset, style_sheet
from vitreous.report.verdicts import verdicts_section
from vitreous.results.words import escape, join_words
from vitreous.specimen.anatomy import Anatomy
from vitreous.specimen.drawing_svg import draw_apart
from vitreous.storage.atomic_files import explain_write_errors, write_bytes

SCRIPTS = (
    "dom.js", "unpack.js", "tooltip.js", "charts.js", "attention_data.js",
    "attention_draw.js", "attention_words.js", "attention_state.js", "attention.js", "tables.js",
    "verdicts.js", "search.js", "state.js", "page.js",
)  # fmt: skip
SCRIPTED = "document.documentElement.classList.add('js')"
"""Runs before anything is drawn: what needs JavaScript is hidden without it."""


def write(
    inspection: Inspection,
    path: Path | str,
    *,
    figures: Path | str | None = None,
    judgement: Judgement | None = None,
    guard: Guard | None = None,
    mark: str = "",
) -> Path:
    """Write an inspection as one HTML file and return its path.

    A part that cannot be rendered is replaced by a sentence that says why. Everything else is
    written, and then `Unrendered` is raised, unless you pass a `guard`, which notes the failures.

    Parameters
    ----------
    inspection
        May be empty if there is a judgement.
    path
        Of the file, which ends in .html.
    figures
        A folder for every figure and table as files (default: none).
    judgement
        Verdicts on claims, which come first (default: none).
    guard
        Notes what cannot be rendered, instead of an error.
    mark
        A text in the head of the file, by which the command that wrote it is recognised.

    Examples
    --------
    >>> inspection = vitreous.inspect("nano:vit", "world:shapes", ["accuracy"], limit=8)
    >>> vitreous.report.write(inspection, "report.html").name
    'report.html'
    """
    if not inspection and not inspection.left_out and judgement is None:
        raise VitreousError(
            "There is nothing to report: the inspection has no results; run at least one probe."
        )
    target = Path(path).expanduser()
    check_report_path(target)
    notes = guard or Guard()
    text = page(inspection, judgement, notes, mark)
    with explain_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(target, text.encode())
    if figures is not None:
        from vitreous.report.figures import write_figures  # matplotlib comes with it

        write_figures(inspection, Path(figures).expanduser(), notes)
    if guard is None:
        notes.check()
    return target


def page(
    inspection: Inspection,
    judgement: Judgement | None = None,
    guard: Guard | None = None,
    mark: str = "",
) -> str:
    """Return the content of the file; `guard` notes what fails."""
    guard = guard or Guard()
    names = list(inspection.anatomies) or models.inspected_models(inspection)
    style, script = style_sheet(names), "\n".join(map(asset, SCRIPTS))
    library = _library() if inspection else ""
    scripts = filter(None, (SCRIPTED, script, library))
    policy = (
        f"default-src 'none'; script-src {' '.join(map(policy_hash, scripts))}; "
        f"style-src {policy_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    measured = bool(inspection or inspection.left_out)
    title = f"Inside {escape(join_words(names))}" if measured else "Verdicts"
    top = (head, inspection, names) if measured else (head_of_verdicts, judgement)
    return "\n".join([
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        *([f'<meta name="vitreous" content="{escape(mark)}">'] if mark else []),
        f"<title>{title}</title>\n<style>{style}</style>\n<script>{SCRIPTED}</script>",
        '</head>\n<body>\n<a class="skip" href="#main">Skip to the results</a>',
        *guard.lines("The table of contents", contents, inspection, judgement),
        '<main id="main" tabindex="-1">',
        *guard.lines("The head of the page", *top),
        *(guard.lines("The overview", overview_section, inspection, names, guard) if measured
          else []),
        *(guard.lines("The verdicts", verdicts_section, judgement, guard) if judgement
          else guard.apology("The verdicts")),
        *(_measurements(inspection, judgement, names, guard) if measured else []),
        "</main>",
        block("settings", compact_json({"ramps": RAMPS, "papers": PAPERS, "models": names})),
        *([block("library", library)] if library else []),
        f'<script type="module">{script}</script>\n</body>\n</html>\n',
    ])  # fmt: skip


def _measurements(
    inspection: Inspection, judgement: Judgement | None, names: list[str], guard: Guard
) -> list[str]:
    """Return everything after the overview and the verdicts: anatomy, cards, provenance."""
    lines = []
    if inspection.anatomies:
        lines += guard.lines("The section on the models", _anatomy, inspection, names, guard)
    for group, inside in arrange([*inspection, *inspection.left_out], inspection).items():
        lines.append(f'<section class="group" id="{group}"><h2>{escape(GROUPS[group])}</h2>')
        there = {name: inspection[name] for name in inside if name in inspection}
        absent = {name: inspection.left_out[name] for name in inside if name not in there}
        alone = guard.run("The widths of cards", partial(stands_alone, there), lambda _: set())
        lines += ['<div class="cards">'] if there else []
        for name in there:
            what, wide = f"The section on {name}", name in alone
            lines += guard.lines(what, _card, inspection, judgement, name, names, wide, guard)
        lines += ["</div>"] if there else []
        lines += absences(absent, guard) if absent else []
        lines.append("</section>")
    return [*lines, *guard.lines("Where this comes from", origin.origin_section, inspection)]


def _anatomy(inspection: Inspection, names: list[str], guard: Guard) -> list[str]:
    """Return the section on the models: a drawing, and on demand their numbers and units."""
    named = [replace(each, model=name) for name, each in inspection.anatomies.items()]
    drawn = guard.lines("The drawing of the models", _drawings, named)
    table = guard.text("The table of the models", models.models_table, inspection, names)
    return [
        '<section id="models" class="card"><h2>Anatomy</h2>',
        *drawn,
        '<div class="folds"><details class="fold"><summary>How to read</summary>'
        '<p class="inside">Depth runs to the right. A box is a unit in the colour of its kind, as '
        "tall as it has channels; arches are skips, bars beneath are parameters. Point at a box to "
        "mark its unit in every chart.</p></details>",
        f'<details class="fold"><summary>All numbers</summary><div class="inside">{table}</div>'
        "</details>",
        *guard.lines("The list of units", models.units_tables, inspection),
        "</div></section>",
    ]


def _drawings(anatomies: list[Anatomy]) -> list[str]:
    drawings, legend = draw_apart(anatomies, "currentColor")
    return [
        '<div class="drawings">',
        *(
            f'<div class="scroll drawing" tabindex="0" role="region" '
            f'aria-label="Anatomy of {escape(anatomy.model)}">{drawn}</div>'
            for anatomy, drawn in zip(anatomies, drawings, strict=True)
        ),
        '</div><div class="scroll drawing legend" tabindex="0" role="region" aria-label="Legend">',
        f"{legend}</div>",
    ]


def _card(
    inspection: Inspection,
    judgement: Judgement | None,
    name: str,
    names: list[str],
    wide: bool,
    guard: Guard,
) -> list[str]:
    result = inspection[name]
    viewer = relief = ""
    if attention.has_maps(result):
        viewer = guard.text(f"The maps of {name}", attention.attention_viewer, result, False)
        viewer += guard.text(f"The data of {name}", attention.attention_data, result)
    if name == "landscape":
        relief = guard.text("The surface of landscape", surface.surface_figure, result)
    judged = [
        verdict
        for verdict in (judgement.measured if judgement else [])
        if any(need.result == name for need in verdict.claim.needs(verdict.scale))
    ]
    return card(
        guard,
        name,
        result,
        result.about.get("left_out", {}),
        wide=wide,
        models=names,
        explorer=viewer,
        beside=relief,
        verdicts=judged,
    )


@lru_cache(maxsize=1)
def _library() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script, from vl-convert, in its own scope."""
    import vl_convert

    return (
        f'"use strict";(()=>{{{vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")}}})();'
    )
