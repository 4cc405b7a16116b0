"""The page as its readers use it, in a browser: pointer, keyboard, print, no script, any width.

Set VITREOUS_SCREENSHOTS to keep screenshots, and VITREOUS_AXE to check with another axe-core.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from report.browser import Page, browser, found
from report.conftest import OTHER, VIT
from report.made_up import GAP, made_up
from vitreous import Inspection
from vitreous.claims.verdicts import OUTCOMES
from vitreous.report import write
from vitreous.report.judgement import Judgement

pytestmark = pytest.mark.skipif(
    found() is None, reason="There is no Chromium on this machine to open the page with."
)
VISIBLE = "((each) => each.checkVisibility() && each.getBoundingClientRect().width > 0)"
PLACES = f"[...document.querySelectorAll('.chart')].filter({VISIBLE})"


@pytest.fixture(scope="module")
def path(inspection: Inspection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    judged = [made_up(f"TST-0{i}", outcome, GAP) for i, outcome in enumerate(OUTCOMES)]
    target = tmp_path_factory.mktemp("report") / "report.html"
    return write(inspection, target, judgement=Judgement(judged, [], inspected=True))


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
    """The page at 1440 × 900; a test that uses it fails if the page complains or loads anything."""
    tab.said.clear()
    tab.requests.clear()
    tab.open(path, 1440, 900)
    tab.wait("document.documentElement.dataset.ready !== undefined")
    yield tab
    tab.value("1")
    assert tab.said == [], "The page complained."
    assert {each.split("#")[0] for each in tab.requests if not each.startswith("data:")} == {
        path.resolve().as_uri()
    }


def drawn(page: Page, place: str) -> None:
    """Scroll to a chart and wait until it is drawn."""
    page.show(f"#{place}")
    page.wait(
        f"document.querySelector('#{place} .drawn svg, #{place} .drawn canvas') && "
        f"!document.querySelector('#{place}.waiting')"
    )


def draw_all(page: Page) -> None:
    """Scroll through the page until every visible chart is drawn."""
    for place in page.value(f"{PLACES}.map((each) => each.id)"):
        drawn(page, place)


def choose(page: Page, model: str) -> None:
    """Click the chip of a model."""
    chip = f"(each) => each.dataset.model === {json.dumps(model)}"
    page.value(f"[...document.querySelectorAll('.chip[data-model]')].find({chip}).click()")


def axe_source() -> str | None:
    given = os.environ.get("VITREOUS_AXE")
    spec = find_spec("axe_core_python")
    if not given and (spec is None or not spec.submodule_search_locations):
        return None
    home = Path(given) if given else Path(spec.submodule_search_locations[0]) / "axe.min.js"  # type: ignore[union-attr,index]
    return home.read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 768, 390])
def test_every_width_and_theme(tab: Page, path: Path, shots: Path, width: int, scheme: str) -> None:
    """Nothing sticks out, nothing complains, every chart is drawn, and axe finds no barrier."""
    tab.said.clear()
    tab.open(path, width, 900, scheme)
    draw_all(tab)
    assert tab.value("document.querySelectorAll('.failed').length") == 0
    over = tab.value("document.documentElement.scrollWidth - innerWidth")
    assert over <= 0, f"the page is {over} px wider than the window"
    tab.value("scrollTo(0, 0)")
    tab.picture(shots / f"{width}-{scheme}.png")
    tab.value("document.querySelectorAll('[data-fold=table]').forEach((each) => each.open = true)")
    tab.wait(
        "[...document.querySelectorAll('.table')].every((each) => each.matches(':has(output)'))"
    )
    over = tab.value("document.documentElement.scrollWidth - innerWidth")
    assert over <= 0, f"with its tables open the page is {over} px wider than the window"
    assert tab.said == []
    source = axe_source()
    if source is None:
        pytest.skip("axe-core is not installed")
    tab.value(f"{source}; undefined")
    violations = tab.value(
        "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map("
        "(each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160))}`))"
    )
    assert violations == [], "\n".join(violations)


def test_the_first_chart_comes_at_once(page: Page) -> None:
    page.wait("document.querySelector('.key .drawn svg, .key .drawn canvas')")
    took = page.value("performance.getEntriesByName('first chart')[0].startTime")
    assert took > 0
    if os.getloadavg()[0] < 0.5:  # on an idle machine
        assert took < 1000, f"{took:.0f} ms"


def test_charts_are_drawn_when_they_come_into_sight(page: Page) -> None:
    page.wait("document.querySelectorAll('.chart').length")
    done = "document.querySelectorAll('.drawn svg, .drawn canvas').length"
    assert page.value(done) < page.value("document.querySelectorAll('.chart').length")
    draw_all(page)
    assert page.value("document.title") == f"Inside {VIT}, {OTHER} and resnet"


def test_chips_filter_charts_sentences_and_tables(page: Page) -> None:
    drawn(page, "attention_distance-0")
    marks = "document.querySelectorAll('#attention_distance-0 .mark-symbol path').length"
    both = page.value(marks)
    page.value("document.querySelector('#attention_distance [data-fold=table]').open = true")
    page.wait("document.querySelector('#attention_distance .table output')")
    rows = "document.querySelector('#attention_distance .table output').textContent"
    before = page.value(rows)
    choose(page, VIT)
    page.wait(f"{marks} < {both}")
    assert page.value(rows) != before
    names = page.value(
        "[...document.querySelectorAll('#attention_distance tbody tr')]"
        ".map((row) => row.cells[0].textContent)"
    )
    assert set(names) == {VIT}
    hidden = page.value(
        "[...document.querySelectorAll('[data-models]')].filter((each) => each.hidden)"
        ".map((each) => JSON.parse(each.dataset.models))"
    )
    assert hidden
    assert all(VIT not in models for models in hidden)
    page.press("Escape")
    page.wait(f"{rows} === {json.dumps(before)}")
    assert page.value("document.querySelectorAll('[data-models][hidden]').length") == 0


def test_anchors_land_and_the_contents_follow(page: Page) -> None:
    links = page.value("[...document.querySelectorAll('nav a')].map((each) => each.hash)")
    assert len(links) > 8
    for link in links:
        page.value(f"document.querySelector('nav a[href=\"{link}\"]').click()")
        top, end = page.value(
            f"[document.getElementById({json.dumps(link[1:])}).getBoundingClientRect().top,"
            " scrollY + innerHeight >= document.documentElement.scrollHeight - 2]"
        )
        assert end or -2 <= top <= 130, f"{link} lies at {top}"
    page.value("document.querySelector('nav a[href=\"#cka\"]').click()")
    page.wait("document.querySelector('nav a[aria-current]').hash === '#cka'")


def test_the_url_holds_what_was_chosen(page: Page, path: Path) -> None:
    choose(page, OTHER)
    page.value("document.querySelector('#fourier [data-fold=method]').open = true")
    page.value("document.querySelector('#theme').click()")
    page.value("document.querySelector('nav a[href=\"#fourier\"]').click()")
    page.wait("location.hash.includes('theme=dark') && location.hash.startsWith('#fourier')")
    address = page.value("location.href")
    page.value("location.hash = ''")
    page.open(path, 1440, 900)
    page.call("Page.navigate", url="about:blank")
    page.call("Page.navigate", url=address)
    page.wait(
        "document.readyState === 'complete' && document.querySelector('.chip[aria-pressed=true]')"
    )
    assert page.value("document.querySelector('.chip[aria-pressed=true]').dataset.model") == OTHER
    assert page.value("document.documentElement.dataset.theme") == "dark"
    assert page.value("document.querySelector('#fourier [data-fold=method]').open") is True
    page.wait("Math.abs(document.querySelector('#fourier').getBoundingClientRect().top) < 140")
    page.requests[:] = [each for each in page.requests if each != "about:blank"]


def walk(page: Page, place: str) -> list[dict[str, str]]:
    """Every tooltip of a chart, by keyboard, until the next key changes nothing."""
    drawn(page, place)
    page.value(f"document.getElementById('{place}').focus({{preventScroll: true}})")
    page.press("Home")
    read = (
        "[document.querySelector('.ring').style.cssText, Object.fromEntries("
        "[...document.querySelectorAll('#tip div')].map((line) => "
        "[line.children[0].textContent, line.children[1].textContent]))]"
    )
    tips: list[Any] = []
    while len(tips) < 2 or tips[-1] != tips[-2]:
        page.wait("!document.querySelector('#tip').hidden")
        tips.append(page.value(read))
        page.press("ArrowRight")
    return [tip for _, tip in tips[:-1]]


def test_every_tooltip_is_reached_by_keyboard_and_shows_the_numbers(
    page: Page, inspection: Inspection
) -> None:
    tips = walk(page, "attention_distance-0")
    result = inspection["attention_distance"]
    table, title = result.table, result.column("value").title
    assert all(len(tip) <= 5 for tip in tips)
    numbers = [float(tip[title].split(" ")[0].replace("−", "-")) for tip in tips if title in tip]
    assert len(numbers) == len(table), tips[:2]
    for shown, value in zip(sorted(numbers), sorted(table["value"]), strict=True):
        assert math.isclose(shown, value, rel_tol=6e-3)
    page.press("Escape")
    assert page.value("document.querySelector('#tip').hidden") is True


def test_tables_are_complete_sorted_and_filtered(page: Page, inspection: Inspection) -> None:
    table = inspection["attention_distance"].table
    page.value("document.querySelector('#attention_distance [data-fold=table]').open = true")
    page.wait("document.querySelector('#attention_distance .table output')")
    heads = page.value(
        "[...document.querySelectorAll('#attention_distance thead th')].map((e) => e.textContent)"
    )
    column = list(table.columns).index("value")
    assert len(heads) == len(table.columns)
    cells = (
        "[...document.querySelectorAll('#attention_distance tbody tr')]"
        f".map((row) => Number(row.cells[{column}].title))"
    )
    assert page.value(cells) == table["value"].tolist()[:40]
    for direction in (False, True):
        page.value(
            f"document.querySelectorAll('#attention_distance thead button')[{column}].click()"
        )
        wanted = sorted(table["value"].tolist(), reverse=direction)[:40]
        assert page.value(cells) == wanted
    unit = str(table["unit"].iloc[-1])
    page.value(
        "(() => { const box = document.querySelector('#attention_distance .table input');"
        f" box.value = {json.dumps(unit)}; box.dispatchEvent(new Event('input')); }})()"
    )
    assert len(page.value(cells)) == min(40, (table["unit"] == unit).sum())


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("units are similar", "Which units are similar?"),
        ("blocks.1.attn", "rows of attention_distance"),
        ("it has no map", "How far do heads attend?"),
        ("nothing like this anywhere", "Nothing about"),
    ],
)
def test_the_search_covers_titles_texts_units_and_tables(
    page: Page, typed: str, wanted: str
) -> None:
    page.press("/")
    page.wait("document.activeElement.id === 'search'")
    page.call("Input.insertText", text=typed)
    page.wait("!document.querySelector('#search-results').hidden")
    results = page.value("document.querySelector('#search-results').innerText")
    assert wanted in results


def test_a_unit_is_marked_in_charts_and_drawings(page: Page) -> None:
    drawn(page, "attention_distance-0")
    page.value(
        "document.querySelector('#models .drawing [data-unit=\"blocks.1.attn\"]')"
        ".dispatchEvent(new PointerEvent('pointerenter'))"
    )
    assert page.value("document.querySelectorAll('.at').length") >= 2  # drawing and strip
    large = (
        "[...document.querySelectorAll('#attention_distance-0 .mark-symbol path')]"
        ".filter((each) => each.getBBox().width > 10).length"
    )
    page.wait(f"{large} > 0")
    page.value(
        "document.querySelector('#models .drawing [data-unit=\"blocks.1.attn\"]')"
        ".dispatchEvent(new PointerEvent('pointerleave'))"
    )
    page.wait(f"{large} === 0")


def test_a_cell_of_a_heat_map_has_a_tooltip_with_its_value(page: Page, shots: Path) -> None:
    page.value("document.querySelector('#cka [data-fold=method]').open = true")
    drawn(page, "cka-0")
    left, top, width, height = page.show("#cka-0 canvas")
    page.hover(left + width / 2, top + height / 2)
    page.wait("!document.querySelector('#tip').hidden")
    assert page.value("document.querySelectorAll('#tip div').length") <= 5
    page.wait("document.querySelector('#cka-0-across polyline')")
    row = page.value("document.querySelector('#cka-0-across b').textContent")
    names, _, value = row.rpartition(": ")
    one, other = (int(name.strip()[1:]) for name in names.split(" × "))
    assert float(value) == pytest.approx(1 / (1 + abs(one - other)), abs=1e-2)
    page.picture(shots / "heatmap.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_printing_shows_every_chart(tab: Page, path: Path, shots: Path, scheme: str) -> None:
    """From the browser's menu, before anything but the first screen was drawn."""
    tab.open(path, 1100, 900, scheme)
    tab.wait("document.documentElement.dataset.ready !== undefined")
    tab.value("document.querySelector('#attention_distance [data-fold=more]').open = true")
    tab.wait("document.querySelectorAll('#attention_distance .fold .chart.waiting').length === 0")
    tab.value("dispatchEvent(new Event('beforeprint'))")
    tab.call("Emulation.setEmulatedMedia", media="print")
    blank = tab.value(
        f"{PLACES}.filter((place) => ![...place.querySelectorAll('svg, canvas, img')]"
        f".some({VISIBLE})).map((place) => place.id)"
    )
    first = tab.value(f"{PLACES}.map((place) => place.id)")
    tab.call("Emulation.setEmulatedMedia", media="")
    tab.value("dispatchEvent(new Event('afterprint'))")
    assert len(first) >= 6
    assert blank == []
    assert tab.value("document.querySelectorAll('.still').length") == 0
    printed = tab.call("Page.printToPDF", printBackground=True)["data"]
    assert len(printed) > 10_000


