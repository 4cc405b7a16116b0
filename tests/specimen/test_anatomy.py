"""Anatomy is plain data: found by name, counted, tabulated, stored and read back."""

from __future__ import annotations

import json

import pytest

from vitreous.errors import UnknownName
from vitreous.specimen.anatomy import Anatomy, Unit


def unit(index: int, name: str, kind: str, stage: int, **more: object) -> Unit:
    given = {"depth": index / 4, "grid": (14, 14), "channels": 192, **more}
    return Unit(name=name, kind=kind, index=index, stage=stage, **given)  # type: ignore[arg-type]


@pytest.fixture
def anatomy() -> Anatomy:
    units = (
        unit(0, "patch_embed", "stem", 0, skip=False, parameters=10),
        unit(
            1,
            "blocks.0.attn",
            "attention",
            1,
            heads=3,
            reach="global",
            prefix=("class", "register"),
        ),
        unit(2, "blocks.0.mlp", "mlp", 1),
        unit(3, "blocks.1.attn", "attention", 1, heads=3, reach="global"),
        unit(4, "head", "head", 2, grid=None, channels=None),
    )
    return Anatomy("a model", (3, 224, 224), units, 1000)


def test_units_by_index_name_and_slice(anatomy: Anatomy) -> None:
    assert anatomy[0] is anatomy.units[0]
    assert anatomy[-1].name == "head"
    assert anatomy["blocks.0.mlp"].index == 2
    assert [u.index for u in anatomy[1:3]] == [1, 2]
    assert len(anatomy) == 5
    assert [u.index for u in anatomy] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("blocks.*.attn", [1, 3]),
        ("attention", [1, 3]),
        ("1.1", [2]),
        ("head", [4]),
        ("*", [0, 1, 2, 3, 4]),
    ],
)
def test_find_by_glob_kind_and_label(anatomy: Anatomy, pattern: str, expected: list[int]) -> None:
    assert [u.index for u in anatomy.find(pattern)] == expected


def test_an_unknown_unit_suggests_the_nearest_names(anatomy: Anatomy) -> None:
    with pytest.raises(
        UnknownName, match=r"no unit 'blocks\.0\.atn'\. Did you mean blocks\.0\.attn"
    ):
        anatomy.find("blocks.0.atn")


def test_an_ambiguous_pattern_is_refused_as_a_single_unit(anatomy: Anatomy) -> None:
    with pytest.raises(UnknownName, match=r"matches 2: blocks\.0\.attn, blocks\.1\.attn"):
        anatomy["attention"]


def test_labels_count_within_a_stage(anatomy: Anatomy) -> None:
    assert anatomy.labels == ("0.0", "1.0", "1.1", "1.2", "2.0")
    assert anatomy.stages == 2


def test_counts_keep_the_order_of_kinds(anatomy: Anatomy) -> None:
    assert list(anatomy.counts().items()) == [
        ("stem", 1),
        ("attention", 2),
        ("mlp", 1),
        ("head", 1),
    ]


def test_tokens(anatomy: Anatomy) -> None:
    assert anatomy[1].tokens == 2 + 14 * 14
    assert anatomy[4].tokens is None


def test_frame_has_one_row_a_unit(anatomy: Anatomy) -> None:
    frame = anatomy.to_frame()
    assert list(frame["label"]) == list(anatomy.labels)
    assert list(frame["name"]) == [u.name for u in anatomy]
    assert frame.loc[1, "heads"] == 3


def test_json_round_trip(anatomy: Anatomy) -> None:
    text = anatomy.to_json()
    assert Anatomy.from_json(text) == anatomy
    assert json.loads(text)["units"][1]["prefix"] == ["class", "register"]


def test_empty_anatomy() -> None:
    nothing = Anatomy("nothing", (3, 8, 8), (), 0)
    assert nothing.stages == 0
    assert nothing.counts() == {}
    with pytest.raises(UnknownName):
        nothing.find("*")
