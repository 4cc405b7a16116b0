"""A cell of a notebook: small, complete, silent on the network, safe whatever names models have."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from results.conftest import MADE, distances, similarity
from vitreous.results import View


@pytest.mark.parametrize("name", MADE)
def test_small_and_without_network(name: str) -> None:
    page = MADE[name]()._repr_html_()
    assert len(page.encode()) < 60_000
    assert "http" not in page.replace("http://www.w3.org/", "")
    assert not re.search(r"<script|<link|@import|url\((?!#)|javascript:", page)
    assert ("<svg" in page) != ('src="data:image/png' in page)


def test_a_large_result_stays_small() -> None:
    assert len(similarity(100)._repr_html_()) < 60_000
    many = distances(*(f"model_with_a_long_name_{i}" for i in range(40)))
    assert len(many._repr_html_()) < 60_000


def test_a_picture_is_shown_at_its_size() -> None:
    """Four cells of 26 points and their labels, not the pixels of a sharper picture."""
    found = re.search(r'<img [^>]*width="(\d+)"', similarity()._repr_html_())
    assert found is not None
    assert 104 < int(found[1]) < 320


def test_figures_use_the_text_colour_of_the_page() -> None:
    page = distances("vit")._repr_html_()
    assert "currentColor" in page
    assert "#1b1f24" not in page.lower()
    assert "#ffffff" not in page.lower(), "neither paper nor halos of it"
    assert page.count(">uniform attention<") == 1


def test_the_table_shows_the_first_rows_and_explains_columns() -> None:
    page = distances("vit", "deit")._repr_html_()
    assert "12 rows" in page
    assert "… 6 more" in page
    assert 'title="Mean distance."' in page
    assert page.count("<tr>") == 1 + 6 + 1


def test_names_are_escaped() -> None:
    result = distances("<img src=x onerror=alert(1)>")
    read = replace(result, views=(replace(result.views[0], how_to_read="a < b & <script>"),))
    page = read._repr_html_()
    found: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append(tag)

    Tags().feed(page)
    assert not {"img", "script"} & set(found)


def test_nothing_to_draw() -> None:
    result = distances("vit")
    assert "<svg" not in replace(result, views=())._repr_html_()
    empty = replace(result, table=result.table.head(0), views=(View("line", "depth", "value"),))
    assert "0 rows" in empty._repr_html_()
