"""Families that ask something special of the reading, and the page about all;
`docs/generate_families.py` writes it."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import timm
import torch
from torch import Tensor, nn
from torchvision import models

from generators import generator

ROOT = Path(__file__).parents[2]


FAMILIES = generator("families")
EXAMINE = sys.modules["family_sources.examine"]

Trap = tuple[dict[str, object], tuple[dict[str, int], set[str]] | None]

TRAPS: dict[str, Trap] = {
    # rotary embeddings add, but are no residual
    "eva": ({"depth": 2}, ({"attention": 2, "mlp": 2}, {"global"})),
    # additions inside a block, of parts of it
    "res2net": ({"layers": (1, 1, 1, 1)}, ({"conv": 4}, set())),
    # no residual at all
    "densenet": ({"block_config": (2, 2, 2, 2)}, None),
    # a pooled skip inside the branch
    "mvitv2": ({}, ({"attention": 10, "mlp": 10}, {"global", "reduced"})),
    # tokens in another order
    "hiera": (
        {"stages": (1, 1, 2, 1)},
        ({"attention": 5, "mlp": 5}, {"global", "windowed", "reduced"}),
    ),
    # attention without a softmax
    "efficientvit_mit": ({}, None),
    "xcit": ({"depth": 2}, ({"attention": 4, "conv": 2, "mlp": 4}, {"channel", "class"})),
    # strided slices of the tokens
    "levit": (
        {"depth": (1, 1, 1), "img_size": 112},
        ({"attention": 3, "mlp": 5, "downsample": 2}, {"global", "reduced"}),
    ),
    "mlp_mixer": ({}, ({"token-mlp": 8, "mlp": 8}, set())),
}
"""What makes the family's model on the page smaller, and what is to be found in it."""


PAGE = (ROOT / "docs" / "reference" / "families.md").read_text()


def tables(page: str = PAGE) -> dict[str, list[list[str]]]:
    """The page's tables: the summary under '', the others under the names of their libraries;
    without their heads."""
    found: dict[str, list[list[str]]] = {}
    library = ""
    for line in page.splitlines():
        if line.startswith("## "):
            library = line.removeprefix("## ")
        if line.startswith("| ") and not line.startswith(
            ("| model |", "| module |", "| library |")
        ):
            found.setdefault(library, []).append(
                [cell.strip() for cell in line.strip("|").split("|")]
            )
    return found


def test_every_module_of_timm_is_on_the_page() -> None:
    theirs = {
        name for name in timm.list_modules() if not timm.list_models("vitreous_*", module=name)
    }
    assert len(theirs) >= 97
    assert [name for name in theirs if f"| {name} |" not in PAGE and f"`{name}`:" not in PAGE] == []


def test_every_classifier_and_segmentation_model_of_torchvision_is_on_the_page() -> None:
    theirs = [*models.list_models(module=models), *models.list_models(module=models.segmentation)]
    assert len(theirs) >= 80
    assert [name for name in theirs if f"| {name} |" not in PAGE] == []


def test_the_counts_of_the_page_are_those_of_its_rows() -> None:
    recount(tables())


REFUSED = {
    "timm": 1,
    "torchvision": 0,
    "vit-pytorch": 10,
    "transformers": 6,
}
"""How many models of each library may stay closed: loops over images or until a prediction says
stop, as many tokens as there are key points or as chance leaves."""


def test_nearly_all_families_open_with_equal_outputs() -> None:
    for library, every, opened, blocks, equal, attending, complete in tables()[""]:
        name = library.split()[0]
        assert int(every) - int(opened) <= REFUSED[name], library
        assert int(equal) == int(opened) + int(blocks), library
        assert (
            int(opened)
            >= {"timm": 96, "vit-pytorch": 52, "transformers": 200, "torchvision": 80}[name]
        ), library
        assert int(complete) >= int(attending) * {"vit-pytorch": 40 / 45}.get(name, 0.7), library


