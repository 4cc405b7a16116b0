"""The style sheet of a page: colours of the palette as variables, then the rules."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from vitreous.palette import (
    KIND_COLOURS,
    OUTCOME_COLOURS,
    PAPERS,
    Theme,
    model_colours,
    model_styles,
)
from vitreous.report import surface

SHEETS = ("report.css", "charts.css", "attention.css", "verdicts.css", "print.css")
OUTLINES = {
    "circle": "border-radius:99px",
    "square": "border-radius:0",
    "triangle-up": "border-radius:0;clip-path:polygon(50% 0,100% 100%,0 100%)",
    "diamond": "border-radius:0;clip-path:polygon(50% 0,100% 50%,50% 100%,0 50%)",
}
"""The dot before a model's name, as CSS, by the shape of its points in charts."""
SHADES: dict[Theme, dict[str, str]] = {
    "light": {
        "--desk": "#F3F4F6",
        "--line": "#1B1F2424",
        "--quiet": "#59616B",
        "--link": "#1D4FD7",
        "--raised": "#F3F4F6",
    },
    "dark": {
        "--desk": "#0D0F13",
        "--line": "#FFFFFF26",
        "--quiet": "#A4ABB5",
        "--link": "#8CB4FF",
        "--raised": "#1B1F26",
    },
}


def style_sheet(models: Sequence[str]) -> str:
    """Return the style sheet of a page about these models, in both themes."""
    return colour_rules(models) + surface.height_rules() + "".join(map(asset, SHEETS))


def colour_rules(models: Sequence[str]) -> str:
    """Return the palette as variables in both themes, and a class for each model and kind."""
    shapes = [style.shape for style in model_styles(models).values()]
    dots = "".join(
        f".model-{i}{{background:var(--model-{i})}}.dot.model-{i}{{{OUTLINES[shape]}}}"
        for i, shape in enumerate(shapes)
    )
    kinds = "".join(
        f".kind-{kind}{{background:{colour};fill:{colour}}}"
        for kind, colour in KIND_COLOURS.items()
    )
    day, by_night = _variables("light", models), _variables("dark", models)
    return (
        f":root{{{day}}}\n"
        "@media screen and (prefers-color-scheme: dark)"
        f"{{:root:not([data-theme=light]){{{by_night}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{{by_night}}}}}\n"
        f"{dots}{kinds}\n"
    )


def _variables(theme: Theme, models: Sequence[str]) -> str:
    ink, paper = PAPERS[theme]
    colours = model_colours(models, theme)
    values = {
        "--ink": ink,
        "--paper": paper,
        **SHADES[theme],
        **{f"--model-{i}": colours[name] for i, name in enumerate(models)},
        **surface.height_colours(theme),
        **{f"--{outcome}": colour for outcome, colour in OUTCOME_COLOURS[theme].items()},
    }
    return "".join(f"{name}:{value};" for name, value in values.items())


def asset(name: str) -> str:
    """Return the text of a style sheet or script of the report."""
    return files("vitreous.report").joinpath(name).read_text(encoding="utf-8")
