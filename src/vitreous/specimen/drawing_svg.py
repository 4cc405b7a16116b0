"""Anatomies as one vector drawing.

Depth runs to the right, a panel is a stage, a box is a unit, an arch over it is its skip
connection. Box heights (channels, log) and widths are on one scale for all models of a drawing, so
that bands under each other can be compared; the bars beneath share out each model's parameters.
Everything is written as plain attributes, without ids, style sheets or references, so that the text
can be pasted into a page, a notebook or a vector editor unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from vitreous.errors import UnknownName, VitreousError
from vitreous.palette import KIND_COLOURS, PAPERS, REACH_GLYPHS, Theme, ink_on
from vitreous.specimen.anatomy import Anatomy, Fold, Panel, Slot, Unit, panels
from vitreous.unit_kinds import KINDS, Kind, Reach

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
FAINT = ' fill-opacity="0.68"'
CENTRED = ' text-anchor="middle"'
WIDTHS, MARGIN = (560, 840), 24  # a small drawing is not stretched over a page
KEY_WIDTH = 1100  # of a legend that is drawn apart
WIDEST, NARROWEST = 30.0, 9.0  # from box to box; what does not fit is folded, then wrapped
PAD, GUTTER = 8, 8  # inside a panel, and between panels
SLIMMEST = 56  # the least width of a panel that carries a caption
SHORT, TALL = 26, 60  # boxes of the fewest and of the most channels
BAR = 18  # height of the bar of the most parameters
MIDDLE, FOOT = 60, 118  # from the top of a panel down to the stream, and to the foot of the bars
CAPTIONS = 68  # height below the foot
BRACKET = 16  # room for the number of repeats


def svg(anatomies: Sequence[Anatomy], *, theme: Theme = "light") -> str:
    """The drawing of one model or several, one under the other, on light or dark paper."""
    if theme not in PAPERS:
        raise UnknownName("theme", theme, PAPERS, "Themes are light and dark.")
    return draw(anatomies, *PAPERS[theme])


def draw(anatomies: Sequence[Anatomy], ink: str, paper: str | None) -> str:
    """The drawing in any ink (`currentColor` is that of the page), on paper or without."""
    if not anatomies:
        raise VitreousError("There is nothing to draw: no anatomy was given, pass at least one.")
    sheet = _Sheet.fitting(anatomies, ink)
    body: list[str] = []
    top = 20.0
    for anatomy in anatomies:
        body += sheet.band(anatomy, top)
        top += sheet.band_height(anatomy)
    key, height = sheet.key([unit for anatomy in anatomies for unit in anatomy], top)
    return _document(sheet, anatomies, [*body, *key], height, paper)


def draw_apart(anatomies: Sequence[Anatomy], ink: str) -> tuple[list[str], str]:
    """A drawing for each model, on one scale, and the legend of all as a drawing of its own."""
    sheet = _Sheet.fitting(anatomies, ink)
    drawings = [
        _document(sheet, [each], list(sheet.band(each, 6.0)), sheet.band_height(each), None)
        for each in anatomies
    ]
    wide = replace(sheet, width=KEY_WIDTH)
    key, height = wide.key([unit for anatomy in anatomies for unit in anatomy], 4.0)
    return drawings, _document(wide, anatomies, key, height, None)


def _document(
    sheet: _Sheet, anatomies: Sequence[Anatomy], body: list[str], height: float, paper: str | None
) -> str:
    size = f'width="{_n(sheet.width)}" height="{_n(height)}"'
    names = ", ".join(anatomy.model for anatomy in anatomies)
    tallies = []
    for anatomy in anatomies:
        counts = ", ".join(f"{n} {kind}" for kind, n in anatomy.counts().items())
        tallies.append(f"{anatomy.model}: {counts}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {_n(sheet.width)} {_n(height)}" {size}'
        f' fill="{sheet.ink}" font-family="{FONT}">',
        f"<title>Anatomy of {_x(names)}</title>",
        f"<desc>Units in order of depth. {_x('; '.join(tallies))}.</desc>",
    ]
    if paper is not None:
        lines.append(f'<rect class="paper" {size} fill="{paper}"/>')
    return "\n".join([*lines, *body, "</svg>\n"])


def count(number: int) -> str:
    """5717416 as '5.72 M'."""
    for letter, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}\u00a0{letter}"
    return str(number)


def _describe(unit: Unit) -> str:
    """A unit in one line, for tooltips."""
    grid = f"{unit.grid[0]}×{unit.grid[1]}" if unit.grid else ""
    facts = [
        unit.kind,
        " + ".join([*unit.prefix, grid]) if grid else "",
        f"{unit.channels} channels" if unit.channels else "",
        f"{unit.heads} heads" if unit.heads else "",
        unit.reach or "",
        "" if unit.skip else "no skip",
        f"{count(unit.parameters)} parameters",
    ]
    return f"{unit.name}: {', '.join(filter(None, facts))}"


@dataclass(frozen=True)
class _Sheet:
    """What the bands of one drawing share."""

    ink: str
    fewest: int
    """Fewest channels of a unit."""
    most: int
    fold: bool
    """Whether identical blocks are folded."""
    pitch: float
    """Distance from box to box."""
    width: float = WIDTHS[1]

    @classmethod
    def fitting(cls, anatomies: Sequence[Anatomy], ink: str) -> _Sheet:
        """The sheet with as few lines as the narrowest boxes allow, and then the widest boxes.

        Identical blocks are folded (in every model) only where that saves lines.
        """
        units = [unit for anatomy in anatomies for unit in anatomy]
        channels = [u.channels for u in units if u.channels and u.kind != "head"] or [1]
        plain = cls(ink, min(channels), max(channels), False, NARROWEST)
        folded = replace(plain, fold=True)
        saves = any(len(folded.rows(a)) < len(plain.rows(a)) for a in anatomies)
        best = folded if saves else plain
        lines = [len(best.rows(anatomy)) for anatomy in anatomies]
        for half in range(int(2 * NARROWEST) + 1, int(2 * WIDEST) + 1):
            wider = replace(best, pitch=half / 2)
            if [len(wider.rows(anatomy)) for anatomy in anatomies] != lines:
                break
            best = wider
        spans = [best.span(row) for anatomy in anatomies for row in best.rows(anatomy)]
        titles = [min(_title_width(anatomy), best.room) for anatomy in anatomies]
        return replace(best, width=max(WIDTHS[0], max(spans + titles) + 2 * MARGIN))

    @property
    def room(self) -> float:
        """The width between the margins."""
        return self.width - 2 * MARGIN

    def panel_width(self, panel: Panel) -> float:
        return max(sum(map(len, panel)) * self.pitch + 2 * PAD, SLIMMEST)

    def span(self, row: Sequence[Panel]) -> float:
        return sum(map(self.panel_width, row)) + GUTTER * (len(row) - 1)

    def rows(self, anatomy: Anatomy) -> list[list[Panel]]:
        """The panels of a model, broken into lines where even folded ones do not fit."""
        rows: list[list[Panel]] = [[]]
        for stage in panels(anatomy, fold=self.fold):
            for panel in _pieces(stage, int((self.room - 2 * PAD) / self.pitch)):
                if rows[-1] and self.span([*rows[-1], panel]) > self.room:
                    rows.append([])
                rows[-1].append(panel)
        return rows

    @property
    def foot(self) -> float:
        return FOOT + BRACKET * self.fold

    def band_height(self, anatomy: Anatomy) -> float:
        return 38 + len(self.rows(anatomy)) * (self.foot + CAPTIONS)

    def band(self, anatomy: Anatomy, top: float) -> Iterator[str]:
        """One model: its name and size, then its panels on the line that is the stream."""
        name = anatomy.model
        while len(name) > 1 and _title_width(anatomy, name) > self.room:
            name = name[:-2] + "…"
        right = FAINT + ' text-anchor="end"'
        yield f'<g class="model" data-model="{_x(anatomy.model)}">'
        yield _text(MARGIN, top + 14, name, 16, ' font-weight="600"')
        yield _text(self.width - MARGIN, top + 14, _facts(anatomy), 12, right)
        heaviest = max((unit.parameters for unit in anatomy), default=0)
        for number, row in enumerate(self.rows(anatomy)):
            y, x = top + 28 + number * (self.foot + CAPTIONS), float(MARGIN)
            stream = f"M{MARGIN} {_n(y + MIDDLE)}h{_n(max(self.span(row), 0))}"
            yield self.line("stream", stream, 0.3)
            for panel in row:
                yield from self.panel(panel, x, y, heaviest)
                x += self.panel_width(panel) + GUTTER
        yield "</g>"

    def panel(self, panel: Panel, left: float, top: float, heaviest: int) -> Iterator[str]:
        """A stage: label, boxes under their arches, and below them what units have in common."""
        units = [unit for fold in panel for slot in fold for unit in slot]
        width, height = self.panel_width(panel), self.foot + 8
        size = f'x="{_n(left)}" y="{_n(top)}" width="{_n(width)}" height="{_n(height)}"'
        yield f'<rect class="panel" {size} rx="5" fill-opacity="0.045"/>'
        label = units[0].kind if units[0].kind in ("stem", "head") else f"stage {units[0].stage}"
        yield _text(left + PAD, top + 15, label, 10.5, FAINT)
        x, arches = left + (width - sum(map(len, panel)) * self.pitch) / 2, ""
        for fold in panel:
            if len(fold[0]) > 1:
                yield self.bracket(fold, x, top + 93)
            for slot in fold:
                yield from self.box(slot, x, top, heaviest)
                arches += self.arch(slot[0], x, top + MIDDLE) if slot[0].skip else ""
                x += self.pitch
        yield self.line("skips", arches) if arches else ""
        for line, wordings in enumerate(self.captions(units)):
            font, shade = (12.5, "") if line == 0 else (11, FAINT)
            words = next((words for words in wordings if _wide(words, font) <= width), None)
            if words is not None:
                y = top + height + 17 + 14 * line
                yield _text(left + width / 2, y, words, font, CENTRED + shade)

    def captions(self, units: Sequence[Unit]) -> list[list[str]]:
        """Three lines, each in full and shorter: positions, channels, parameters."""
        grid = units[-1].grid
        positions = f"{grid[0]}×{grid[1]}" if grid else ""
        channels = sorted({unit.channels for unit in units if unit.channels})
        ends = "–".join(str(n) for n in dict.fromkeys([*channels[:1], *channels[-1:]]))
        return [
            [f"{_dots(units[-1].prefix)}{positions}", positions] if grid else [],
            [f"{ends} ch", ends] if ends else [],
            [count(sum(unit.parameters for unit in units))],
        ]

    def box_height(self, unit: Unit) -> float:
        """The height of a unit's box, by the logarithm of its channels."""
        if self.most == self.fewest:
            return (SHORT + TALL) / 2
        part = math.log((unit.channels or self.fewest) / self.fewest)
        part /= math.log(self.most / self.fewest)
        return SHORT + (TALL - SHORT) * min(max(part, 0), 1)

    def box(self, slot: Slot, left: float, top: float, heaviest: int) -> Iterator[str]:
        """One unit and the bar of its parameters."""
        unit = slot[0]
        gap = min(max(self.pitch / 4, 1.5), 6)
        x, width, height = left + gap / 2, self.pitch - gap, self.box_height(unit)
        y = top + MIDDLE - height / 2
        across = f'x="{_n(x)}" width="{_n(width)}" fill="{KIND_COLOURS[unit.kind]}"'
        down = f'y="{_n(y)}" height="{_n(height)}" rx="{_n(min(3, width / 4))}"'
        more = f" – {len(slot)} alike, to {slot[-1].name}" if len(slot) > 1 else ""
        title = f"<title>{_x(_describe(unit) + more)}</title>"
        names = _x(" ".join(unit.name for unit in slot))
        yield f'<g class="unit" data-units="{len(slot)}" data-unit="{names}">{title}'
        yield f'<rect class="box" {across} {down}/>'
        if unit.kind == "attention":
            yield from self.attention(unit, x, y, width, height)
        elif width >= 10:
            yield _letter(unit.kind, x + width / 2, y + height / 2)
        if unit.parameters:
            bar = max(BAR * unit.parameters / heaviest, 0.75)
            yield f'<rect class="bar" {across} y="{_n(top + self.foot - bar)}" height="{_n(bar)}"/>'
        yield "</g>"

    def attention(
        self, unit: Unit, x: float, y: float, width: float, height: float
    ) -> Iterator[str]:
        """Reach as a glyph, and under it a dot for each head, or their number."""
        side, step, heads = min(8.0, width - 1.5), 4.0 if width >= 9 else 3.0, unit.heads or 0
        yield _glyph(unit.reach or "unknown", x + (width - side) / 2, y + 4, side)
        columns = math.ceil(heads / max(int((height - side - 9) / step), 1))
        if heads and columns * step <= width - 1:
            left = x + (width - (columns - 1) * step) / 2
            yield _grid_of_dots(heads, math.ceil(heads / columns), left, y + height - 5, step)
        elif heads and width >= 12:
            shade = f'{CENTRED} fill="{ink_on("attention")}"'
            yield _text(x + width / 2, y + height - 5, str(heads), 9, shade)

    def arch(self, unit: Unit, x: float, middle: float) -> str:
        """The path of a skip connection over a box."""
        bend, rise = min(5, self.pitch / 2), self.box_height(unit) / 2 + 7
        up = f"M{_n(x)} {_n(middle)}v{_n(bend - rise)}q0 {_n(-bend)} {_n(bend)} {_n(-bend)}"
        down = f"q{_n(bend)} 0 {_n(bend)} {_n(bend)}v{_n(rise - bend)}"
        return f"{up}h{_n(self.pitch - 2 * bend)}{down}"

    def bracket(self, fold: Fold, x: float, y: float) -> str:
        """A bracket under repeated boxes, with the number of repeats."""
        width = len(fold) * self.pitch
        times = _text(x + width / 2, y + 14, f"×{len(fold[0])}", 10, CENTRED)
        return self.line("bracket", f"M{_n(x + 2)} {_n(y)}v3h{_n(width - 4)}v-3") + times

    def line(self, role: str, path: str, opacity: float = 0.45) -> str:
        stroke = f'stroke="{self.ink}" stroke-opacity="{opacity}"'
        return f'<path class="{role}" d="{path}" fill="none" {stroke}/>'

    def key(self, units: Sequence[Unit], top: float) -> tuple[list[str], float]:
        """The legend in columns below `top`, and where it ends; each group begins a line."""
        columns, y, lines = int(self.room // 110), top, []
        for marks in filter(None, self.marks(units)):
            for i, mark in enumerate(marks):
                place = f"{_n(MARGIN + 110 * (i % columns))} {_n(y + 21 * (i // columns))}"
                lines.append(f'<g transform="translate({place})">{mark}</g>')
            y += 21 * math.ceil(len(marks) / columns)
        return lines, y + 11

    def marks(self, units: Sequence[Unit]) -> list[list[str]]:
        """Only the marks that occur in the drawing, each at the origin."""
        present = {unit.kind for unit in units}
        reaches = {unit.reach or "unknown" for unit in units if unit.kind == "attention"}
        tokens = {token for unit in units for token in unit.prefix}
        swatch = '<rect width="12" height="12" rx="3" fill="{}"/>'
        warm = swatch.format(KIND_COLOURS["attention"])
        kinds = []
        for kind in KINDS:
            if kind in present:
                letter = "" if kind == "attention" else _letter(kind, 6, 6)
                kinds.append(swatch.format(KIND_COLOURS[kind]) + letter + _key(kind))
        attention = [warm + _glyph(r, 3, 3, 6) + _key(r) for r in REACH_GLYPHS if r in reaches]
        if any(unit.heads for unit in units):
            attention.append(warm + _grid_of_dots(3, 3, 6, 10, 4) + _key("a dot a head"))
        rest = []
        if any(unit.skip for unit in units):
            rest.append(self.line("key", "M0 12v-6q0 -5 5 -5h2q5 0 5 5v6") + _key("skip"))
        arrow = self.line("key", "M6 0v12m-3 -3l3 3l3 -3m-6 -6l3 -3l3 3")
        bars = '<path d="M0 12V8h3.5v4zm4.25 0V5h3.5v7zm4.25 0V1h3.5v11z" opacity="0.45"/>'
        rest += [arrow + _key("channels (log)"), bars + _key("parameters")]
        if tokens - {"register"}:
            rest.append(_text(6, 10, "•", 11.5, CENTRED) + _key("class token"))
        if "register" in tokens:
            rest.append(_text(6, 10, "◦", 11.5, CENTRED) + _key("register token"))
        if self.fold:
            rest.append(_text(6, 10, "×n", 10, CENTRED) + _key("n alike"))
        return [kinds, attention, rest]


def _pieces(panel: Panel, room: int) -> Iterator[Panel]:
    """A panel cut between folds so that no piece has more than `room` boxes."""
    piece: Panel = ()
    for fold in panel:
        if piece and sum(map(len, piece)) + len(fold) > room:
            yield piece
            piece = ()
        piece = (*piece, fold)
    yield piece


def _glyph(reach: Reach, x: float, y: float, side: float) -> str:
    place = f'transform="translate({_n(x)} {_n(y)}) scale({_n(side / 8)})"'
    fill = f'fill="{ink_on("attention")}" fill-rule="evenodd"'
    return f'<path class="reach" {place} d="{REACH_GLYPHS[reach]}" {fill}/>'


def _grid_of_dots(number: int, rows: int, x: float, bottom: float, step: float) -> str:
    """Dots filled column by column, the last row at `bottom`, as one path."""
    spots = ((x + step * (i // rows), bottom - step * (rows - 1 - i % rows)) for i in range(number))
    path = "".join(f"M{_n(x)} {_n(y)}h0" for x, y in spots)
    stroke = f'stroke="{ink_on("attention")}" stroke-width="{_n(0.6 * step)}"'
    return f'<path class="heads" d="{path}" {stroke} stroke-linecap="round"/>'


def _dots(prefix: Sequence[str]) -> str:
    if len(prefix) > 6:
        return f"{len(prefix)}• "
    return "".join("◦" if token == "register" else "•" for token in prefix) + " " * bool(prefix)


def _letter(kind: Kind, x: float, y: float) -> str:
    shade = f'{CENTRED} font-weight="600" fill="{ink_on(kind)}"'
    return _text(x, y + 3.3, kind[0].upper(), 9, shade)


def _key(words: str) -> str:
    return _text(19, 10, words, 11, FAINT)


def _text(x: float, y: float, words: str, size: float, more: str = "") -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" font-size="{size}"{more}>{_x(words)}</text>'


def _wide(words: str, size: float) -> float:
    """A generous guess at the width of a text, so that nothing overlaps in any font."""
    return sum(0.35 if c in "iljtf.,:| ·" else 0.62 for c in words) * size


def _facts(anatomy: Anatomy) -> str:
    (_, high, wide), units = anatomy.image, f"{len(anatomy)} unit{'s' * (len(anatomy) != 1)}"
    return f"{count(anatomy.parameters)} parameters · {units} · {high}×{wide} image"


def _title_width(anatomy: Anatomy, name: str | None = None) -> float:
    """The width of a name, which is bold and so a little wider, and of the facts beside it."""
    return _wide(name or anatomy.model, 18) + 16 + _wide(_facts(anatomy), 12)


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _x(words: str) -> str:
    """Text for XML, which has no control characters at all."""
    return escape("".join(c if c >= " " else "\ufffd" for c in words), {'"': "&quot;"})
