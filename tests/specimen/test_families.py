"""Families that ask something special of the reading, and the page about all; `docs/generate_families.py` writes it."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import timm

from generators import generator

ROOT = Path(__file__).parents[2]


FAMILIES = generator("families")
EXAMINE = sys.modules["family_sources.examine"]

TRAPS = {
    "eva": ({"attention": 12, "mlp": 12}, {"global"}),  # rotary embeddings add, but are no residual
    "res2net": ({"conv": 16}, set()),  # additions inside a block, of parts of it
    "densenet": None,  # no residual at all
    "inception_v3": None,
    "mvitv2": ({"attention": 10, "mlp": 10}, {"global", "reduced"}),  # a pooled skip inside the branch
    "hiera": ({"attention": 12, "mlp": 12}, {"global", "windowed", "reduced"}),  # tokens in another order
    "efficientvit_mit": None,  # attention without a softmax
    "xcit": ({"attention": 14, "conv": 12, "mlp": 14}, {"channel", "class"}),
    "mobilevit": None,  # tokens unfolded into the batch
    "levit": ({"attention": 12, "mlp": 14, "downsample": 2}, {"global", "reduced"}),  # strided slices of the tokens
    "mlp_mixer": ({"token-mlp": 8, "mlp": 8}, set()),
    "hrnet": None,  # four streams
    "tnt": None,  # a transformer inside the patches
}


PAGE = (ROOT / "docs" / "families.md").read_text()


def tables(page: str = PAGE) -> dict[str, list[list[str]]]:
    """The page's tables: the summary under '', the others under the names of their libraries; without their heads."""
    found: dict[str, list[list[str]]] = {}
    library = ""
    for line in page.splitlines():
        if line.startswith("## "):
            library = line.removeprefix("## ")
        if line.startswith("| ") and not line.startswith(("| model |", "| module |", "| library |")):
            found.setdefault(library, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_every_module_of_timm_is_on_the_page() -> None:
    theirs = {name for name in timm.list_modules() if not timm.list_models("vitreous_*", module=name)}
    assert len(theirs) >= 97
    assert [name for name in theirs if f"| {name} |" not in PAGE and f"`{name}`:" not in PAGE] == []


def test_the_counts_of_the_page_are_those_of_its_rows() -> None:
    recount(tables())


def test_the_page_that_the_script_would_write_counts_its_rows() -> None:
    """Rows of every kind: fine, attention missing, not equal, not opened, and a model that runs on no images."""
    fine = EXAMINE.Row("a", "a", runs=True, opened=True, equal=True, attention=[2, 2], units={"mlp": 1}, seconds=1.0)
    rows = [
        fine,
        replace(fine, name="b", label="b", attention=[1, 2]),
        replace(fine, name="c", label="c", attention=None, equal=False, difference=1.0),
        EXAMINE.Row("d", "d", runs=True, reason="cannot be read"),
        EXAMINE.Row("e", "e", reason="takes video"),
    ]
    known = {"torchvision": {"title": "torchvision 1", "rows": {row.name: asdict(row) for row in rows}}}
    named = [replace(row, label=f"small_{row.name}") for row in rows]
    known["timm"] = {"title": "timm 1", "rows": {row.name: asdict(row) for row in named}}
    text = FAMILIES.page(known)
    assert "| torchvision 1 | 4 | 3 | 2 | 2 | 1 |" in text
    assert "- `d`: cannot be read" in text
    assert "- `e`: takes video" in text
    recount(tables(text))


def recount(found: dict[str, list[list[str]]]) -> None:
    """The summary says what the rows say."""
    if "" not in found or len(found) == 1:
        pytest.skip("the page has not been written since it has a summary; run docs/generate_families.py")
    assert [row[0] for row in found[""]] == [name for name in found if name]
    for library, *counts in found[""]:
        rows = found[library]
        start = len(rows[0]) - 6  # timm's rows name module and model
        attention = [row[start + 2].split(" of ") for row in rows if row[start + 2] != "–" and row[start + 2]]
        counted = [
            len(rows),
            sum(row[start] == "yes" for row in rows),
            sum(row[start + 1] == "yes" for row in rows),
            len(attention),
            sum(seen == every for seen, every in attention),
        ]
        assert list(map(int, counts)) == counted, library


@pytest.mark.parametrize("family", TRAPS)
def test_a_family_with_a_trap_is_read_rightly(family: str) -> None:
    row = EXAMINE.Row(family, family)
    specimen = EXAMINE.examine(FAMILIES.source("timm"), family, row)
    assert row.equal
    assert row.change > 1e-7, f"the lesion of {row.lesion} changed nothing"
    assert row.rows is None or row.rows <= EXAMINE.TOLERANCE
    expected = TRAPS[family]
    if expected is not None:
        counts = {kind: n for kind, n in row.units.items() if kind not in ("stem", "head")}
        assert (counts, {u.reach for u in specimen.units if u.reach}) == expected
