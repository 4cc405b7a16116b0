"""Show an anatomy as a table in the terminal, a vector drawing, a page or a notebook cell.

Nothing here needs torch or the network; the page's security policy forbids loading anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vitreous.errors import VitreousError
from vitreous.palette import KIND_COLOURS, PAPERS
from vitreous.specimen.anatomy import Anatomy, Slot, Unit, panels, slot_name
from vitreous.specimen.drawing_svg import count, draw, svg
from vitreous.storage.atomic_files import write_bytes

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["KIND_COLOURS", "check_ending", "html", "notebook", "save", "svg", "table"]

ENDINGS = (".svg", ".pdf", ".png", ".html", ".json")

COLUMNS = (
    "label", "unit", "kind", "grid", "prefix", "heads", "reach", "channels", "skip", "parameters"
)  # fmt: skip
NUMBERS = {"grid", "heads", "channels", "parameters"}


def table(anatomy: Anatomy, *, fold: bool = False) -> Table:
    """One row for each unit, with a gap between stages.

    `fold` puts identical blocks in one row, whose numbers are those of one unit. Tokens are written
    as prefix plus grid: `1+14×14` is a class token and a grid.
    """
    # here, so that drawings load without it
    from rich import box
    from rich.table import Table
    from rich.text import Text

    prefix = ", ".join(dict.fromkeys(token for unit in anatomy for token in unit.prefix))
    notes = [
        f"{count(anatomy.parameters)} parameters",
        ", ".join(f"{number} {kind}" for kind, number in anatomy.counts().items()),
        f"prefix: {prefix}" if prefix else "",
    ]
    caption = "\n".join([" · ".join(filter(None, notes)), *remarks(anatomy)])
    out = Table(
        title=Text(anatomy.model, "bold"),
        caption=Text(caption),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    attends = any(unit.heads or unit.reach for unit in anatomy)
    columns = ["", "unit", "kind", "tokens", *(["heads"] if attends else []), "ch", "params"]
    for column in columns:
        justify: Literal["left", "right"] = (
            "right" if column in ("tokens", "ch", "params") else "left"
        )
        out.add_column(column, justify=justify, no_wrap=column != "unit", overflow="fold")
    labels = anatomy.labels
    for panel in panels(anatomy, fold=fold):
        for slot in chain(*panel):
            kind = slot[0].kind
            times = f" ×{len(slot)}" if len(slot) > 1 else ""
            cells: dict[str, str | Text] = {
                "": Text(labels[slot[0].index], "dim"),
                "unit": Text(slot_name(slot)),
                "kind": Text.assemble(("■ ", KIND_COLOURS[kind]), kind, times),
                **_numbers(slot),
            }
            out.add_row(*(cells[column] for column in columns))
        out.add_section()
    return out


def _numbers(slot: Slot) -> dict[str, str]:
    """The numeric cells of a row of the terminal table."""
    unit = slot[0]
    prefix = f"{len(unit.prefix)}+" if unit.prefix and unit.grid else ""
    return {
        "tokens": prefix + _grid(unit),
        "heads": " ".join(filter(None, [str(unit.heads or ""), unit.reach])),
        "ch": str(unit.channels or ""),
        "params": count(unit.parameters),
    }


def remarks(anatomy: Anatomy) -> list[str]:
    """Lines that say for which units attention cannot be observed or is not a probability."""
    units: dict[str, list[str]] = {}
    for unit in anatomy:
        if unit.reason:
            units.setdefault(unit.reason, []).append(unit.name)
    lines = []
    for reason, names in units.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(f"{', '.join(names[:3])}{more}: {reason}")
    return lines


def html(anatomies: Sequence[Anatomy]) -> str:
    """A self-contained page with drawing and table of units, in the system's colour scheme."""
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


UNITS = """.vitreous { border-collapse: collapse; font-size: 13px; \
font-variant-numeric: tabular-nums; }
.vitreous caption { text-align: left; font-size: 16px; font-weight: 600; padding-bottom: 8px; }
.vitreous th, .vitreous td { text-align: left; padding: 3px 20px 3px 0; white-space: nowrap; }
.vitreous th { font-weight: 500; }
.vitreous tbody { border-top: 1px solid #8886; }
.vitreous .number { text-align: right; }
.vitreous td:first-child { opacity: 0.7; }
.vitreous td.name { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; \
font-size: 12px; }
.vitreous .kind { display: inline-block; width: 10px; height: 10px; border-radius: 2px; \
margin-right: 7px; }
"""
"""Style sheet of the table of units, on a page and in a notebook."""