def test_without_javascript_charts_are_there_and_dead_buttons_are_not(
    tab: Page, path: Path, inspection: Inspection, shots: Path
) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(path, 1440, 900)
        tab.picture(shots / "without-javascript.png")
        document = tab.call("DOM.getDocument", depth=1)["root"]["nodeId"]
        asked = {
            "charts": ".question > figure .chart svg, .question > figure .chart img",
            "buttons": "button",
            "places of what a script draws": "figure.key, #explorer",
        }
        sizes: dict[str, list[Any]] = {}
        for what, selector in asked.items():
            ids = tab.call("DOM.querySelectorAll", nodeId=document, selector=selector)["nodeIds"]
            sizes[what] = [shown for each in ids if (shown := visible(tab, each))]
        assert len(sizes["charts"]) >= sum(bool(each.views) for each in inspection.values())
        assert sizes["buttons"] == sizes["places of what a script draws"] == []
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)


def visible(tab: Page, node: int) -> bool:
    """Whether an element takes up space, asked without running a script in the page."""
    try:
        box = tab.call("DOM.getBoxModel", nodeId=node)["model"]
    except AssertionError:
        return False
    return box["width"] > 0 and box["height"] > 0


def test_files_are_saved(page: Page, tmp_path: Path) -> None:
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    drawn(page, "attention_distance-0")
    page.value("document.querySelector('[data-csv=attention_distance]').click()")
    page.value("document.querySelector('[data-save=attention_distance-0][data-as=svg]').click()")
    for name in ("attention_distance.csv", "attention_distance-0.svg"):
        for _ in range(100):
            if (tmp_path / name).is_file():
                break
            page.value("new Promise((done) => setTimeout(done, 50))")
        assert (tmp_path / name).is_file(), name
    assert (tmp_path / "attention_distance.csv").read_text().startswith("model,unit,kind")
