"""The manual's page of models is complete and says what the code says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from generators import generator


@pytest.fixture(scope="module")
def script() -> Any:
    return generator("models")


def test_every_row_of_the_catalogue_is_there(script: Any) -> None:
    for rows, section, count in ((script.MODELS, "A1", 27), (script.MECHANISMS, "A2", 26)):
        assert re.findall(r"^(A\S+) ", rows, re.MULTILINE) == [
            f"{section}.{n:02}" for n in range(1, count + 1)
        ]


def test_the_page_is_up_to_date(script: Any) -> None:
    """All but the counts, which would take a minute; those of the quickest families are counted
    again below."""
    text = script.PAGE.read_text(encoding="utf-8")
    counts = dict(re.findall(r"^\| `(.+)` \| (\S+ M) \|$", text, re.MULTILINE))
    assert script.page(lambda expression: counts.get(expression, "?")) == text, (
        "run python docs/generate_models.py"
    )
    quick = [e for e in counts if e.startswith(('build("vit_ti', 'build("mlp', 'build("cnn'))]
    assert len(quick) > 20
    assert {e: script.parameters(e) for e in quick} == {e: counts[e] for e in quick}
