"""LaTeX tables: they compile whatever names are in them, and numbers are rounded by their
intervals."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from results.conftest import MADE, distances, similarity
from vitreous.errors import VitreousError
from vitreous.results.latex import LETTERS, SYMBOLS, escape_latex, latex_number, latex_table

NASTY = (
    r"\input{/etc/passwd}", "100 % & $5 #1 a_b {x} ~^", "--- 'q' `b` \"d\" <x> |y|", "[2pt] *",
    "$$", "\\", "a\nb\tc", "naïve Łódź ĳ đ", "猫 🙂 ∂ \u200b \x07", "50 °C × 2 − 1 ≤ π", "%",
    "\\\\ \\hline & & &",
)  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "style", "expected"),
    [
        ((0.93127, 0.9012, 0.9534), "brackets", r"$0.931\ [0.901, 0.953]$"),
        ((0.93127, 0.9012, 0.9534), "pm", r"$0.931 \pm 0.026$"),
        ((0.93127, 0.9012, 0.9534), "none", "$0.931$"),
        ((643.2, 574.1, 652.0), "brackets", r"$643\ [574, 652]$"),
        ((12345.6, 11000, 13000), "pm", r"$12346 \pm 1000$"),
        ((-0.00004, -0.5, 0.5), "brackets", r"$0.00\ [-0.50, 0.50]$"),
        ((2.5e-7, 2.1e-7, 2.9e-7), "brackets", r"$2.50\ [2.10, 2.90] \times 10^{-7}$"),
        ((2.5e9, 2.1e9, 2.9e9), "pm", r"$(2.50 \pm 0.40) \times 10^{9}$"),
        ((1e9,), "brackets", r"$1 \times 10^{9}$"),
        ((0.123456,), "brackets", "$0.1235$"),
        ((32,), "brackets", "$32$"),
        ((54321,), "brackets", "$54321$"),
        ((1.0, 1.0, 1.0), "brackets", r"$1\ [1, 1]$"),
        ((1000.0, 1000 - 1e-9, 1000 + 1e-9), "pm", r"$1000 \pm 0$"),
        ((1.0, 1 - 1e-9, 1 + 1e-9), "brackets", r"$1\ [1, 1]$"),
        ((0,), "brackets", "$0$"),
        ((math.nan, 0, 1), "brackets", "--"),
        ((-math.inf,), "brackets", r"$-\infty$"),
        ((0.5, math.nan, 0.7), "brackets", "$0.5$"),
    ],
)
def test_numbers(numbers: tuple[float, ...], style: str, expected: str) -> None:
    value, low, high = (*numbers, math.nan, math.nan)[:3]
    assert latex_number(value, low, high, style) == expected  # type: ignore[arg-type]


def test_numbers_keep_what_is_certain() -> None:
    """Whatever the size, the rounded value is off by less than a tenth of half the interval."""
    random = np.random.default_rng(0)
    for _ in range(500):
        half = 10.0 ** random.uniform(-4, 3)
        value = random.normal() * half * 10 ** random.uniform(-1, 2)
        text = latex_number(value, value - half, value + half, "pm")
        found = re.fullmatch(
            r"\$\(?(-?[\d.]+) \\pm ([\d.]+)\)?(?: \\times 10\^\{(-?\d+)\})?\$", text
        )
        assert found is not None, text
        power = 10.0 ** int(found[3] or 0)
        assert abs(float(found[1]) * power - value) < 0.1 * half, text
        assert abs(float(found[2]) * power - half) < 0.1 * half, text


def test_special_characters_are_escaped_for_latex() -> None:
    """Without the commands that escape them no special character is left, and braces match."""
    known = r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}"
    known += r"|\\symbol\{\d\d\}|\\[{}$&%#_]"
    for name in NASTY[:7]:
        rest = re.sub(known, "", escape_latex(name))
        assert not re.search(r"[\\$&%#_~^]|--", rest), rest
        assert not re.sub(r"\{[\[\]*]?\}", "", rest).count("{")


def test_a_table_has_the_columns_asked_for() -> None:
    result = distances("vit_b", "deit")
    text = result.to_latex(["model", "unit", "value"])
    header, first = text.splitlines()[3], text.splitlines()[5]
    assert header.startswith("model & unit & distance")
    assert first.startswith(r"vit\_b & ")
    assert text.count(r"\\") == 1 + len(result.table)
    assert text.splitlines()[1] == r"\begin{tabular}{llr}"
    assert result.to_latex("value").count("&") == 0


def test_default_columns_tell_rows_apart() -> None:
    for make in MADE.values():
        result = make()
        lines = result.to_latex(interval="none").splitlines()
        rows = [line for line in lines if line.endswith(r"\\")]
        names = [row.split(" & ")[:-1] for row in rows[1:]]
        assert len(names) == len(result.table)
        if len(names[0]) > 1:
            assert len({tuple(each) for each in names}) == len(names), result.name


def test_long_tables_break_across_pages() -> None:
    text = similarity(8).to_latex()
    assert r"\begin{longtable}" in text
    assert r"\endhead" in text


def test_a_caption_makes_it_float() -> None:
    text = distances("vit").to_latex(caption="Far & wide", label="tab:far")
    assert r"\caption{Far \& wide}" in text
    assert r"\label{tab:far}" in text
    assert text.index(r"\begin{table}") < text.index(r"\begin{tabular}")


def test_mistakes() -> None:
    result = distances("vit")
    with pytest.raises(VitreousError, match=r"There is no column 'vale'. Did you mean value"):
        result.to_latex(["vale"])
    with pytest.raises(VitreousError, match="There is no style of intervals 'plusminus'"):
        result.to_latex(interval="plusminus")  # type: ignore[arg-type]
    with pytest.raises(VitreousError, match="not one that LaTeX can refer to"):
        result.to_latex(label="tab{x}")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_it_compiles(tmp_path: Path) -> None:
    """Every kind of table, names of every kind, and every character that is left as it is."""
    letters = [[escape_latex(letter), f"{ord(letter)}"] for letter in sorted(LETTERS)]
    letters += [[escape_latex(symbol), "symbol"] for symbol in SYMBOLS]
    tables = [latex_table(["letter", "code"], letters, "lr")]
    tables += [latex_table(["name"], [[escape_latex(name)] for name in NASTY], "l")]
    result = distances(*NASTY[:3])
    tables += [result.to_latex(caption=NASTY[1], label="tab:a"), result.to_latex(interval="pm")]
    tables += [similarity(8).to_latex(caption="Long"), replace(result, views=()).to_latex("value")]
    start = "\\documentclass{article}\n\\usepackage{booktabs, longtable}\n\\begin{document}\n"
    path = tmp_path / "tables.tex"
    path.write_text(start + "\n\n".join(tables) + "\n\\end{document}\n", encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "-no-shell-escape", path.name],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
