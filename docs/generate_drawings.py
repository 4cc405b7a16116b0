"""Draw the pictures of the explanations, `explanation/NAME.svg` and `explanation/NAME-dark.svg`.

    python docs/generate_drawings.py

They are made of boxes, arrows and words, in the colours of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from math import exp
from pathlib import Path

from vitreous.palette import KIND_COLOURS, OUTCOME_COLOURS, PAPERS, Theme

FOLDER = Path(__file__).absolute().parent / "explanation"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif"


class Canvas:
    """An SVG in the making; y grows downwards, lengths are pixels."""

    def __init__(self, width: int, height: int, theme: Theme, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.theme: Theme = theme
        self.ink = PAPERS[theme][0]
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, **how: object) -> None:
        """Words on a line; `faint`, `bold`, `anchor`, `size` and `colour` say how."""
        size, anchor = how.get("size", 13), how.get("anchor", "start")
        opacity = 0.7 if how.get("faint") else 1
        weight = 600 if how.get("bold") else 400
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
            f'font-weight="{weight}" fill="{how.get("colour", self.ink)}" '
            f'fill-opacity="{opacity}">{escape(words)}</text>'
        )

    def box(self, x: float, y: float, w: float, h: float, words: str, colour: str = "") -> None:
        """A rounded box with words in its middle; without a colour an outline."""
        fill = f'fill="{colour}"' if colour else f'fill="none" stroke="{self.ink}"'
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5" {fill}/>')
        ink = "#FFFFFF" if colour else self.ink
        lines = words.split("\n")
        for number, line in enumerate(lines):
            below = y + h / 2 + 4.5 + 16 * (number - (len(lines) - 1) / 2)
            self.text(x + w / 2, below, line, anchor="middle", colour=ink)

    def line(self, d: str, colour: str = "", width: float = 1.5, arrow: bool = False) -> None:
        """A path; with an arrow at its end."""
        end = ' marker-end="url(#arrow)"' if arrow else ""
        self.parts.append(
            f'<path d="{d}" fill="none" stroke="{colour or self.ink}" '
            f'stroke-width="{width:g}" stroke-linejoin="round"{end}/>'
        )

    def dot(self, x: float, y: float, colour: str = "", radius: float = 4) -> None:
        """A filled circle."""
        fill = colour or self.ink
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}"/>')

    def svg(self) -> str:
        arrow = (
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8Z" fill="{self.ink}"/>'
            "</marker></defs>"
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {self.width} '
            f'{self.height}" width="{self.width}" height="{self.height}" font-family="{FONT}">'
            f"<title>{escape(self.title)}</title>{arrow}{''.join(self.parts)}</svg>\n"
        )


def anatomy(theme: Theme) -> Canvas:
    """One residual unit in the graph, and the sites at which it is observed."""
    canvas = Canvas(700, 230, theme, "A residual unit and its sites")
    grey = KIND_COLOURS["mlp"]
    canvas.line("M20 150H660", arrow=True)
    canvas.line("M110 150V70H150", arrow=True)
    canvas.line("M240 70H268M388 70H416M506 70H550V138", arrow=True)
    canvas.box(152, 50, 88, 40, "norm", grey)
    canvas.box(270, 50, 118, 40, "attention", KIND_COLOURS["attention"])
    canvas.box(418, 50, 88, 40, "projection", grey)
    canvas.dot(110, 150)
    canvas.parts.append(
        f'<circle cx="550" cy="150" r="11" fill="{PAPERS[theme][1]}" stroke="{canvas.ink}"/>'
    )
    canvas.text(550, 155, "+", anchor="middle", size=16)
    for x, y, name in (
        (66, 140, "before"), (330, 140, "skip"), (562, 100, "branch"), (600, 140, "after"),
        (196, 40, "norm"), (462, 40, "hidden (input)"), (329, 40, "attention"),
    ):  # fmt: skip
        canvas.text(x, y, name, anchor="middle" if x != 562 else "start", bold=True)
    canvas.text(110, 176, "fork", anchor="middle", faint=True)
    canvas.text(550, 186, "join", anchor="middle", faint=True)
    canvas.text(645, 176, "out", anchor="middle", bold=True)
    canvas.text(
        20, 216, "The unit is what lies between fork and join; its kind is what it computes.",
        faint=True,
    )  # fmt: skip
    return canvas


def sums(theme: Theme) -> Canvas:
    """From images to a table: one pass, sums, replicates."""
    canvas = Canvas(700, 250, theme, "One pass: shards become sums, sums become a result")
    shards = ("shard 0", "shard 1", "shard 2")
    for row, name in enumerate(shards):
        y = 30 + 62 * row
        canvas.box(16, y, 86, 40, name)
        canvas.line(f"M104 {y + 20}H146", arrow=True)
        canvas.box(148, y, 130, 40, "all models,\nall probes", KIND_COLOURS["conv"])
        canvas.line(f"M280 {y + 20}H322", arrow=True)
        canvas.box(324, y, 130, 40, "sums\n(1 + 200) × …", KIND_COLOURS["pool"])
        canvas.line(f"M456 {y + 20}C490 {y + 20} 490 112 516 112", arrow=row == 1)
    canvas.text(505, 96, "+", anchor="middle", size=18, bold=True)
    canvas.box(518, 80, 166, 64, "value = sum / count\n200 replicates\ninterval", "")
    canvas.text(16, 240, "Row 0 of every sum counts each image once, rows 1 to 200 as often as a "
                "Poisson number says.", faint=True)  # fmt: skip
    return canvas


def cka(theme: Theme) -> Canvas:
    """CKA compares kernels, not coordinates."""
    canvas = Canvas(700, 230, theme, "CKA compares how two layers arrange the same images")
    colours = [KIND_COLOURS["conv"], KIND_COLOURS["attention"], KIND_COLOURS["pool"]]
    places = [(0, 0), (26, 10), (8, 30), (88, 66), (108, 52), (96, 88), (20, 90), (36, 104)]
    groups = [0, 0, 0, 1, 1, 1, 2, 2]
    for left, title, turned in ((30, "layer X", False), (280, "layer Y", True)):
        canvas.text(left + 60, 26, title, anchor="middle", bold=True)
        for (x, y), group in zip(places, groups, strict=True):
            at = (left + 120 - y, 44 + x) if turned else (left + x, 44 + y)
            canvas.dot(*at, colours[group], 6)
    canvas.line("M170 98H262", arrow=True)
    canvas.text(216, 88, "rotate, scale", anchor="middle", faint=True)
    canvas.text(216, 118, "CKA = 1", anchor="middle", bold=True)
    canvas.line("M420 98H472", arrow=True)
    canvas.text(545, 26, "layer Z", anchor="middle", bold=True)
    others = [
        (0, 40), (118, 12), (66, 100), (20, 96), (60, 4), (110, 84), (34, 12), (96, 46)
    ]  # fmt: skip
    for (x, y), group in zip(others, groups, strict=True):
        canvas.dot(485 + x, 44 + y, colours[group], 6)
    canvas.text(440, 118, "CKA ≈ 0", anchor="middle", bold=True)
    canvas.text(
        30, 214, "Each point is an image. What counts is which images lie close together.",
        faint=True,
    )  # fmt: skip
    return canvas


def curvature(theme: Theme) -> Canvas:
    """The spectrum of a Hessian: a bulk at zero, outliers, negative eigenvalues."""
    canvas = Canvas(700, 230, theme, "Eigenvalues of a Hessian: a bulk at zero and few outliers")
    blue, orange = OUTCOME_COLOURS[theme]["supported"], OUTCOME_COLOURS[theme]["refuted"]
    zero, scale, base = 210, 9.0, 170
    curve = []
    for step in range(-180, 461, 4):
        x = step / scale
        height = 128 * exp(-((x / 1.6) ** 2))
        curve.append(f"{zero + step} {base - height:.1f}")
    canvas.line(f"M{' L'.join(curve)}", width=2)
    canvas.line(f"M20 {base}H680", arrow=True)
    canvas.line(f"M{zero} {base - 4}V{base + 8}")
    for value, colour in ((-11, orange), (-7, orange), (9, blue), (15, blue), (19, blue),
                          (31, blue), (44, blue)):  # fmt: skip
        x = zero + value * scale
        canvas.line(f"M{x:g} {base}V{base - 26}", colour, 3)
        canvas.dot(x, base - 28, colour, 4.5)
    canvas.text(zero, base + 24, "0", anchor="middle")
    canvas.text(676, base + 24, "eigenvalue λ", anchor="end", faint=True)
    canvas.text(zero + 30, 52, "nearly all directions are flat", faint=True)
    canvas.text(128, 124, "negative", anchor="middle", colour=orange)
    canvas.text(zero + 300, 124, "outliers: the sharp directions", anchor="middle", colour=blue)
    canvas.text(30, 216, "NEP is the share of orange among the leading ones, APE the mean of the "
                "blue ones.", faint=True)  # fmt: skip
    return canvas


def verdicts(theme: Theme) -> Canvas:
    """Where an interval has to lie for each verdict."""
    canvas = Canvas(700, 290, theme, "Verdicts as intervals against no effect and the paper's")
    colours = OUTCOME_COLOURS[theme]
    null, half, paper, top, base = 240, 400, 560, 34, 236
    for x, label in ((null, "no effect"), (half, "half of the paper's"), (paper, "paper's value")):
        canvas.parts.append(
            f'<path d="M{x} {top}V{base}" stroke="{canvas.ink}" stroke-opacity="0.45" '
            'stroke-dasharray="4 4"/>'
        )
        canvas.text(x, top - 10, label, anchor="middle", faint=True)
    rows = (
        ("reproduced", 430, 560, 500, "supported"),
        ("reproduced", 330, 560, 450, "supported"),
        ("weaker", 260, 385, 320, "supported"),
        ("no effect", 190, 370, 270, "refuted"),
        ("opposite", 120, 222, 170, "refuted"),
        ("undecided", 200, 590, 390, "inconclusive"),
    )
    for number, (name, low, high, value, outcome) in enumerate(rows):
        y = 60 + 33 * number
        colour = colours[outcome]
        canvas.text(20, y + 4.5, name, bold=True, colour=colour)
        canvas.line(f"M{low} {y}H{high}M{low} {y - 6}V{y + 6}M{high} {y - 6}V{y + 6}", colour, 2)
        canvas.dot(value, y, colour, 5)
    canvas.text(20, 276, "A point is the measured effect, a line its 95 % interval.", faint=True)
    return canvas


DRAWINGS: dict[str, Callable[[Theme], Canvas]] = {
    "anatomy": anatomy,
    "cka": cka,
    "curvature": curvature,
    "sums": sums,
    "verdicts": verdicts,
}


def draw() -> None:
    for name, drawing in DRAWINGS.items():
        for theme, ending in (("light", ""), ("dark", "-dark")):
            (FOLDER / f"{name}{ending}.svg").write_text(drawing(theme).svg(), encoding="utf-8")


if __name__ == "__main__":
    draw()
