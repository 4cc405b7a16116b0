"""Families that ask something special of the reading, and the page about all; `docs/generate_families.py` writes it."""

from __future__ import annotations

import sys
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


def tables() -> dict[str, list[list[str]]]:
    """The page's tables: the summary under '', the others under the names of their libraries; without their heads."""
    found: dict[str, list[list[str]]] = {}
    library = ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            library = line.removeprefix("## ")
        if line.startswith("| ") and not line.startswith(("| model |", "| module |", "| library |")):
            found.setdefault(library, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_every_module_of_timm_is_on_the_page() -> None:
    theirs = {name for name in timm.list_modules() if not timm.list_models("vitreous_*", module=name)}
    assert len(theirs) >= 97
    assert theirs <= {row[0] for row in tables()[f"timm {timm.__version__}"]}


def test_every_model_of_torchvision_is_on_the_page() -> None:
    rows = {row[0] for name, rows in tables().items() if name.startswith("torchvision") for row in rows}
    assert set(FAMILIES.source("torchvision").names()) <= rows


def test_the_counts_of_the_page_are_those_of_its_rows() -> None:
    found = tables()
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
