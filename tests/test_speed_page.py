"""The manual's page on speed says what was measured, losses included."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from generators import generator


@pytest.fixture
def script() -> Any:
    return generator("speed")


def test_the_page_and_its_chart_are_up_to_date(script: Any) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.page() == text, "run python docs/generate_speed.py"
    rows = sorted(script.comparisons(script.newest()), key=lambda row: -row.ratio)
    for theme, suffix in (("light", ""), ("dark", "-dark")):
        picture = script.PAGE.with_name(f"speed{suffix}.svg").read_text(encoding="utf-8")
        assert script.chart(rows, theme).svg() == picture
    for race in script.newest().values():
        if race["file"].split("-")[0] not in ("neighbourhood", "reference"):
            assert f"`{race['file']}`" in text


def test_losses_are_listed(script: Any) -> None:
    slower = [row for row in script.comparisons(script.newest()) if row.ratio < 1]
    listed = "\n".join(script.losses(script.newest()))
    assert slower
    assert all(f"{row.ratio:.2f} times as fast as {row.other}" in listed for row in slower)


def test_the_newest_file_of_a_benchmark_counts(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in script.RESULTS.glob("*.json"):
        shutil.copy(path, tmp_path)
    row = {"task": "shapes", "image": 32, "per_second": 31_234.0}
    about = {"targets": {"32": 20_000}, "rows": [row]}
    (tmp_path / "world-cpu-2099-01-02.json").write_text(json.dumps(about))
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    text = script.page()
    assert "| drawing `world:shapes`, 32 pixels | 31,234 | 20,000 | CPU |" in text
    assert "`world-cpu-2099-01-02`" in text
    assert "26,841" not in text
