"""Families of timm that ask something special of the reading; `docs/generate_families.py` goes through all."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm

from generators import generator

ROOT = Path(__file__).parents[2]


FAMILIES = generator("families")

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
    "levit": ({"attention": 12, "mlp": 14, "downsample": 2}, {"global"}),  # strided slices of the tokens
    "mlp_mixer": ({"token-mlp": 8, "mlp": 8}, set()),
    "hrnet": None,  # four streams
    "tnt": None,  # a transformer inside the patches
}


def test_every_module_of_timm_is_on_the_page() -> None:
    page = (ROOT / "docs" / "families.md").read_text()
    theirs = {name for name in timm.list_modules() if not timm.list_models("vitreous_*", module=name)}
    missing = [name for name in theirs if f"| {name} |" not in page and f"`{name}`:" not in page]
    assert len(theirs) >= 97
    assert missing == []
    assert len(FAMILIES.CANNOT) <= 3


@pytest.mark.parametrize("family", TRAPS)
def test_a_family_with_a_trap_is_read_rightly(family: str) -> None:
    row = FAMILIES.examine(family)
    assert row.difference <= FAMILIES.TOLERANCE
    assert row.change > 1e-7, f"the lesion of {row.lesion} changed nothing"
    assert row.rows is None or row.rows <= FAMILIES.TOLERANCE
    expected = TRAPS[family]
    if expected is not None:
        counts = {kind: n for kind, n in row.specimen.anatomy.counts().items() if kind not in ("stem", "head")}
        assert (counts, {u.reach for u in row.specimen.units if u.reach}) == expected
