"""Tables and pages are checked by reading them back."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from vitreous.palette import PAPERS
from vitreous.specimen import drawing
from vitreous.specimen.anatomy import Anatomy, Unit
from vitreous.specimen.drawing_svg import count


def printed(model: Anatomy, width: int = 80, **options: Any) -> list[str]:
    console = Console(width=width, file=StringIO(), force_terminal=False)
    console.print(drawing.table(model, **options))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_table_has_every_unit_within_80_columns(anatomy: Anatomy) -> None:
    lines = printed(anatomy)
    assert max(map(len, lines)) <= 80
    rows = {line.split()[0]: line for line in lines if re.match(r"\d+\.\d+ ", line)}
    assert list(rows) == list(anatomy.labels)
    for unit, label in zip(anatomy, anatomy.labels, strict=True):
        facts = [
            unit.name,
            unit.kind,
            *(str(n) for n in (unit.heads, unit.reach, unit.channels) if n),
        ]
        assert set(facts) <= set(rows[label].split())
    text = " ".join(lines)
    assert count(anatomy.parameters) in text
    assert ("heads" in text) == any(unit.heads for unit in anatomy)


def test_a_folded_table_counts_all_units(drawings: dict[str, list[Anatomy]]) -> None:
    lines = printed(drawings["swin"][0], fold=True)
    words = [" ".join(line.split()) for line in lines]
    assert "3.1 stages.2.blocks.0…5.attn ■ attention ×6 14×14 12 windowed 384 591 k" in words
    rows = [line for line in lines if re.match(r"\d+\.\d+ ", line)]
    times = [int(found[1]) if (found := re.search(r" ×(\d+)", row)) else 1 for row in rows]
    assert sum(times) == len(drawings["swin"][0]) > len(rows)
    assert any("1+14×14" in line for line in printed(drawings["vit"][0]))


def test_table_keeps_long_names_whole() -> None:
    name = "vision_model.encoder.layers.encoder_layer_11.self_attention.out_proj"
    unit = Unit(name, "attention", 0, 1, 0.0, (14, 14), 768, heads=12, reach="global")
    lines = printed(Anatomy("m", (3, 224, 224), (unit,), 0))
    start, end = (
        next(line.index(word) for line in lines if word in line) for word in ("unit", "kind")
    )
    assert name in "".join(line[start:end].strip() for line in lines[3:])


class Reader(HTMLParser):
    """Collects tags and the rows of tables, and minds that what is opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr" and "tbody" in self.open:
            self.rows.append([])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.rows[-1].append(data)


def test_page_stands_alone(anatomies: list[Anatomy]) -> None:
    page = drawing.html(anatomies)
    reader = Reader(page)
    assert not reader.open
    assert page.count("http://") == 1
    assert "https:" not in page
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in reader.tags}
    policy = [attributes["content"] for _, attributes in reader.tags if "http-equiv" in attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    rows = [(unit.name, unit.kind, f"{unit.parameters:,}") for model in anatomies for unit in model]
    assert [(cells[1], cells[2], cells[-1]) for cells in reader.rows] == rows


def test_notebook_drawing_uses_the_text_colour_of_the_page(
    drawings: dict[str, list[Anatomy]],
) -> None:
    (vit,) = drawings["vit"]
    fragment = drawing.notebook(vit)
    reader = Reader(fragment)
    assert not reader.open
    assert [tag for tag, _ in reader.tags].count("tr") == 1 + len(vit)
    assert 'fill="currentColor"' in fragment
    assert 'class="paper"' not in fragment
    assert not any(ink in fragment for ink, _ in PAPERS.values())
    assert ("details", {}) in reader.tags


def test_pages_escape_names() -> None:
    nasty = """<b onload="x">&'"""
    model = Anatomy(nasty, (3, 8, 8), (Unit(nasty, "conv", 0, 1, 0.0, (7, 7), 8, ("<i>",)),), 0)
    for page in (drawing.html([model]), drawing.notebook(model)):
        assert "<b " not in page
        assert "<i>" not in page
        assert "&lt;b onload" in page


def test_output_does_not_depend_on_the_order_of_sets(drawings: dict[str, list[Anatomy]]) -> None:
    """Two interpreters that hash words differently write the same page."""
    code = (
        "import hashlib, sys; from vitreous.specimen import drawing; from "
        "vitreous.specimen.anatomy import Anatomy\n"
        "page = drawing.html([Anatomy.from_json(text) for text in sys.stdin.read().split('\\0')])\n"
        "print(hashlib.sha256(page.encode()).hexdigest())"
    )
    source = str(Path(drawing.__file__).parents[2])
    text = "\0".join(model.to_json() for model in drawings["mixed"])
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], input=text, check=True, capture_output=True, text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": source},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(digests) == 1
