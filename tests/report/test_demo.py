"""What `make demo` shows: it stays a page that can be read to its end, and mailed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from report.browser import browser, found
from vitreous.cli import main

MAKEFILE = Path(__file__).parents[2] / "Makefile"
HEIGHT = 900
"""Of a screen, in pixels."""


def test_it_is_at_most_ten_screens_and_three_megabytes(tmp_path: Path) -> None:
    """Of fewer images than `make demo` takes: as many charts, cards and words."""
    models = re.search(r"^MODELS := (.+)$", MAKEFILE.read_text(), re.MULTILINE)
    assert models
    options = ("--data", "world:shapes", "--also", "nano", "--limit", "32", "--device", "cpu")
    demo = tmp_path / "report.html"
    with pytest.raises(SystemExit) as end:
        main(["inspect", *models[1].split(), *options, "--out", str(demo)])
    assert end.value.code == 0
    assert demo.stat().st_size < 3_000_000
    if (program := found()) is None:
        pytest.skip("There is no Chromium on this machine to measure the page with.")
    with browser(program) as page:
        page.open(demo, 1440, HEIGHT)
        page.wait("document.querySelector('.attention .prediction li')")  # the last of screen one
        assert HEIGHT < page.value("document.documentElement.scrollHeight") <= 10 * HEIGHT
