"""The page in a browser: it opens from a file, draws what is in sight, and answers to mouse and
keyboard.

Screenshots go to a temporary folder; set VITREOUS_SCREENSHOTS to keep them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from report.browser import Page, browser, found
from report.conftest import OTHER, VIT
from vitreous import Inspection
from vitreous.report import write

pytestmark = pytest.mark.skipif(
    found() is None, reason="There is no Chromium on this machine to open the page with."
)


@pytest.fixture(scope="module")
def path(inspection: Inspection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(inspection, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(os.environ.get("VITREOUS_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    program = found()
    assert program
    with browser(program) as page:
        yield page


@pytest.fixture
def page(tab: Page, path: Path) -> Iterator[Page]:
    tab.said.clear()
    tab.requests.clear()
    tab.open(path)
    yield tab
    tab.value("1")
    assert tab.said == [], "The page complained."
    assert {each.split("#")[0] for each in tab.requests if not each.startswith("data:")} == {
        path.resolve().as_uri()
    }


def drawn(page: Page, place: str) -> None:
    page.show(f"#{place}")
    page.wait(
        f"document.querySelector('#{place} svg, #{place} canvas') && "
        f"!document.querySelector('#{place}.waiting')"
    )


def test_charts_are_drawn_when_they_come_into_sight(page: Page) -> None:
    page.wait("document.querySelectorAll('.chart').length")
    assert page.value("document.querySelectorAll('.chart svg, .chart canvas').length") < page.value(
        "document.querySelectorAll('.chart').length"
    )
    for place in page.value("[...document.querySelectorAll('.chart')].map((each) => each.id)"):
        drawn(page, place)
    assert page.value("document.querySelectorAll('.failed').length") == 0
    assert page.value("document.title") == f"Inside {VIT}, {OTHER} and resnet"


def test_a_cell_of_a_heat_map_tells_its_value(page: Page, shots: Path) -> None:
    drawn(page, "cka-0")
    left, top, width, height = page.show("#cka-0 canvas")
    page.hover(left + width / 2, top + height / 2)
    page.wait("document.querySelector('#vg-tooltip-element.visible')")
    lines = (
        "[...document.querySelectorAll('#vg-tooltip-element tr')]"
        ".map((row) => row.innerText.split('\\t'))"
    )
    cell = dict(page.value(lines))
    page.wait("document.querySelector('#cka-0-across polyline')")
    row = page.value("document.querySelector('#cka-0-across').textContent")
    place = {name.rstrip(":"): value for name, value in cell.items()}
    near = 1 / (1 + abs(int(place["unit"][1:]) - int(place["other"][1:])))
    assert float(place["CKA"]) == pytest.approx(near, abs=1e-3)
    assert row.startswith(f"{place['other']} × {place['unit']}: {float(f'{near:.3g}'):g}"), row
    points = page.value(
        "document.querySelector('#cka-0-across polyline').getAttribute('points').split(' ').length"
    )
    assert points in (5, 6), "six units, one of them without a value in one row"
    page.picture(shots / "heatmap.png")


def test_one_model_stands_out(page: Page) -> None:
    drawn(page, "attention_distance-0")
    faint = "[...document.querySelectorAll('#attention_distance-0 .mark-symbol path[opacity]')]"
    count = f"{faint}.filter((each) => Number(each.getAttribute('opacity')) < 0.2).length"
    assert page.value(count) == 0
    page.click(".chip:nth-child(1)")
    page.wait(f"{count} === 6")
    assert page.value("document.querySelector('.chip').getAttribute('aria-pressed')") == "true"
    page.press("Escape")
    page.wait(f"{count} === 0")


def test_files_are_saved(page: Page, tmp_path: Path) -> None:
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    drawn(page, "attention_distance-0")
    page.value("document.querySelector('[data-csv=attention_distance]').click()")
    page.value("document.querySelector('[data-save=attention_distance-0][data-as=svg]').click()")
    page.wait("true")
    for name in ("attention_distance.csv", "attention_distance-0.svg"):
        for _ in range(100):
            if (tmp_path / name).is_file():
                break
            page.value("new Promise((done) => setTimeout(done, 50))")
        assert (tmp_path / name).is_file(), name
    assert (tmp_path / "attention_distance.csv").read_text().startswith("model,unit,kind")


def test_dark_light_and_narrow(tab: Page, path: Path, shots: Path) -> None:
    papers = {}
    for name, width, scheme in (
        ("light", 1400, "light"),
        ("dark", 1400, "dark"),
        ("narrow", 390, "light"),
    ):
        tab.open(path, width, 1200, scheme)
        drawn(tab, "attention_distance-0")
        tab.picture(shots / f"{name}.png")
        papers[name] = tab.value(
            "getComputedStyle(document.querySelector('.question')).backgroundColor"
        )
        over = tab.value("document.documentElement.scrollWidth - innerWidth")
        assert over <= 0, f"{name}: the page is {over} px wider than the window"
    assert papers["light"] == papers["narrow"] != papers["dark"]
    tab.open(path, 1400, 1200, "dark")
    drawn(tab, "attention_distance-0")
    tab.click("#theme")
    tab.wait(
        f"getComputedStyle(document.querySelector('.question')).backgroundColor === "
        f"{json.dumps(papers['light'])}"
    )
    assert tab.value("document.querySelector('#theme').textContent") == "Dark"


def test_it_prints_light_and_whole(tab: Page, path: Path, shots: Path) -> None:
    tab.open(path, 1100, 1000, "dark")
    tab.value("window.print = () => { window.printed = [document.documentElement.dataset.theme,"
              " document.querySelectorAll('.chart.waiting').length]; }")  # fmt: skip
    tab.click("#print")
    tab.wait("window.printed")
    assert tab.value("window.printed") == ["light", 0]
    printed = tab.call("Page.printToPDF", printBackground=True)["data"]
    shots.mkdir(parents=True, exist_ok=True)
    assert len(printed) > 10_000
