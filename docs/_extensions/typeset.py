"""Formulas as inline SVG, set by matplotlib when the manual is built.

They need no script, no fonts and no network, follow the text's colour in light and dark mode, and
sit on the baseline. `$a$` is set within a line, `$$a$$` as a block; in a block `\\\\` begins a new
line and `&` marks where lines are aligned. What matplotlib's mathtext does not know is a warning,
and `make docs` fails on warnings.
"""

from __future__ import annotations

import html
import re
from functools import cache
from typing import Any

from matplotlib import rc_context
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import text_to_path
from sphinx.application import Sphinx
from sphinx.util import logging

SIZE = text_to_path.FONT_SCALE
"""Units of a letter's height in matplotlib's outlines: one em."""
LEADING, GAP, MARGIN = 0.75, 0.06, 0.06
"""Between the lines of a block, around the mark of alignment, around the picture: in em."""

OTHER_NAMES = (
    (r"\\[lr]Vert\b", r"\Vert "),
    (r"\\[lr]vert\b", "|"),
    (r"\\operatorname\*", r"\operatorname"),
)
"""TeX that mathtext knows by another name."""

log = logging.getLogger(__name__)


@cache
def outline(tex: str) -> tuple[str, float, float, float]:
    """The path of one line, with its width, height above the baseline and depth below, in em."""
    with rc_context({"mathtext.fontset": "stix"}):
        font = FontProperties(size=SIZE)
        width, height, depth = text_to_path.get_text_width_height_descent(f"${tex}$", font, True)
        points, codes = text_to_path.get_text_path(font, f"${tex}$", ismath=True)
    steps, letters = [], {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
    for vertices, code in Path(points, codes).iter_segments(curves=True, simplify=False):
        numbers = (f"{value / SIZE * 1000:.0f}" for value in vertices)
        steps.append("Z" if code == Path.CLOSEPOLY else letters[code] + " ".join(numbers))
    return "".join(steps), width / SIZE, (height - depth) / SIZE, depth / SIZE


def picture(lines: list[list[str]], label: str, inline: bool) -> str:
    """The SVG of lines of cells; cells before the mark are set flush right, those after it left."""
    rows = [[outline(cell) for cell in cells if cell] for cells in lines]
    before = max((row[0][1] + GAP for row in rows if len(row) > 1), default=0.0)
    widths = [before + row[-1][1] if len(row) > 1 else row[0][1] for row in rows]
    paths, top = [], MARGIN
    for row in rows:
        baseline = top + max(cell[2] for cell in row)
        for number, (path, width, _, _) in enumerate(row):
            left = MARGIN + (0.0 if len(row) == 1 else before if number else before - GAP - width)
            paths.append(
                f'<path transform="translate({left * 1000:.0f} {baseline * 1000:.0f}) scale(1 -1)"'
                f' d="{path}"/>'
            )
        top = baseline + max(cell[3] for cell in row) + LEADING
    width, height = max(widths) + 2 * MARGIN, top - LEADING + MARGIN
    depth = rows[-1][-1][3] + MARGIN
    shift = f";vertical-align:{-depth:.3f}em" if inline else ""
    return (
        f'<svg class="formula" role="img" aria-label="{html.escape(label, quote=True)}"'
        f' viewBox="0 0 {width * 1000:.0f} {height * 1000:.0f}"'
        f' style="width:{width:.3f}em;height:{height:.3f}em{shift}">{"".join(paths)}</svg>'
    )


def cells(tex: str) -> list[list[str]]:
    """Lines of a block, each of one or two cells. As in TeX, its fractions are large."""
    plain = re.sub(r"\\(begin|end)\{(aligned|split)\}", "", tex)
    plain = plain.replace(r"\frac", r"\dfrac").replace(r"\tfrac", r"\frac")
    lines = [line.strip() for line in re.split(r"\\\\", plain) if line.strip()]
    return [[cell.strip() for cell in line.split("&", 1)] for line in lines]


def draw(node: Any, inline: bool) -> str:
    tex = " ".join(node.astext().split())
    known = tex
    for pattern, name in OTHER_NAMES:
        known = re.sub(pattern, lambda _, name=name: name, known)
    try:
        return picture([[known]] if inline else cells(known), tex, inline)
    except ValueError as error:
        log.warning("This formula cannot be set: %s\n%s", tex, error, location=node)
        return f"<code>{html.escape(tex)}</code>"


def visit_inline(translator: Any, node: Any) -> None:
    translator.body.append(f'<span class="math">{draw(node, inline=True)}</span>')


def visit_block(translator: Any, node: Any) -> None:
    translator.body.append(f'<div class="math">{draw(node, inline=False)}</div>\n')


def leave(translator: Any, node: Any) -> None:
    """Nothing is left to write: the text of the node must not follow its picture."""


def skip(visit: Any) -> Any:
    """The visitor, ending with the exception that makes docutils pass over the node's text."""
    from docutils.nodes import SkipNode

    def visited(translator: Any, node: Any) -> None:
        visit(translator, node)
        raise SkipNode

    return visited


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("svg", (skip(visit_inline), leave), (skip(visit_block), leave))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
