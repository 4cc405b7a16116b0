"""The manual's page of recipes says what the code says."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from vitreous import recipes

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "generate_recipes.py"


def test_the_page_is_up_to_date_and_complete() -> None:
    spec = spec_from_file_location("generate_recipes", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.page() == text, "run python docs/generate_recipes.py"
    assert all(f"\n| `{name}` |" in text for name in recipes.names())
