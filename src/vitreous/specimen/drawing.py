"""How an anatomy is shown: a table in the terminal, a vector drawing, a page of its own, a cell of a notebook.

None of it needs torch or the network; a page forbids itself to load anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.errors import VitreousError
from vitreous.palette import KIND_COLOURS, PAPERS
from vitreous.specimen.anatomy import Anatomy, Unit
from vitreous.specimen.drawing_svg import count, draw, svg
from vitreous.specimen.folding import panels, slot_name

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["KIND_COLOURS", "check_ending", "html", "notebook", "save", "svg", "table"]

ENDINGS = (".svg", ".pdf", ".png", ".html", ".json")

COLUMNS = (
    "label",
    "unit",
    "kind",
    "grid",
    "prefix",
    "heads",
    "reach",
    "channels",
    "skip",
    "parameters",
)
NUMBERS = {"grid", "heads", "channels", "parameters"}


def table(anatomy: Anatomy, *, fold: bool = False) -> Table:
    """One row a unit, a gap between stages. `fold` gathers identical blocks; numbers in a folded row are of one unit.

    Tokens are written as they add up, `1+14×14` being a class token and a grid.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    prefix = dict.fromkeys(token for unit in anatomy for token in unit.prefix)
    tally = ", ".join(f"{number} {kind}" for kind, number in anatomy.counts().items())
    notes = [
        f"{count(anatomy.parameters)} parameters",
        tally,
        f"prefix: {', '.join(prefix)}" if prefix else "",
    ]
    reasons = "".join(f"\n{line}" for line in remarks(anatomy))
    out = Table(
        title=Text(anatomy.model, "bold"), caption=Text(" · ".join(filter(None, notes)) + reasons), box=box.SIMPLE_HEAD,
        title_justify="left", caption_justify="left", pad_edge=False, show_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    labels, attends = anatomy.labels, any(unit.heads or unit.reach for unit in anatomy)
    shown = ["", "unit", "kind", "tokens", *(["heads"] if attends else []), "ch", "params"]
    for column in shown:
        right, wraps = column in ("tokens", "ch", "params"), column == "unit"
        out.add_column(
            column, justify="right" if right else "left", no_wrap=not wraps, overflow="fold"
        )
    for panel in panels(anatomy, fold=fold):
        for slot in chain(*panel):
            unit, times = slot[0], f" ×{len(slot)}" if len(slot) > 1 else ""
            cells: dict[str, str | Text] = {
                "": Text(labels[unit.index], "dim"),
                "unit": Text(slot_name(slot)),
                "kind": Text.assemble(("■ ", KIND_COLOURS[unit.kind]), unit.kind, times),
                "tokens": (f"{len(unit.prefix)}+" if unit.prefix else "") + _grid(unit)
                if unit.grid
                else "",
                "heads": " ".join(filter(None, [str(unit.heads or ""), unit.reach])),
                "ch": str(unit.channels or ""),
                "params": count(unit.parameters),
            }
            out.add_row(*(cells[column] for column in shown))
        out.add_section()
    return out


def remarks(anatomy: Anatomy) -> list[str]:
    """Why attention cannot be seen or is no probability, with the units it holds for."""
    found: dict[str, list[str]] = {}
    for unit in anatomy:
        if unit.reason:
            found.setdefault(unit.reason, []).append(unit.name)
    return [
        f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}: {reason}"
        for reason, names in found.items()
    ]