def test_the_page_that_the_script_would_write_counts_its_rows() -> None:
    """Rows of every kind: fine, attention missing, not equal, not opened, and a model that runs on
    no images."""
    fine = EXAMINE.Row(
        "a",
        "a",
        runs=True,
        opened=True,
        equal=True,
        attention=[2, 2],
        units={"mlp": 1},
        seconds=1.0,
    )
    rows = [
        fine,
        replace(fine, name="b", label="b", attention=[1, 2]),
        replace(fine, name="c", label="c", attention=None, equal=False, difference=1.0),
        EXAMINE.Row("d", "d", runs=True, reason="cannot be read"),
        EXAMINE.Row("e", "e", reason="takes video"),
        EXAMINE.Row("f", "f", runs=True, blocks=True, equal=True, reason="loops"),
    ]
    known = {
        "torchvision": {"title": "torchvision 1", "rows": {row.name: asdict(row) for row in rows}}
    }
    named = [replace(row, label=f"small_{row.name}" if row.name != "a" else "a") for row in rows]
    known["timm"] = {"title": "timm 1", "rows": {row.name: asdict(row) for row in named}}
    text = FAMILIES.page(known)
    assert "| torchvision 1 | 5 | 3 | 1 | 3 | 2 | 1 |" in text
    assert "- `d`: cannot be read" in text
    assert "- `e`: takes video" in text
    recount(tables(text))


def recount(found: dict[str, list[list[str]]]) -> None:
    """The summary says what the rows say."""
    assert [row[0] for row in found[""]] == [name for name in found if name]
    for library, *counts in found[""]:
        rows = found[library]
        start = len(rows[0]) - 6  # timm's rows name module and model
        attention = [
            row[start + 2].split(" of ") for row in rows if row[start + 2] != "–" and row[start + 2]
        ]
        counted = [
            len(rows),
            sum(row[start] == "yes" for row in rows),
            sum(row[start] == "blocks" for row in rows),
            sum(row[start + 1] == "yes" for row in rows),
            len(attention),
            sum(seen == every for seen, every in attention),
        ]
        assert list(map(int, counts)) == counted, library


class Attends(nn.Module):
    """Attention among patches, among learned queries, and of patches to a query whose answer nobody
    wants; then attention without pairs and a softmax over classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.mix, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 8), nn.Linear(8, 5)
        self.queries = nn.Parameter(torch.randn(1, 3, 8))

    def attend(self, query: Tensor, key: Tensor) -> Tensor:
        return (self.mix(query) @ key.mT).softmax(-1) @ key

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.stem(images).flatten(2).transpose(1, 2)
        queries = self.attend(self.queries, self.queries).expand(len(tokens), -1, -1)
        self.attend(queries, tokens)
        tokens = tokens + self.attend(tokens, tokens)
        tokens = tokens + self.mix(tokens) @ (tokens.softmax(1).mT @ tokens)
        return self.head(tokens.mean(1) + queries.mean(1)).softmax(-1)


def test_only_attention_that_images_and_output_have_a_part_in_is_counted() -> None:
    assert EXAMINE.count_softmaxes(Attends().eval(), torch.randn(2, 3, 16, 16)) == 1


@pytest.mark.parametrize("family", TRAPS)
def test_a_difficult_family_has_the_expected_units(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller, expected = TRAPS[family]
    source = FAMILIES.source("timm")
    monkeypatch.setitem(source.SMALLER, family, smaller)
    if "img_size" in smaller:
        monkeypatch.setitem(source.SIZES, family, (3, smaller["img_size"], smaller["img_size"]))
    row = EXAMINE.Row(family, family)
    specimen = EXAMINE.examine(source, family, row)
    assert row.equal
    assert row.change > 1e-7, f"the lesion of {row.lesion} changed nothing"
    assert row.rows is None or row.rows <= EXAMINE.TOLERANCE
    if expected is not None:
        counts = {kind: n for kind, n in row.units.items() if kind not in ("stem", "head")}
        assert (counts, {u.reach for u in specimen.units if u.reach}) == expected
