"""The page on corruptions says what the code does."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_is_what_its_script_writes() -> None:
    spec = spec_from_file_location("generate_corruptions", DOCS / "generate_corruptions.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.page() == (DOCS / "corruptions.md").read_text(encoding="utf-8"), "run docs/generate_corruptions.py"
    assert (DOCS / "corruptions.jpg").stat().st_size < 200_000