PAGE = """body { margin: 0; background: var(--paper); color: var(--ink); \
font: 14px/1.5 system-ui, sans-serif; }
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
    """The drawing and a foldable table of units, as HTML for the output of a notebook cell."""
    return (
        f'<div style="overflow-x: auto"><style>\n{UNITS}</style>\n'
        f"{draw([anatomy], 'currentColor', None)}"
        f'<details><summary style="cursor: pointer">{len(anatomy)} units</summary>\n'
        f"{_units(anatomy)}</details></div>\n"
    )


def _units(anatomy: Anatomy) -> str:
    """The units as an HTML table with one body per stage, without empty columns."""
    rows = [_row(unit, label) for unit, label in zip(anatomy, anatomy.labels, strict=True)]
    shown = [column for column in COLUMNS if any(row[column] for row in rows)]
    classes = dict.fromkeys(NUMBERS, "number") | {"unit": "name"}
    attributes = {c: f' class="{classes[c]}"' if c in classes else "" for c in shown}
    heads = "".join(f'<th scope="col"{attributes[column]}>{column}</th>' for column in shown)
    body = ""
    for _, stage in groupby(zip(anatomy, rows, strict=True), lambda pair: pair[0].stage):
        body += "<tbody>\n"
        for _, row in stage:
            cells = "".join(f"<td{attributes[c]}>{row[c]}</td>" for c in shown)
            body += f"<tr>{cells}</tr>\n"
        body += "</tbody>\n"
    caption = f"<caption>{escape(anatomy.model)}</caption>"
    notes = "".join(f"<p>{escape(line)}</p>" for line in remarks(anatomy))
    head = f"{caption}\n<thead><tr>{heads}</tr></thead>"
    return f'<table class="vitreous">\n{head}\n{body}</table>{notes}'


def _row(unit: Unit, label: str) -> dict[str, str]:
    swatch = f'<span class="kind" style="background: {KIND_COLOURS[unit.kind]}"></span>'
    tokens = Counter(unit.prefix).items()
    return {
        "label": label,
        "unit": escape(unit.name),
        "kind": swatch + unit.kind,
        "grid": _grid(unit),
        "prefix": escape(", ".join(f"{n} {token}" if n > 1 else token for token, n in tokens)),
        "heads": str(unit.heads or ""),
        "reach": unit.reach or "",
        "channels": str(unit.channels or ""),
        "skip": "yes" if unit.skip else "",
        "parameters": f"{unit.parameters:,}",
    }


def _grid(unit: Unit) -> str:
    return f"{unit.grid[0]}×{unit.grid[1]}" if unit.grid else ""


def check_ending(path: Path) -> None:
    """Raise an error for a file that `save` cannot write."""
    if path.suffix.lower() not in ENDINGS:
        known = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise VitreousError(f"A drawing ends in {known}, and {str(path)!r} does not.")


def save(anatomies: Sequence[Anatomy], path: Path) -> Path:
    """Write a drawing, a page or the data, depending on the suffix of the path; return the path.

    The JSON of one model can be read with `Anatomy.from_json`; for several it is a list of them.
    """
    check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, _content(anatomies, path.suffix.lower()))
    return path


def _content(anatomies: Sequence[Anatomy], ending: str) -> bytes:
    if ending == ".json":
        texts = [anatomy.to_json() for anatomy in anatomies]
        return (texts[0] if len(texts) == 1 else "[" + ",\n".join(texts) + "]").encode()
    if ending == ".html":
        return html(anatomies).encode()
    drawn = svg(anatomies)
    if ending == ".svg":
        return drawn.encode()
    import vl_convert  # here, since it takes a while to load

    if ending == ".pdf":
        return bytes(vl_convert.svg_to_pdf(drawn))
    return bytes(vl_convert.svg_to_png(drawn, scale=2))
