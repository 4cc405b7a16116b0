"""The manual's page of races says what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from generators import generator


@pytest.fixture
def script() -> Any:
    return generator("speed")


def test_the_page_is_up_to_date(script: Any) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.page() == text, "run python docs/generate_speed.py"
    assert all(f"`{name}-" in text for name in script.RACES)


def test_the_newest_file_of_a_race_counts(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for date, speed in (("2026-11-16", 26_000.0), ("2027-01-02", 31_234.0)):
        row = {"task": "shapes", "image": 32, "per_second": speed}
        about = {"targets": {"32": 20_000}, "rows": [row]}
        (tmp_path / f"world-cpu-{date}.json").write_text(json.dumps(about))
    monkeypatch.setattr(script, "RESULTS", tmp_path)
    assert "(`world-cpu-2027-01-02`) | 31,234 images/s | 20,000 | CPU |" in script.page()
    assert "26,000" not in script.page()
