"""An inspection made by hand, of every shape that a report shows, with names that would do harm if
they could."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from results.conftest import distances, filters, reliability, similarity, spectrum
from vitreous import Anatomy, Inspection, Result, Unit
from vitreous.results import UNIT_COLUMNS, Column, View, estimate
from vitreous.unit_kinds import Kind, Reach

EVIL = "<script>alert(1)</script>"
QUOTED = "\"'&</script><img src=x onerror=alert(2)>"
VIT, OTHER, NET = f"vit{EVIL}", f"convit{QUOTED}", "resnet"
SIDE = 4


def anatomy(name: str, heads: int | None) -> Anatomy:
    """Three units that attend, or do not, on a grid of 4 × 4 with a class token."""
    kind: Kind = "attention" if heads else "conv"
    reach: Reach | None = "global" if heads else None
    plain = Unit("", kind, 0, 1, 0.0, (SIDE, SIDE), 8, ("class",) if heads else (), parameters=99)
    stem = replace(plain, name="stem", kind="stem", stage=0, skip=False)
    between = [
        replace(
            plain, name=f"blocks.{b}.attn", index=b + 1, depth=(b + 1) / 4, heads=heads, reach=reach
        )
        for b in range(3)
    ]
    head = replace(
        plain, name="head", kind="head", index=4, depth=1.0, grid=None, prefix=(), skip=False
    )
    return Anatomy(name, (3, 16, 16), (stem, *between, head), 5 * 99)


def about(*models: str) -> dict[str, object]:
    return {
        "ids": ["A4.18"],
        "options": {"estimator": EVIL},
        "models": {model: {"fingerprint": "ab12", "edits": []} for model in models},
        "units": {},
        "beside": [VIT, OTHER, NET],
        "data": {
            "name": f"folder:{EVIL}",
            "split": "test",
            "images": 64,
            "of": 64,
            "classes": 10,
            "fingerprint": "cd",
        },
        "seed": 0,
        "versions": {"vitreous": "0.1.0", "torch": "2.15.0"},
        "seconds": 3.0,
        "date": "2026-11-16T04:12:17+00:00",
        "left_out": {
            NET: f"It has no attention {EVIL}.",
            VIT: {f"head{EVIL}": "It has no map.", "stem": "Too early."},
        },
    }


def maps(count: int = 2, heads: int = 4) -> Result:
    """Attention of two models: head h of unit u looks from every token at token (h + u) alone."""
    tokens = SIDE * SIDE + 1
    arrays = {
        "images": np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)
    }
    rows = []
    for model in (VIT, OTHER):
        for unit in (1, 2, 3):
            seen = np.zeros((count, heads, tokens, tokens), np.uint8)
            for head in range(heads):
                seen[:, head, :, head + unit] = 255
                where = {
                    "model": model,
                    "unit": f"blocks.{unit - 1}.attn",
                    "kind": "attention",
                    "stage": 1,
                }
                rows.append(
                    {
                        **where,
                        "depth": unit / 4,
                        "head": head,
                        "value": 1.0,
                        "low": 1.0,
                        "high": 1.0,
                        "n": count,
                    }
                )
            arrays[f"attention/{model}/{unit}"] = seen
            arrays[f"scale/{model}/{unit}"] = np.ones((count, heads, tokens), np.float32)
    columns = (*UNIT_COLUMNS, Column("head", "order", "The head."), *estimate("The largest share."))
    views = (
        View(
            "line",
            "depth",
            "value",
            "head",
            title="Four heads, whose colours lie between those of the ramp",
        ),
    )
    grids = {"queries": [SIDE, SIDE], "keys": [SIDE, SIDE], "prefix": 1, "heads": "all"}
    units = [[unit.name, unit.kind, unit.depth] for unit in anatomy(VIT, 4)]
    guess = {"top": [[EVIL, 0.75], ["cat", 0.25]], "label": ["cat", 0.25, 2]}
    known = {
        "maps": {model: {str(unit): grids for unit in (1, 2, 3)} for model in (VIT, OTHER)},
        "labels": [EVIL, "cat"],
        "predictions": {VIT: {"images": [guess] * count, "unmarked": ""}},
        "units": {VIT: units, OTHER: units},
    }
    return Result(
        "attention_maps", pd.DataFrame(rows), columns, views, arrays, {**about(VIT, OTHER), **known}
    )


@pytest.fixture(scope="session")
def inspection() -> Inspection:
    results = {
        "attention_distance": replace(distances(VIT, OTHER), about=about(VIT, OTHER)),
        "cka": similarity(6),
        "calibration": reliability(),
        "fourier": spectrum(),
        "filters": filters(),
        "attention_maps": maps(),
        "brand_new": replace(distances(VIT), name="brand_new"),
    }
    left_out = {"gates": {NET: f"It has no gates {EVIL}.", VIT: "It has none either."}}
    return Inspection(
        results, left_out, {VIT: anatomy(VIT, 4), OTHER: anatomy(OTHER, 4), NET: anatomy(NET, None)}
    )
