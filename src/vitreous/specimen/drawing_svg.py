"""Anatomies as one vector drawing, quiet enough for a paper: depth runs to the right, a panel is a stage, a box is a
unit, an arch over it is its skip connection.

Box heights (channels, log) and widths are on one scale for all models of a drawing, so that bands under each other can
be compared; the bars beneath share out each model's own parameters. Everything is written as plain attributes, without
ids, style sheets or references, so that the text can be pasted into a page, a notebook or a vector editor unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from vitreous.errors import UnknownName, VitreousError
from vitreous.palette import KIND_COLOURS, PAPERS, REACH_GLYPHS, Theme, ink_on
from vitreous.specimen.anatomy import Anatomy, Unit
from vitreous.specimen.folding import Fold, Panel, Slot, panels
from vitreous.unit_kinds import KINDS, Kind, Reach

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
FAINT = ' fill-opacity="0.68"'
CENTRED = ' text-anchor="middle"'
WIDTHS, MARGIN = (560, 840), 24  # a small drawing is not stretched over a page
WIDEST, NARROWEST = (
    30.0,
    9.0,
)  # from box to box; what does not fit at the narrowest is folded, then wrapped
PAD, GUTTER, SLIMMEST = (
    8,
    8,
    56,
)  # of panels: inside, between, and the least width that carries a caption
SHORT, TALL, BAR = (
    26,
    60,
    18,
)  # boxes of the fewest and the most channels, bar of the most parameters
MIDDLE, FOOT, CAPTIONS = (
    60,
    118,
    68,
)  # from the top of a panel down to the stream and to the foot of the bars; below it
BRACKET = 16  # room for the number of repeats


def svg(anatomies: Sequence[Anatomy], *, theme: Theme = "light") -> str:
    """One model or several, one under the other, on light or dark paper."""
    if theme not in PAPERS:
        raise UnknownName("theme", theme, PAPERS, "Themes are light and dark.")
    return draw(anatomies, *PAPERS[theme])


def draw(anatomies: Sequence[Anatomy], ink: str, paper: str | None) -> str:
    """The drawing in any ink (`currentColor` is that of the page around it), with a background or without."""
    if not anatomies:
        raise VitreousError("There is nothing to draw: no anatomy was given, pass at least one.")
    sheet = Sheet.fitting(anatomies, ink)
    body: list[str] = []
    top = 20.0
    for anatomy in anatomies:
        body += sheet.band(anatomy, top)
        top += sheet.band_height(anatomy)
    places = list(sheet.legend([unit for anatomy in anatomies for unit in anatomy]))
    body += [f'<g transform="translate({_n(x)} {_n(top + y)})">{mark}</g>' for x, y, mark in places]
    height = _n(top + max(y for _, y, _ in places) + 32)
    names = ", ".join(anatomy.model for anatomy in anatomies)
    tallies = [
        f"{a.model}: {', '.join(f'{n} {kind}' for kind, n in a.counts().items())}"
        for a in anatomies
    ]
    size = f'width="{_n(sheet.width)}" height="{height}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_n(sheet.width)} {height}" {size}'
        f' fill="{ink}" font-family="{FONT}">',
        f"<title>Anatomy of {_x(names)}</title>",
        f"<desc>Units in order of depth. {_x('; '.join(tallies))}.</desc>",
        *([] if paper is None else [f'<rect class="paper" {size} fill="{paper}"/>']),
        *body,
        "</svg>\n",
    ])  # fmt: skip


def count(number: int) -> str:
    """5717416 as '5.72 M'."""
    for letter, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}\u00a0{letter}"
    return str(number)


def describe(unit: Unit) -> str:
    """A unit in one line, for tooltips."""
    facts = [
        unit.kind,
        " + ".join([*unit.prefix, f"{unit.grid[0]}×{unit.grid[1]}"]) if unit.grid else "",
    ]
    facts.append(f"{unit.channels} channels" if unit.channels else "")
    facts.append(f"{unit.heads} heads" if unit.heads else "")
    facts += [
        unit.reach or "",
        "" if unit.skip else "no skip",
        f"{count(unit.parameters)} parameters",
    ]
    return f"{unit.name}: {', '.join(filter(None, facts))}"


@dataclass(frozen=True)
class Sheet:
    """What the bands of one drawing share: ink, scale of heights, folded or not, distance from box to box, width."""

    ink: str
    fewest: int
    most: int
    fold: bool
    pitch: float
    width: float = WIDTHS[1]

    @classmethod
    def fitting(cls, anatomies: Sequence[Anatomy], ink: str) -> Sheet:
        """As few lines as the narrowest boxes allow, identical blocks folded (in every model) only where that saves
        some; then the widest boxes that need no more lines."""
        channels = [
            u.channels for a in anatomies for u in a if u.channels and u.kind != "head"
        ] or [1]
        plain, folded = (
            cls(ink, min(channels), max(channels), fold, NARROWEST) for fold in (False, True)
        )
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
        return self.width - 2 * MARGIN

    def panel_width(self, panel: Panel) -> float:
        return max(sum(map(len, panel)) * self.pitch + 2 * PAD, SLIMMEST)

    def span(self, row: Sequence[Panel]) -> float:
        return sum(map(self.panel_width, row)) + GUTTER * (len(row) - 1)

    def rows(self, anatomy: Anatomy) -> list[list[Panel]]:
        """The panels of a model, broken into lines like words where even folding has not made them fit."""
        rows: list[list[Panel]] = [[]]
        for whole in panels(anatomy, fold=self.fold):
            for panel in _pieces(whole, int((self.room - 2 * PAD) / self.pitch)):
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
        yield _text(MARGIN, top + 14, name, 16, ' font-weight="600"')
        yield _text(
            self.width - MARGIN, top + 14, _facts(anatomy), 12, FAINT + ' text-anchor="end"'
        )
        heaviest = max((unit.parameters for unit in anatomy), default=0)
        for number, row in enumerate(self.rows(anatomy)):
            y, x = top + 28 + number * (self.foot + CAPTIONS), float(MARGIN)
            yield self.line(
                "stream", f"M{MARGIN} {_n(y + MIDDLE)}h{_n(max(self.span(row), 0))}", 0.3
            )
            for panel in row:
                yield from self.panel(panel, x, y, heaviest)
                x += self.panel_width(panel) + GUTTER

    def panel(self, panel: Panel, left: float, top: float, heaviest: int) -> Iterator[str]:
        """A stage: ground, label, boxes under their arches, and below it what its units have in common."""
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
            fitting = [words for words in wordings if _wide(words, font) <= width]
            if fitting:
                yield _text(
                    left + width / 2,
                    top + height + 17 + 14 * line,
                    fitting[0],
                    font,
                    CENTRED + shade,
                )

    def captions(self, units: Sequence[Unit]) -> list[list[str]]:
        """Three lines, each in full and shorter: positions with the prefix tokens as dots, channels, parameters."""
        where, channels = units[-1].grid, sorted({unit.channels for unit in units if unit.channels})
        positions = f"{where[0]}×{where[1]}" if where else ""
        ends = "–".join(str(n) for n in dict.fromkeys([*channels[:1], *channels[-1:]]))
        return [
            [f"{_dots(units[-1].prefix)}{positions}", positions] if where else [],
            [f"{ends} ch", ends] if ends else [],
            [count(sum(unit.parameters for unit in units))],
        ]

    def box_height(self, unit: Unit) -> float:
        if self.most == self.fewest:
            return (SHORT + TALL) / 2
        part = math.log((unit.channels or self.fewest) / self.fewest) / math.log(
            self.most / self.fewest
        )
        return SHORT + (TALL - SHORT) * min(max(part, 0), 1)

    def box(self, slot: Slot, left: float, top: float, heaviest: int) -> Iterator[str]:
        """One unit and the bar of its parameters."""
        unit = slot[0]
        gap = min(max(self.pitch / 4, 1.5), 6)
        x, width, height = left + gap / 2, self.pitch - gap, self.box_height(unit)
        y, across = (
            top + MIDDLE - height / 2,
            f'x="{_n(x)}" width="{_n(width)}" fill="{KIND_COLOURS[unit.kind]}"',
        )
        more = f" – {len(slot)} alike, to {slot[-1].name}" if len(slot) > 1 else ""
        yield f'<g class="unit" data-units="{len(slot)}"><title>{_x(describe(unit) + more)}</title>'
        yield f'<rect class="box" {across} y="{_n(y)}" height="{_n(height)}" rx="{_n(min(3, width / 4))}"/>'
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
        """Reach as a glyph, under it a dot a head, or their number where the dots would not fit."""
        side, step, heads = min(8.0, width - 1.5), 4.0 if width >= 9 else 3.0, unit.heads or 0
        yield _glyph(unit.reach or "unknown", x + (width - side) / 2, y + 4, side)
        columns = math.ceil(heads / max(int((height - side - 9) / step), 1))
        if heads and columns * step <= width - 1:
            rows = math.ceil(heads / columns)
            yield _grid_of_dots(
                heads, rows, x + (width - (columns - 1) * step) / 2, y + height - 5, step
            )
        elif heads and width >= 12:
            yield _text(
                x + width / 2,
                y + height - 5,
                str(heads),
                9,
                f'{CENTRED} fill="{ink_on("attention")}"',
            )

    def arch(self, unit: Unit, x: float, middle: float) -> str:
        bend, rise = min(5, self.pitch / 2), self.box_height(unit) / 2 + 7
        up = f"M{_n(x)} {_n(middle)}v{_n(bend - rise)}q0 {_n(-bend)} {_n(bend)} {_n(-bend)}"
        return (
            f"{up}h{_n(self.pitch - 2 * bend)}q{_n(bend)} 0 {_n(bend)} {_n(bend)}v{_n(rise - bend)}"
        )

    def bracket(self, fold: Fold, x: float, y: float) -> str:
        width = len(fold) * self.pitch
        times = _text(x + width / 2, y + 14, f"×{len(fold[0])}", 10, CENTRED)
        return self.line("bracket", f"M{_n(x + 2)} {_n(y)}v3h{_n(width - 4)}v-3") + times

    def line(self, role: str, path: str, opacity: float = 0.45) -> str:
        return f'<path class="{role}" d="{path}" fill="none" stroke="{self.ink}" stroke-opacity="{opacity}"/>'

    def legend(self, units: Sequence[Unit]) -> Iterator[tuple[float, float, str]]:
        """What the marks mean, in columns: kinds, attention and the rest each begin a line."""
        columns, line = int(self.room // 110), 0
        for marks in filter(None, self.marks(units)):
            for i, mark in enumerate(marks):
                yield MARGIN + 110 * (i % columns), 21 * (line + i // columns), mark
            line += math.ceil(len(marks) / columns)

    def marks(self, units: Sequence[Unit]) -> list[list[str]]:
        """Only the marks that occur in the drawing, each at the origin."""
        present = {unit.kind for unit in units}
        reaches = {unit.reach or "unknown" for unit in units if unit.kind == "attention"}
        tokens = {token for unit in units for token in unit.prefix}
        swatch = '<rect width="12" height="12" rx="3" fill="{}"/>'
        warm = swatch.format(KIND_COLOURS["attention"])
        kinds = [
            swatch.format(KIND_COLOURS[kind])
            + ("" if kind == "attention" else _letter(kind, 6, 6))
            + _key(kind)
            for kind in KINDS
            if kind in present
        ]
        attention = [warm + _glyph(r, 3, 3, 6) + _key(r) for r in REACH_GLYPHS if r in reaches]
        if any(unit.heads for unit in units):
            attention.append(warm + _grid_of_dots(3, 3, 6, 10, 4) + _key("a dot a head"))
        rest = [
            (
                any(unit.skip for unit in units),
                self.line("key", "M0 12v-6q0 -5 5 -5h2q5 0 5 5v6") + _key("skip"),
            ),
            (
                True,
                self.line("key", "M6 0v12m-3 -3l3 3l3 -3m-6 -6l3 -3l3 3") + _key("channels (log)"),
            ),
            (
                True,
                '<path d="M0 12V8h3.5v4zm4.25 0V5h3.5v7zm4.25 0V1h3.5v11z" opacity="0.45"/>'
                + _key("parameters"),
            ),
            (tokens - {"register"}, _text(6, 10, "•", 11.5, CENTRED) + _key("class token")),
            ("register" in tokens, _text(6, 10, "◦", 11.5, CENTRED) + _key("register token")),
            (self.fold, _text(6, 10, "×n", 10, CENTRED) + _key("n alike")),
        ]
        return [kinds, attention, [mark for occurs, mark in rest if occurs]]


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
    return f'<path class="reach" {place} d="{REACH_GLYPHS[reach]}" fill="{ink_on("attention")}" fill-rule="evenodd"/>'


def _grid_of_dots(number: int, rows: int, x: float, bottom: float, step: float) -> str:
    """Dots filled column by column, the last row at `bottom`; strokes without length, so that one path holds all."""
    spots = ((x + step * (i // rows), bottom - step * (rows - 1 - i % rows)) for i in range(number))
    path = "".join(f"M{_n(x)} {_n(y)}h0" for x, y in spots)
    stroke = (
        f'stroke="{ink_on("attention")}" stroke-width="{_n(0.6 * step)}" stroke-linecap="round"'
    )
    return f'<path class="heads" d="{path}" {stroke}/>'


def _dots(prefix: Sequence[str]) -> str:
    if len(prefix) > 6:
        return f"{len(prefix)}• "
    return "".join("◦" if token == "register" else "•" for token in prefix) + " " * bool(prefix)


def _letter(kind: Kind, x: float, y: float) -> str:
    return _text(
        x, y + 3.3, kind[0].upper(), 9, f'{CENTRED} font-weight="600" fill="{ink_on(kind)}"'
    )


def _key(words: str) -> str:
    return _text(19, 10, words, 11, FAINT)


def _text(x: float, y: float, words: str, size: float, more: str = "") -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" font-size="{size}"{more}>{_x(words)}</text>'


def _wide(words: str, size: float) -> float:
    """A generous guess at the width of a text: fonts differ, and nothing may overlap in any of them."""
    return sum(0.35 if c in "iljtf.,:| ·" else 0.62 for c in words) * size


def _facts(anatomy: Anatomy) -> str:
    _, high, wide = anatomy.image
    return f"{count(anatomy.parameters)} parameters · {len(anatomy)} units · {high}×{wide} image"


def _title_width(anatomy: Anatomy, name: str | None = None) -> float:
    """Of a name, which is bold and so a little wider than its size says, and the facts to its right."""
    return _wide(name or anatomy.model, 18) + 16 + _wide(_facts(anatomy), 12)


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _x(words: str) -> str:
    """Text for XML, which has no control characters at all."""
    return escape("".join(c if c >= " " else "\ufffd" for c in words))
