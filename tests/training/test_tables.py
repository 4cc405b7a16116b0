"""The dated tables of accuracy say the same in every form they are kept in, and the manual shows
them as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted((ROOT / "results").glob("*-fast-*.json"))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_table_curves_and_manual_agree(path: Path) -> None:
    rows = {row["model"]: row for row in json.loads(path.read_text())["rows"]}
    lines = [
        line for line in path.with_suffix(".md").read_text().splitlines() if line.startswith("| ")
    ][1:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == list(rows)
    for line, row in zip(lines, rows.values(), strict=True):
        assert (
            f"| {row['test_accuracy']:.2%} | {row['test_nll']:.3f} | {row['train_nll']:.3f} |"
            in line
        )
        assert f"{line}\n" in (ROOT / "docs" / "reference" / "training.md").read_text()
    last = pd.read_csv(path.with_suffix(".csv")).groupby("model").last()
    assert set(rows) - set(last.index) == {name for name, row in rows.items() if "note" in row}
    for name, row in rows.items():
        if name in last.index:
            assert last.epoch[name] == row["epochs"]
            assert 1 - last.test_error[name] == pytest.approx(row["test_accuracy"], abs=1e-9)
            assert last.test_nll[name] == pytest.approx(row["test_nll"], rel=1e-4)


def test_there_are_tables() -> None:
    assert [path.name.partition("-")[0] for path in TABLES] == ["cifar10", "tiny100"]
