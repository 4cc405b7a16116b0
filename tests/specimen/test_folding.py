"""Folding loses nothing and finds the blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vitreous.specimen.anatomy import Anatomy, Unit, folds, panels, slot_name


def convs(*channels: int, name: str = "u") -> tuple[Unit, ...]:
    return tuple(Unit(f"{name}.{i}", "conv", i, 1, 0.0, None, c) for i, c in enumerate(channels))


def test_folds_contain_every_unit_once() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        units = convs(*generator.integers(1, 4, generator.integers(0, 30)).tolist())
        gathered = list(folds(units))
        assert [
            unit for fold in gathered for block in zip(*fold, strict=True) for unit in block
        ] == list(units)
        assert all(len({unit.channels for unit in slot}) == 1 for fold in gathered for slot in fold)


def test_folds_find_blocks(drawings: dict[str, list[Anatomy]]) -> None:
    (vit,), (resnet,) = drawings["vit"], drawings["resnet"]
    assert [(len(fold), len(fold[0])) for fold in folds(vit.units)] == [(1, 1), (2, 12), (1, 1)]
    assert [(len(fold), len(fold[0])) for fold in folds(resnet.units[2:9])] == [
        (1, 1),
        (1, 2),
        (1, 1),
        (1, 3),
    ]
    assert [(len(fold), len(fold[0])) for fold in folds(convs(1, 1, 2, 1, 1, 2))] == [(3, 2)]
    names = [slot_name(slot) for fold in folds(vit.units) for slot in fold]
    assert names == ["patch_embed", "blocks.0…11.attn", "blocks.0…11.mlp", "head"]


def test_a_new_panel_begins_where_the_class_token_enters(
    drawings: dict[str, list[Anatomy]],
) -> None:
    assert [len(panel) for panel in panels(drawings["cait"][0], fold=False)] == [1, 48, 4, 1]
    assert [len(panel) for panel in panels(drawings["cait"][0], fold=True)] == [1, 1, 1, 1]


def test_slots_that_differ_in_two_components_are_named_by_first_and_last() -> None:
    assert slot_name((convs(8, name="a")[0], convs(8, 8, name="b")[1])) == "a.0 … b.1"
    assert slot_name((convs(8, name="a.b")[0], convs(8, name="a")[0])) == "a.b.0 … a.0"


def test_units_that_differ_in_anything_are_not_folded() -> None:
    one = Unit("a", "attention", 0, 1, 0.0, (7, 7), 8, ("class",), 2, "global", True, 100)
    differences: list[dict[str, Any]] = [
        {"kind": "conv"}, {"grid": (7, 8)}, {"channels": 9}, {"prefix": ()}, {"heads": 4},
        {"reach": "windowed"}, {"skip": False}, {"parameters": 101},
    ]  # fmt: skip
    assert len(list(folds((one, replace(one, name="b", index=1, depth=1.0))))) == 1
    for difference in differences:
        assert len(list(folds((one, replace(one, **difference))))) == 2, difference
