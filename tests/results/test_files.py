"""What was saved comes back exactly, or with one sentence that says why not."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from results.conftest import distances, filters, similarity
from vitreous.errors import VitreousError
from vitreous.results import Column, Reference, Result, View
from vitreous.storage.atomic_files import read_json, write_json


def awkward() -> Result:
    """Everything that gets lost on the way to other files."""
    table = pd.DataFrame({
        "model": ["ViT «ß» 模型 🦉", "", "a\nb"],
        "size": pd.Categorical(["big", "small", "big"], ["small", "big", "none"], ordered=True),
        "flag": [True, False, True],
        "n": np.array([1, -2, 2**62]),
        "half": np.array([0.1, np.inf, -0.0], dtype=np.float32),
        "maybe": pd.array([1, None, 3], dtype="Int64"),
        "value": [np.nan, 1 / 3, 5e-324],
    })  # fmt: skip
    kinds = {"model": "category", "size": "order", "flag": "category"}
    columns = tuple(
        Column(name, kinds.get(name, "quantity"), "It’s “so”.")  # type: ignore[arg-type]
        for name in map(str, table)
    )
    views = (
        View(
            "line",
            "half",
            "value",
            "size",
            references=(Reference(0.62, "the paper: 0.62", "x"),),
            log=("x", "y"),
            limits=(0, 1),
        ),
    )
    arrays = {
        "turned": np.arange(6.0).reshape(2, 3).T, "big-endian": np.arange(3, dtype=">i4"),
        "none": np.zeros((0, 4)), "one": np.array(3.0),
        "holes": np.array([np.nan, np.inf], dtype=np.float16), "flags": np.array([True]),
    }  # fmt: skip
    return Result(
        "awkward",
        table,
        columns,
        views,
        arrays,
        {"options": {"größe": (1, 2)}, "left_out": {"head": "no grid"}},
    )


@pytest.mark.parametrize("make", [awkward, filters, similarity, lambda: distances("vit")])
def test_round_trip(make: object, tmp_path: Path) -> None:
    result: Result = make()  # type: ignore[operator]
    path = result.save(tmp_path / "deep" / "folder")
    assert path == tmp_path / "deep" / "folder" / f"{result.name}.json"
    back = Result.load(path)
    assert back == result
    assert back.about == result.about
    assert dict(back.table.dtypes) == dict(result.table.dtypes)
    assert Result.load(path.parent) == result
    elsewhere = back.save(tmp_path / "named.json")
    assert elsewhere.name == "named.json"
    assert Result.load(elsewhere) == result


def test_negative_zero_and_categories_survive(tmp_path: Path) -> None:
    """Things that compare equal though they are not the same."""
    back = Result.load(awkward().save(tmp_path))
    assert np.signbit(back.table["half"].to_numpy()[2])
    assert list(back.table["size"].cat.categories) == ["small", "big", "none"]
    assert back.table["size"].cat.ordered
    np.testing.assert_array_equal(back.arrays["turned"], [[0, 3], [1, 4], [2, 5]])
    assert back.arrays["one"].shape == ()


def test_saving_again_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    filters().save(tmp_path)
    similarity().save(tmp_path)
    second = replace(
        filters(), table=filters().table.assign(value=0.0), arrays={"tiles": np.ones((5, 6, 6, 3))}
    )
    path = second.save(tmp_path)
    assert Result.load(path) == second
    assert len(list(tmp_path.iterdir())) == 5, "two JSON, two tables, one file of arrays"
    assert Result.load(tmp_path / "cka.json") == similarity()


def test_an_interrupted_save_leaves_the_old_result_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, replacing = filters(), os.replace
    path = first.save(tmp_path)
    second = replace(
        first, table=first.table.assign(value=0.0), arrays={"tiles": np.ones((5, 6, 6, 3))}
    )
    for survives in range(3):
        left = [survives]

        def stopping(*given: Any, left: list[int] = left) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            replacing(*given)

        monkeypatch.setattr(os, "replace", stopping)
        with pytest.raises(KeyboardInterrupt):
            second.save(tmp_path)
        assert Result.load(path) == first
    monkeypatch.undo()
    assert Result.load(second.save(tmp_path)) == second
    assert len(list(tmp_path.iterdir())) == 3


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    path = distances("vit").save(tmp_path)
    text, [table] = path.read_text(), list(tmp_path.glob("*.parquet"))
    good = table.read_bytes()

    write_json(path, {**read_json(path), "format": 2})
    with pytest.raises(
        VitreousError,
        match="has format 2 and this Vitreous reads up to 1; install a newer Vitreous",
    ):
        Result.load(path)
    changed = text.replace('"about"', '"abouu"')
    for broken in (
        changed,
        text[:-200],
        "[]",
        "{}",
        json.dumps({**json.loads(text), "views": [{"mark": "line"}]}),
    ):
        path.write_text(broken)
        with pytest.raises(VitreousError, match="is no result of Vitreous or is damaged"):
            Result.load(path)
    path.write_text(text)
    table.write_bytes(good[:-1] + b"x")
    with pytest.raises(VitreousError, match="content is not what was saved"):
        Result.load(path)
    table.unlink()
    with pytest.raises(
        VitreousError, match=r"needs .attention_distance.*parquet. beside it, which is not there"
    ):
        Result.load(path)
    table.write_bytes(good)
    assert Result.load(path) == distances("vit")


def test_where_there_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(VitreousError, match="There is no result in"):
        Result.load(tmp_path / "nowhere")
    similarity().save(tmp_path)
    filters().save(tmp_path)
    with pytest.raises(
        VitreousError, match=r"holds 2 results; choose one of cka\.json, filters\.json"
    ):
        Result.load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(VitreousError, match=r"Cannot write .*cka\.json"):
        similarity().save(tmp_path / "file" / "below")


def test_a_table_that_parquet_cannot_hold(tmp_path: Path) -> None:
    mixed = Result("x", pd.DataFrame({"a": [1, "b"]}), (Column("a", "category", "x"),))
    with pytest.raises(VitreousError, match="does not fit into parquet"):
        mixed.save(tmp_path)
    assert not list(tmp_path.iterdir())
