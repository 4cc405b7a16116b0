"""The manual's page of recipes says what the code says."""

from __future__ import annotations

from generators import generator
from vitreous import recipes


def test_the_page_is_up_to_date_and_complete() -> None:
    script = generator("recipes")
    text = script.PAGE.read_text(encoding="utf-8")
    assert script.page() == text, "run python docs/generate_recipes.py"
    assert all(f"\n| `{name}` |" in text for name in recipes.names())
