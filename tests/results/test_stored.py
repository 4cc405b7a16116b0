"""A stored result is the result that was saved, and reads no more of it than is used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vitreous.claims.evidence_item import EvidenceItem
from vitreous.errors import VitreousError
from vitreous.results import Column, Replicates, Result, View
from vitreous.results.stored import StoredResult

TABLE = pd.DataFrame(
    {
        "model": ["a", "a", "b", "b"],
        "order": pd.Categorical(["low", "high", None, "low"], ["low", "high"], ordered=True),
        "text": ["x", None, "x", "y"],
        "flag": [True, False, True, True],
        "count": [1, 2, 3, 4],
        "value": [0.5, np.nan, np.inf, -1.0],
    }
)
KINDS = ("category", "order", "category", "category", "quantity", "quantity")


def saved(folder: Path, table: pd.DataFrame = TABLE) -> Result:
    columns = tuple(Column(n, k, n) for n, k in zip(table.columns, KINDS, strict=True))  # type: ignore[arg-type]
    values = np.arange(len(table))[:, None] + np.random.default_rng(0).random((len(table), 9))
    result = Result(
        "odd", table, columns, (View("bar", x="model", y="count"),), {"map": np.eye(3)},
        {"data": {"classes": 3}}, {"count": Replicates.of(table["count"], values)},
    )  # fmt: skip
    result.save(folder)
    return result


@pytest.mark.parametrize("table", [TABLE, TABLE[[True, False, True, True]], TABLE[:0]])
def test_it_equals_what_was_saved(table: pd.DataFrame, tmp_path: Path) -> None:
    result = saved(tmp_path, table)
    stored = StoredResult.open(tmp_path / "odd.json")
    assert stored == Result.load(tmp_path)
    assert stored.column_names == result.column_names
    assert stored.row_count == result.row_count == len(table)
    np.testing.assert_array_equal(stored.draws("count"), result.draws("count"))
    for name in result.column_names:
        for entry in ("a", "x", "low", True, 2, 0.5):
            same = (stored.entries(name) == entry, result.entries(name) == entry)
            np.testing.assert_array_equal(*same, err_msg=f"{name} == {entry}")
    assert replace(stored, views=()).views == ()


def test_only_what_is_used_is_read(tmp_path: Path) -> None:
    saved(tmp_path)
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(b"damaged")
    stored = StoredResult.open(tmp_path / "odd.json")
    assert list(stored.entries("count")) == [1, 2, 3, 4]
    with pytest.raises(VitreousError, match="its content is not what was saved"):
        stored.draws("count")
    with pytest.raises(VitreousError, match="its content is not what was saved"):
        _ = stored.arrays
    next(tmp_path.glob("*.parquet")).unlink()
    with pytest.raises(VitreousError, match="is not there"):
        StoredResult.open(tmp_path / "odd.json").entries("count")


def test_another_header_than_expected(tmp_path: Path) -> None:
    saved(tmp_path)
    with pytest.raises(VitreousError, match="not the result that the index beside it names"):
        StoredResult.open(tmp_path / "odd.json", "0" * 64)


@pytest.mark.parametrize("index", [None, [7, 3, 5, 4]], ids=["numbered", "odd index"])
def test_rows_are_those_that_pandas_chooses(index: list[int] | None, tmp_path: Path) -> None:
    """By masks on masks, from a file or from memory."""
    table = TABLE if index is None else TABLE.set_axis(index)
    result = saved(tmp_path, table)
    for each in (result, StoredResult.open(tmp_path / "odd.json")):
        rows = EvidenceItem({"model": "vit"}, {"odd": each}, "").rows("odd")
        some = rows.where(flag=True)
        last = some.select(some.numbers("count") > 1)
        assert [len(rows), len(some), len(last)] == [4, 3, 2]
        assert list(last.entries("count")) == list(last.table["count"]) == [3, 4]
        assert list(rows.where(text=("x", "y"), model="b").table["count"]) == [3, 4]
        assert len(rows.where(text="nothing")) == 0
        np.testing.assert_array_equal(last.draws("count"), result.draws("count", [2, 3]))
        one = EvidenceItem({"model": "vit"}, {"odd": each}, "b").rows("odd").where(count=(1, 4))
        np.testing.assert_array_equal(one.draws("count"), result.draws("count", [3]))
        assert list(one.select([False]).table["count"]) == []
