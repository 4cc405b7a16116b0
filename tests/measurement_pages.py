"""What the page of every probe and every analysis in the manual promises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from generators import generator
from vitreous.results import Column

SECTIONS = [
    "Definition",
    "Usage",
    "Options",
    "Columns",
    "How to read it",
    "Pitfalls",
    "References",
]
HOW = "run python docs/generate_measurements.py"


def check_page(name: str, text: str, measurement: type[Any], columns: Sequence[Column]) -> None:
    """Its sections stand in order, with a formula, a command, a picture in words, and the options
    and columns of the code."""
    script = generator("measurements")
    assert text.startswith(f"# {name}\n"), "The title is the name in the code."
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert re.search(r"^\$\$\n[^$]+\n\$\$$", text, re.MULTILINE), "There is no formula."
    assert re.search(rf"```\{{image\}} {name}\.svg\n:alt: \w", text), "There is no picture."
    assert re.search(r"^\$ vitreous ", text, re.MULTILINE), "There is no command."
    said = script.meanings(measurement)
    for option in fields(measurement):
        assert not option.init or said.get(option.name, "").endswith("."), option.name
    assert f"## Options\n\n{script.options_table(measurement)}\n" in text, HOW
    assert f"## Columns\n\n{script.columns_table(columns)}\n" in text, HOW