def html(anatomies: Sequence[Anatomy]) -> str:
    """A page that stands alone: the drawing and the units beneath it, light or dark as the reader's system is."""
    names = escape(", ".join(anatomy.model for anatomy in anatomies))
    (ink, paper), (light, night) = PAPERS["light"], PAPERS["dark"]
    tables = "\n".join(
        f'<div class="scroll" tabindex="0">\n{_units(anatomy)}\n</div>' for anatomy in anatomies
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Anatomy of {names}</title>
<style>
:root {{ --ink: {ink}; --paper: {paper}; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: {light}; --paper: {night}; }} }}
@media print {{ :root {{ --ink: {ink}; --paper: {paper}; }} }}
{PAGE}{UNITS}</style>
</head>
<body>
<main>
<div class="scroll drawing" tabindex="0" role="region" aria-label="Drawing">
{draw(anatomies, "currentColor", None)}</div>
{tables}
</main>
</body>
</html>
"""


UNITS = """.vitreous { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
.vitreous caption { text-align: left; font-size: 16px; font-weight: 600; padding-bottom: 8px; }
.vitreous th, .vitreous td { text-align: left; padding: 3px 20px 3px 0; white-space: nowrap; }
.vitreous th { font-weight: 500; }
.vitreous tbody { border-top: 1px solid #8886; }
.vitreous .number { text-align: right; }
.vitreous td:first-child { opacity: 0.7; }
.vitreous td.name { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 12px; }
.vitreous .kind { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 7px; }
"""
"""How a table of units looks, on a page and in a notebook."""

PAGE = """body { margin: 0; background: var(--paper); color: var(--ink); font: 14px/1.5 system-ui, sans-serif; }
main { max-width: 792px; margin: 0 auto; padding: 16px 24px 64px; }
.scroll { overflow-x: auto; margin-bottom: 40px; }
.drawing { margin-left: -24px; margin-right: -24px; }
svg { display: block; }
@media print {
  @page { margin: 14mm; }
  main { max-width: none; padding: 0; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .scroll { overflow: visible; margin-left: 0; margin-right: 0; }
  svg { max-width: 100%; height: auto; }
  svg, tr { break-inside: avoid; }
  .drawing { break-after: page; }
}
"""


def notebook(anatomy: Anatomy) -> str:
    """A fragment for a cell's output, in the ink of the notebook around it: the drawing, and the units on demand."""
    return (
        f'<div style="overflow-x: auto"><style>\n{UNITS}</style>\n{draw([anatomy], "currentColor", None)}'
        f'<details><summary style="cursor: pointer">{len(anatomy)} units</summary>\n{_units(anatomy)}</details></div>\n'
    )


def _units(anatomy: Anatomy) -> str:
    """The units as an HTML table, a body for each stage, without the columns in which nothing stands."""
    rows = [_row(unit, label) for unit, label in zip(anatomy, anatomy.labels, strict=True)]
    shown = [column for column in COLUMNS if any(row[column] for row in rows)]
    heads = "".join(f'<th scope="col"{_aligned(column)}>{column}</th>' for column in shown)
    body = ""
    for _, stage in groupby(zip(anatomy, rows, strict=True), lambda pair: pair[0].stage):
        lines = [
            "".join(f"<td{_aligned(column)}>{row[column]}</td>" for column in shown)
            for _, row in stage
        ]
        body += "<tbody>\n" + "".join(f"<tr>{line}</tr>\n" for line in lines) + "</tbody>\n"
    caption = f"<caption>{escape(anatomy.model)}</caption>"
    notes = "".join(f"<p>{escape(line)}</p>" for line in remarks(anatomy))
    return f'<table class="vitreous">\n{caption}\n<thead><tr>{heads}</tr></thead>\n{body}</table>{notes}'


def _row(unit: Unit, label: str) -> dict[str, str]:
    swatch = f'<span class="kind" style="background: {KIND_COLOURS[unit.kind]}"></span>'
    prefix = ", ".join(
        f"{n} {token}" if n > 1 else token for token, n in Counter(unit.prefix).items()
    )
    counts = (
        str(unit.heads or ""),
        unit.reach or "",
        str(unit.channels or ""),
        "yes" if unit.skip else "",
    )
    values = (label, escape(unit.name), swatch + unit.kind, _grid(unit), escape(prefix), *counts)
    return dict(zip(COLUMNS, (*values, f"{unit.parameters:,}"), strict=True))


def _aligned(column: str) -> str:
    return ' class="number"' if column in NUMBERS else ' class="name"' if column == "unit" else ""


def _grid(unit: Unit) -> str:
    return f"{unit.grid[0]}×{unit.grid[1]}" if unit.grid else ""


def check_ending(path: Path) -> None:
    """Whether `save` knows this kind of file."""
    if path.suffix.lower() not in ENDINGS:
        known = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise VitreousError(f"A drawing ends in {known}, and {str(path)!r} does not.")


def save(anatomies: Sequence[Anatomy], path: Path) -> Path:
    """Write a drawing, a page or the data, as the ending says. One model's JSON is what `Anatomy.from_json` reads; of
    several it is a list of those."""
    check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_content(anatomies, path.suffix.lower()))
    return path


def _content(anatomies: Sequence[Anatomy], ending: str) -> bytes:
    if ending == ".json":
        one = [anatomy.to_json() for anatomy in anatomies]
        return (one[0] if len(one) == 1 else "[" + ",\n".join(one) + "]").encode()
    if ending in (".html", ".svg"):
        return (html(anatomies) if ending == ".html" else svg(anatomies)).encode()
    import vl_convert

    drawn = svg(anatomies)
    return bytes(
        vl_convert.svg_to_pdf(drawn) if ending == ".pdf" else vl_convert.svg_to_png(drawn, scale=2)
    )
