"""An inspection in a notebook: small, complete, silent on the network, safe whatever is in it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from report.conftest import NET, VIT
from vitreous import Inspection
from vitreous.measure import notebook_view
from vitreous.results.words import escape


@pytest.fixture(scope="module")
def page(inspection: Inspection) -> str:
    return inspection._repr_html_()


def test_small_and_without_network(page: str) -> None:
    assert len(page.encode()) < 350_000
    assert "http" not in page.replace("http://www.w3.org/", "")
    assert not re.search(r"<script|<link|<style|@import|url\((?!#)|javascript:", page)


def test_a_line_for_each_measurement_and_its_chart(inspection: Inspection, page: str) -> None:
    assert page.count("<details") == page.count("<summary") == len(inspection)
    drawable = [each for each in inspection.values() if each.views and len(each.table)]
    assert page.count("<svg") + page.count('src="data:image/png') == len(drawable)
    for name in inspection:
        assert f">{name}</code>" in page


def test_models_what_was_left_out_and_next_calls(inspection: Inspection, page: str) -> None:
    for name in inspection.anatomies:
        assert f">{escape(name)}</td>" in page
    assert "Left out: " in page
    assert "inspection.to_latex()" in page
    assert "vitreous.report.write(inspection" in page


def test_no_markup_from_names(page: str) -> None:
    found: list[tuple[str, list[tuple[str, str | None]]]] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, attrs))

    Tags().feed(page)
    assert escape(VIT) in page, "the name is there, and harmless"
    assert "script" not in {tag for tag, _ in found}
    assert not [name for _, attrs in found for name, _ in attrs if name.startswith("on")]
    sources = [value or "" for _, attrs in found for name, value in attrs if name == "src"]
    assert all(value.startswith("data:image/png;base64,") for value in sources)


def test_charts_stay_within_their_budget(
    inspection: Inspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebook_view, "ALL_CHARTS", 12_000)
    small = notebook_view.inspection_html(inspection)
    assert len(small) < 12_000 + 1_500 * (len(inspection) + 5)
    assert ".plot()</code> draws it." in small


def test_a_failed_part_shows_its_error_and_the_rest_is_shown(
    inspection: Inspection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise ValueError("on <purpose>")

    monkeypatch.setattr(notebook_view, "figure_html", broken)
    monkeypatch.setattr(notebook_view, "sentences_of", broken)
    said = notebook_view.inspection_html(inspection)
    assert said.count("could not be rendered: ValueError: on &lt;purpose&gt;") == 2 * len(
        inspection
    )
    assert "Next: " in said


def test_drawn_once(inspection: Inspection, page: str) -> None:
    assert inspection._repr_html_() is page


def test_of_nothing_and_of_one_model(inspection: Inspection) -> None:
    assert "0 measurements" in Inspection({})._repr_html_()
    name, result = next(iter(inspection.items()))
    rows = result.table["model"] == NET
    alone = replace(result.select(rows.to_numpy()), arrays={})
    few = Inspection({name: alone}, {}, {NET: inspection.anatomies[NET]})
    assert "of 1 model: 1 measurement" in few._repr_html_()
