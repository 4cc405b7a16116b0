"""The page: one HTML file from an inspection and its verdicts, which needs nothing beside it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from vitreous import __version__
from vitreous.claims.loading import unjudged
from vitreous.claims.verdicts import by_paper
from vitreous.errors import VitreousError
from vitreous.measure.inspection import Inspection
from vitreous.measure.section import GROUPS, arrange, sections_of
from vitreous.palette import KIND_COLOURS, OUTCOME_COLOURS, PAPERS, RAMPS, Theme, model_colours
from vitreous.report import attention, models, origin, summary, surface
from vitreous.report.guard import Guard
from vitreous.report.judgement import Judgement, warnings
from vitreous.report.packing import block, compact_json, policy_hash
from vitreous.report.path import check_report_path
from vitreous.report.sections import section
from vitreous.report.verdicts import verdicts_section
from vitreous.results.words import escape, join_words, plural
from vitreous.specimen.drawing_svg import draw
from vitreous.storage.atomic_files import explain_write_errors, write_bytes

BUTTONS = (
    '<button type="button" id="theme">Dark</button><button type="button" id="print">Print</button>'
)
SCRIPTS = (
    "unpack.js", "charts.js", "attention_data.js", "attention_draw.js", "attention_words.js",
    "attention_state.js", "attention.js", "verdicts.js", "page.js",
)  # fmt: skip
STYLES = ("report.css", "attention.css", "verdicts.css")
DARK = {
    "--desk": "#0D0F13",
    "--line": "#FFFFFF26",
    "--quiet": "#A4ABB5",
    "--link": "#8CB4FF",
    "--raised": "#1B1F26",
}
LIGHT = {
    "--desk": "#F3F4F6",
    "--line": "#1B1F2424",
    "--quiet": "#59616B",
    "--link": "#1D4FD7",
    "--raised": "#F3F4F6",
}


def write(
    inspection: Inspection,
    path: Path | str,
    *,
    figures: Path | str | None = None,
    judgement: Judgement | None = None,
    guard: Guard | None = None,
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

    Examples
    --------
    >>> vitreous.report.write(vitreous.inspect("nano:vit", limit=64), "report.html")
    """
    if not inspection and not inspection.left_out and judgement is None:
        raise VitreousError(
            "There is nothing to report: the inspection has no results; run at least one probe."
        )
    target = Path(path).expanduser()
    check_report_path(target)
    notes = guard or Guard()
    text = page(inspection, judgement, notes)
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
    inspection: Inspection, judgement: Judgement | None = None, guard: Guard | None = None
) -> str:
    """Return the content of the file; `guard` notes what fails."""
    guard = guard or Guard()
    library = _library() if inspection else ""
    names = list(inspection.anatomies) or models.inspected_models(inspection)
    style, script = _style(names), _script()
    scripts = filter(None, (script, library))
    policy = (
        f"default-src 'none'; script-src {' '.join(map(policy_hash, scripts))}; "
        f"style-src {policy_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    measured = bool(inspection or inspection.left_out)
    title = f"Inside {escape(join_words(names))}" if measured else "Verdicts"
    head = (_head, inspection, names) if measured else (_head_of_verdicts, judgement)
    return "\n".join([
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>",
        '<a class="skip" href="#main">Skip to the results</a>',
        *guard.lines("The table of contents", _contents, inspection, judgement),
        '<main id="main" tabindex="-1">',
        *guard.lines("The head of the page", *head),
        *(guard.lines("The verdicts", verdicts_section, judgement, guard) if judgement else []),
        *(_measurements(inspection, names, guard) if measured else []),
        "</main>",
        block("settings", compact_json({"ramps": RAMPS, "papers": PAPERS, "models": names})),
        *([block("library", library)] if library else []),
        f'<script type="module">{script}</script>\n</body>\n</html>\n',
    ])  # fmt: skip


def _measurements(inspection: Inspection, names: list[str], guard: Guard) -> list[str]:
    """Return all sections on an inspection."""
    return [
        *guard.lines("The summary", summary.summary_section, inspection, guard),
        *guard.lines("The section on the models", _anatomy, inspection, names, guard),
        *_groups(inspection, guard),
        *guard.lines("Where this comes from", origin.origin_section, inspection),
    ]


def _contents(inspection: Inspection, judgement: Judgement | None) -> list[str]:
    """Return the table of contents."""
    lines = ['<nav aria-label="Contents"><details open><summary>Contents</summary><ul>']
    if judgement:
        inside = "".join(
            f'<li><a href="#verdicts-{paper.key}">{escape(paper.authors)} ({paper.year})</a></li>'
            for paper in by_paper(judgement.verdicts)
        )
        lines.append(f'<li><a href="#verdicts">The papers\' findings</a><ul>{inside}</ul></li>')
    if not (inspection or inspection.left_out):
        return [*lines, "</ul></details></nav>"]
    lines += [
        '<li><a href="#summary">In short</a></li>',
        '<li><a href="#models">The models</a></li>',
    ]
    for group, names in arrange([*inspection, *inspection.left_out], inspection).items():
        inside = "".join(
            f'<li><a href="#{escape(name)}">{escape(declared.title)}</a></li>'
            for name, declared in sections_of(names, inspection).items()
        )
        lines.append(f'<li><a href="#{group}">{escape(GROUPS[group])}</a><ul>{inside}</ul></li>')
    return [*lines, '<li><a href="#origin">Where this comes from</a></li></ul></details></nav>']


def _head(inspection: Inspection, names: list[str]) -> list[str]:
    """Return title, provenance, warnings, and the buttons for models, theme and printing."""
    chips = "".join(
        f'<button type="button" class="chip" data-model="{escape(name)}" aria-pressed="false">'
        f'<i class="dot model-{i}"></i>{escape(name)}</button>'
        for i, name in enumerate(names)
    )
    chips = (
        f'<div class="chips" role="group" aria-label="Show one model alone">{chips}</div>'
        if len(names) > 1
        else ""
    )
    return [
        f"<header><h1>Inside {join_words([f'<span>{escape(name)}</span>' for name in names])}</h1>",
        f'<p class="facts">{origin.provenance_line(inspection)}</p></header>',
        *(
            f'<p class="caution" role="note">{escape(each)}</p>'
            for each in warnings(unjudged(inspection))
        ),
        f'<div class="bar">{chips}<div class="switches">',
        f"{BUTTONS}</div></div>",
    ]


def _head_of_verdicts(judgement: Judgement | None) -> list[str]:
    """Return title and buttons of a page of verdicts alone."""
    judged = plural(len(judgement.verdicts), "finding") if judgement else ""
    return [
        f'<header><h1>Verdicts</h1><p class="facts">{judged} · vitreous {escape(__version__)}</p>'
        "</header>",
        '<div class="bar"><div class="switches">',
        f"{BUTTONS}</div></div>",
    ]


def _anatomy(inspection: Inspection, names: list[str], guard: Guard) -> list[str]:
    """Return the section on the models: a table, a drawing, and their units."""
    table = guard.text("The table of the models", models.models_table, inspection, names)
    lines = [f'<section id="models" class="card"><h2>The models</h2>{table}']
    if inspection.anatomies:
        named = [replace(each, model=name) for name, each in inspection.anatomies.items()]
        drawn = guard.text("The drawing of the models", draw, named, "currentColor", None)
        lines += [
            '<p class="says">Depth runs to the right, a box is a unit in the colour of its kind, '
            "as tall as it has channels; arches are skips, bars beneath are parameters. Point at a "
            "box to see what it is.</p>",
            '<div class="anatomy"><div class="scroll drawing" tabindex="0" role="region" '
            'aria-label="Anatomy">',
            f"{drawn}</div><div>",
            *guard.lines("The list of units", models.units_tables, inspection),
            "</div></div>",
        ]
    return [*lines, "</section>"]


def _groups(inspection: Inspection, guard: Guard) -> list[str]:
    lines: list[str] = []
    for group, names in arrange([*inspection, *inspection.left_out], inspection).items():
        lines.append(f'<section class="group" id="{group}"><h2>{escape(GROUPS[group])}</h2>')
        for name in names:
            lines += guard.lines(f"The section on {name}", _section, inspection, name, guard)
        lines.append("</section>")
    return lines


def _section(inspection: Inspection, name: str, guard: Guard) -> list[str]:
    if name not in inspection:
        return section(guard, name, None, inspection.left_out[name])
    result = inspection[name]
    viewer = relief = ""
    if attention.has_maps(result):
        viewer = guard.text(f"The maps of {name}", attention.attention_viewer, result)
        viewer += guard.text(f"The data of {name}", attention.attention_data, result)
    if name == "landscape":
        relief = guard.text("The surface of landscape", surface.surface_figure, result)
    return section(guard, name, result, result.about.get("left_out", {}), viewer, relief)


def _style(names: list[str]) -> str:
    """Return the style sheet, after the colours of the palette as its variables."""
    fixed = {f"--kind-{kind}": colour for kind, colour in KIND_COLOURS.items()}
    (ink, paper), (night_ink, night) = PAPERS["light"], PAPERS["dark"]
    light = {
        "--ink": ink,
        "--paper": paper,
        **LIGHT,
        **_dots(names, "light"),
        **surface.height_colours("light"),
        **_outcomes("light"),
    }
    dark = {
        "--ink": night_ink,
        "--paper": night,
        **DARK,
        **_dots(names, "dark"),
        **surface.height_colours("dark"),
        **_outcomes("dark"),
    }
    root, by_day, by_night = (
        "".join(f"{k}:{v};" for k, v in each.items()) for each in (fixed, light, dark)
    )
    dots = "".join(f".model-{i}{{background:var(--model-{i})}}" for i in range(len(names)))
    kinds = "".join(f".kind-{kind}{{background:var(--kind-{kind})}}" for kind in KIND_COLOURS)
    return (
        f":root{{{root}{by_day}}}\n"
        "@media screen and (prefers-color-scheme: dark)"
        f"{{:root:not([data-theme=light]){{{by_night}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{{by_night}}}}}\n"
        f"{dots}{kinds}\n{surface.height_rules()}" + "".join(map(_asset, STYLES))
    )


def _dots(names: list[str], theme: Theme) -> dict[str, str]:
    return {f"--model-{i}": each for i, each in enumerate(model_colours(names, theme).values())}


def _outcomes(theme: Theme) -> dict[str, str]:
    return {f"--{outcome}": colour for outcome, colour in OUTCOME_COLOURS[theme].items()}


def _script() -> str:
    return "\n".join(_asset(name) for name in SCRIPTS)


@lru_cache(maxsize=1)
def _library() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script, from vl-convert, in its own scope."""
    import vl_convert

    return (
        f'"use strict";(()=>{{{vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")}}})();'
    )


def _asset(name: str) -> str:
    return files("vitreous.report").joinpath(name).read_text(encoding="utf-8")
