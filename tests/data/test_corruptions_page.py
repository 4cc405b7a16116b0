"""The page on corruptions says what the code does."""

from __future__ import annotations

from generators import DOCS, generator


def test_the_page_is_what_its_script_writes() -> None:
    assert generator("corruptions").page() == (DOCS / "reference" / "corruptions.md").read_text(
        encoding="utf-8"
    ), "run docs/generate_corruptions.py"
    assert (DOCS / "reference" / "corruptions.jpg").stat().st_size < 200_000
