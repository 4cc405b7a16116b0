"""The gallery of the manual is what its script writes, small, and its commands exist."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

from generators import DOCS, generator
from vitreous.measure import analyses, probes

PAGE = (DOCS / "gallery" / "index.md").read_text(encoding="utf-8")
PICTURES = sorted(path for path in (DOCS / "gallery").iterdir() if path.suffix != ".md")


def test_the_page_is_what_the_script_writes() -> None:
    assert generator("gallery").page() == PAGE, "run python docs/generate_gallery.py"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_figure_is_shown_and_small(path: Path) -> None:
    assert f"```{{figure}} {path.name}\n" in PAGE
    assert path.stat().st_size < 150_000


def test_every_figure_has_a_command_that_exists() -> None:
    sections = PAGE.split("\n## ")[1:]
    assert len(sections) == len(PICTURES) >= 9
    for section in sections:
        command = re.search(r"^\$ vitreous (\S+) (.*)$", section, re.MULTILINE)
        assert command is not None
        if command[1] == "inspect":
            probe = re.search(r"--probes (\S+)", section)
            assert probe is not None
            assert probe[1] in probes.names()
        else:
            assert command[1] in (*analyses.names(), "study")


def test_the_readme_counts_what_the_evidence_gives() -> None:
    table = DOCS.parent / "results" / "cifar10-reproduction.csv"
    with table.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["role"] == "main" and row["value"]]
    verdicts = Counter(row["verdict"] for row in rows)
    del verdicts["not testable here"]
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    for sentence in (
        f"{verdicts.total()} of them could be tested",
        f"{verdicts['reproduced']} are reproduced, {verdicts['weaker']} is weaker",
        f"{verdicts['mixed']} are mixed, {verdicts['no effect']} has no effect",
        f"{verdicts['opposite']} is opposite, {verdicts['holds untrained']} hold for untrained",
        f"{verdicts['undecided']} are undecided",
    ):
        assert sentence in readme
