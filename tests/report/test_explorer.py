"""The attention explorer in a browser: what it shows is what was measured, by mouse and keyboard.

The page holds the explorer alone, in both sizes, so it needs nothing of the report but dom.js and
unpack.js.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report.browser import Page, browser, found
from report.conftest import OTHER, VIT, maps
from report.explorer_page import (
    CLASSES,
    DEPTHS,
    GRIDS,
    LONG,
    TOKENS,
    explorer_page,
    random_maps,
    share,
)  # fmt: skip
from vitreous import Result
from vitreous.palette import RAMPS
from vitreous.report import attention

needs_browser = pytest.mark.skipif(
    found() is None, reason="There is no Chromium on this machine to open the page with."
)


@pytest.fixture(scope="module")
def result() -> Result:
    return random_maps()


@pytest.fixture(scope="module")
def path(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("explorer") / "explorer.html"
    file.write_text(explorer_page(result), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    program = found()
    assert program
    with browser(program) as page:
        yield page


FULL, COMPACT = '.attention[data-size="full"]', '.attention[data-size="compact"]'


@pytest.fixture
def page(tab: Page, path: Path) -> Iterator[Page]:
    tab.said.clear()
    tab.open(path, 1280, 1100)
    tab.wait(f"document.querySelector('{COMPACT}').dataset.state")
    tab.value("document.querySelector('details').open = true")
    tab.wait(f"document.querySelector('{FULL}').dataset.state")
    yield tab
    assert tab.said == [], "The page complained."


def settled(page: Page, text: str) -> list[dict[str, Any]]:
    """Wait until both explorers show a state; what the panes of the full one show."""
    same = f"(each) => JSON.parse(each.dataset.state).text === '{text}'"
    page.wait(f"[...document.querySelectorAll('.attention')].every({same})")
    state = json.loads(page.value(f"document.querySelector('{FULL}').dataset.state"))
    panes: list[dict[str, Any]] = state["panes"]
    return panes


def show(page: Page, text: str) -> list[dict[str, Any]]:
    page.value(f"setAttentionState('{text}')")
    return settled(page, text)


def words(page: Page, selector: str) -> list[str]:
    texts: list[str] = page.value(
        f"[...document.querySelectorAll({json.dumps(selector)})]"
        ".map((each) => each.innerText.replaceAll('\\u00A0', ' ').trim())"
    )
    return texts


@needs_browser
def test_shares_are_those_of_the_arrays(page: Page, result: Result) -> None:
    for number, model in enumerate(TOKENS):
        for layer in range(len(DEPTHS[model])):
            stored = share(result, model, layer, 1)
            query = stored.shape[1] - 2
            read = np.array(page.value(
                f"window.reading = attention.provider.maps({number}, {layer}, 1, {query})"
                ".then((rows) => rows.map((row) => [...row]))"
            ))  # fmt: skip
            wanted = stored[:, query]
            most = wanted.max(-1, keepdims=True)
            np.testing.assert_allclose(read.max(-1), most[:, 0], rtol=2e-5)
            half_a_level = 0.5 / attention.LEVELS
            bound = most * (2 * np.sqrt(wanted / most) * half_a_level + half_a_level**2)
            assert (np.abs(read - wanted) <= bound + 1e-7).all()


@needs_browser
def test_the_sentence_and_the_scale_say_the_numbers_of_the_arrays(
    page: Page, result: Result
) -> None:
    panes = show(page, "i1_q900-100_m0.2.1_m1.0.0")
    assert [(pane["unit"], pane["query"]) for pane in panes] == [
        ("blocks.3.attn", 3 + 4),
        ("blocks.1.attn", 9),
    ]
    for i, (model, layer, head) in enumerate(((LONG, 2, 1), ("plain", 0, 0))):
        row = share(result, model, layer, 1)[head, panes[i]["query"]]
        prefix, (rows, columns) = len(TOKENS[model]), GRIDS[model]
        grid = row[prefix:]
        y, x = divmod(int(grid.argmax()), columns)
        pane = f"{FULL} .pane:nth-child({i + 1})"
        (said,) = words(page, f"{pane} .said")
        assert words(page, f"{pane} .ends .high") == [f"{100 * grid.max():.1f} %"]
        at = (y, x) - np.array(divmod(panes[i]["query"] - prefix, columns))
        if np.abs(at).sum() > 1:
            assert f"row {y + 1}, column {x + 1} ({100 * grid.max():.1f} %)" in said
        half = int((np.sort(grid)[::-1].cumsum() < grid.sum() / 2).sum()) + 1
        assert half > 2, "one patch alone would not tell half from a third"
        assert re.search(rf"\b{half} of {rows * columns}\b", said), said
        places = np.stack(np.divmod(np.arange(len(grid)), columns), 1)
        here = np.array(divmod(panes[i]["query"] - prefix, columns))
        mean = float(np.linalg.norm(places - here, axis=1) @ grid / grid.sum())
        shown = float(said.partition("the mean distance is ")[2].split()[0])
        assert shown == pytest.approx(mean, abs=0.1)


@needs_browser
def test_predictions_stand_beside_the_image_with_the_true_label(page: Page) -> None:
    show(page, "i0_q500-500_m0.0.m_m1.0.m")
    lines = [line.split("\n") for line in words(page, f"{FULL} .pane:nth-child(1) li")]
    assert lines == [
        [CLASSES[1], "62.5 %"],
        [CLASSES[0], "25.0 %", "true label"],
        [CLASSES[2], "6.3 %"],
    ]
    meters = f"[...document.querySelectorAll('{COMPACT} meter')].map((each) => each.value)"
    assert page.value(meters) == [0.625, 0.25, 0.0625]
    other = f"{FULL} .pane:nth-child(2) .prediction"
    assert len(words(page, f"{other} li.true")) == 0
    assert "It knows <i>other</i> ones." in page.value(
        f"document.querySelector('{other} details').textContent"
    )
    show(page, "i1_q500-500_m0.0.m_m1.0.m")
    assert words(page, f"{COMPACT} li.true") == ["owl\n1.2 %\ntrue label, rank 417"]
    assert "Label:" not in words(page, other)[0], "image 7 is a number, not a label"


@needs_browser
def test_locked_layers_have_the_same_relative_depth(page: Page) -> None:
    assert words(page, f"{FULL} .compare")[0].startswith("compare with")
    show(page, "i0_q500-500_m0.0.m_m1.0.m")
    slide = f"(() => {{ const e = document.querySelectorAll('{FULL} .layer input')[%d];"
    slide += " e.value = %d; e.dispatchEvent(new Event('input')); })()"
    page.value(slide % (0, 3))
    settled(page, "i0_q500-500_m0.3.m_m1.1.m")  # 0.9 is nearer to 1.0 than to 0.5
    page.value(slide % (1, 0))
    settled(page, "i0_q500-500_m0.1.m_m1.0.m")  # 0.5 is nearer to 0.4 than to 0.7
    page.click(f'{FULL} input[type="checkbox"]')
    page.value(slide % (0, 3))
    settled(page, "i0_q500-500_m0.3.m_m1.0.m_u")
    page.value(f"document.querySelector('{FULL} .compare select').value = ''")
    page.value(
        f"document.querySelector('{FULL} .compare select').dispatchEvent(new Event('change'))"
    )
    assert len(settled(page, "i0_q500-500_m0.3.m_u")) == 1
    lock = f"document.querySelector('{FULL} input[type=checkbox]').checkVisibility()"
    assert not page.value(lock), "there is nothing to lock"


@needs_browser
def test_prefix_tokens_can_be_queries_where_they_exist(page: Page, result: Result) -> None:
    show(page, "i0_q500-500_m0.0.m_m1.0.m")
    buttons = f"{FULL} .pane:nth-child(%d) .tokens button"
    assert words(page, buttons % 1) == ["Class token", "Register 1", "Register 2"]
    assert words(page, buttons % 2) == []
    page.click(f"{FULL} .pane:nth-child(1) .tokens button:nth-child(3)")
    panes = settled(page, "i0_q500-500_tregister-2_m0.0.m_m1.0.m")
    assert panes[0]["query"] == 2
    said = words(page, f"{FULL} .said")
    assert said[0].startswith("Register 2 attends most to "), said
    assert said[1].startswith("There is no register 2 in this layer. This patch (row 4, column 6)")
    pressed = page.value(
        f"[...document.querySelectorAll('{buttons % 1}')].map((e) => e.ariaPressed)"
    )
    assert pressed == ["false", "false", "true"]
    row = share(result, LONG, 0, 0)[:, 2].mean(0)
    assert panes[0]["most"] == pytest.approx(row[3:].max(), rel=0.02)


@needs_browser
def test_mouse_and_keyboard_choose_patch_layer_and_head(page: Page) -> None:
    show(page, "i0_q500-500_m0.0.m_m1.0.m")
    page.click(f"{FULL} .pane:nth-child(1) .map", 0.9, 0.1)
    page.wait("attention.spot[0] > 0.85")
    page.value(f"document.querySelector('{FULL} .map').focus()")
    for key in ("ArrowLeft", "ArrowDown", "PageDown"):
        page.press(key)
    settled(page, "i0_q700-500_m0.1.m_m1.0.m")
    (ring,) = page.value(f"[getComputedStyle(document.querySelector('{FULL} .map')).outlineStyle]")
    assert ring != "none", "focus is visible"
    page.value(
        f"document.querySelector('{FULL} .map').dispatchEvent("
        "new KeyboardEvent('keydown', { key: 'ArrowRight', shiftKey: true }))"
    )
    page.wait(
        f"document.querySelector('{FULL} .readout').textContent.startsWith('row 2, column 5')"
    )
    page.value(f"document.querySelector('{FULL} .multiples canvas').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.press(key)
    settled(page, "i0_q700-500_m0.2.1_m1.0.m")


@needs_browser
def test_small_maps_are_bright_where_attention_is_and_take_clicks(
    page: Page, result: Result
) -> None:
    show(page, "i0_q500-500_m0.0.m_m1.0.m")
    canvas = f"{FULL} .multiples canvas"
    page.show(canvas)
    page.wait(f"document.querySelector('{canvas}').dataset.painted")
    geometry = "(({ left, top, step, gap, w, h }) => ({ left, top, step, gap, w, h }))"
    view = "[...attention.views].find((each) => !each.compact)"
    box = page.value(f"{geometry}({view}.panes[0].layout)")
    layer, head, query = 2, 2, 3 + 1 * 5 + 2
    grid = share(result, LONG, layer, 0)[head, query, 3:]
    rows, columns = GRIDS[LONG]
    y, x = divmod(int(grid.argmax()), columns)
    left = box["left"] + (head + 1) * box["step"][0] + box["gap"] / 2
    top = box["top"] + layer * box["step"][1] + box["gap"] / 2
    place = left + (x + 0.5) * box["w"] / columns, top + (y + 0.5) * box["h"] / rows
    pixel = page.value(
        f"[...document.querySelector('{canvas}').getContext('2d')"
        f".getImageData({int(place[0])}, {int(place[1])}, 1, 1).data]"
    )
    brightest = [int(RAMPS["dark"][-1][i : i + 2], 16) for i in (1, 3, 5)]
    assert np.abs(np.array(pixel[:3]) - brightest).max() <= 1
    _, _, width, height = page.show(canvas)
    page.click(canvas, place[0] / width, place[1] / height)
    settled(page, "i0_q500-500_m0.2.2_m1.0.m")


@needs_browser
def test_the_state_is_a_string_that_comes_back(page: Page) -> None:
    assert page.value("attentionState()") == ""
    page.value(
        "window.heard = []; addEventListener('statechange', (e) => heard.push(e.detail.attention))"
    )
    text = "i1_q250-750_tclass-token_m1.1.0_m0.3.2_u"
    show(page, text)
    assert page.value("[attentionState(), heard]") == [text, [text]]
    page.click(f"{COMPACT} .thumbnail:nth-child(1)")
    settled(page, text.replace("i1", "i0"))
    assert page.value("heard.length") == 2
    start = page.value("attention.initial")
    for bad in ("", "i9_q5000000-2", "m7.0.0_x", "%%_<script>_m0..", "i-1_iNaN_q-5", "undefined"):
        page.value(f"setAttentionState({json.dumps(bad)})")
        settled(page, start)
    page.value("setAttentionState('m0.99.99')")
    settled(page, "i0_q500-500_m0.3.2")


@needs_browser
def test_only_some_models_are_offered(page: Page) -> None:
    show(page, "i0_q500-500_m0.1.2_m1.0.m")
    page.value("showAttentionModels(['plain', 'no such model'])")
    settled(page, "i0_q500-500_m1.0.m")
    options = f"[...document.querySelectorAll('{FULL} .which option:not([hidden])')]"
    assert page.value(f"{options}.map((each) => each.label)") == ["plain"]
    page.value("showAttentionModels([])")
    settled(page, "i0_q500-500_m0.1.2_m1.0.m")
    page.value(f"showAttentionModels(['{LONG}', 'plain'])")
    settled(page, "i0_q500-500_m0.1.2_m1.0.m")
    page.value("showAttentionModels(['a model without attention'])")
    settled(page, "i0_q500-500_m0.1.2_m1.0.m")


@needs_browser
def test_more_opens_the_full_explorer_with_the_same_state(page: Page) -> None:
    show(page, "i0_q500-500_m0.1.2_m1.0.m")
    page.value("document.querySelector('details').open = false")
    page.click(f"{COMPACT} .more")
    page.wait("document.querySelector('details').open")
    page.wait(f"document.activeElement === document.querySelector('{FULL} .map')")
    settled(page, "i0_q500-500_m0.1.2_m1.0.m")


@needs_browser
@pytest.mark.parametrize("width", [390, 560, 1440])
def test_nothing_overflows(tab: Page, path: Path, width: int, tmp_path: Path) -> None:
    tab.open(path, width, 1400, "dark")
    tab.value("document.querySelector('details').open = true")
    tab.wait(f"document.querySelector('{FULL}').dataset.state")
    tab.wait(f"document.querySelector('{COMPACT}').dataset.state")
    assert tab.value("document.documentElement.scrollWidth - innerWidth") <= 0
    boxes = tab.value(
        "[...document.querySelectorAll('.attention :is(select, button, p, li, output, .map)')]"
        ".map((each) => [each.className, each.getBoundingClientRect().right])"
    )
    assert max(right for _, right in boxes) <= width, boxes
    tab.picture(Path(os.environ.get("VITREOUS_SCREENSHOTS") or tmp_path) / f"explorer-{width}.png")


@needs_browser
def test_results_without_predictions_and_names_of_tokens(tab: Page, tmp_path: Path) -> None:
    made = maps()
    older = replace(made, about={k: v for k, v in made.about.items() if k != "predictions"})
    file = tmp_path / "older.html"
    file.write_text(explorer_page(older), encoding="utf-8")
    tab.said.clear()
    tab.open(file)
    tab.wait(f"document.querySelector('{COMPACT}').dataset.state")
    state = json.loads(tab.value(f"document.querySelector('{COMPACT}').dataset.state"))
    assert state["panes"][0]["model"] == VIT
    assert tab.value("document.querySelector('.prediction').hidden")
    assert words(tab, ".tokens button") == ["Prefix token"]
    said = words(tab, ".said")[0]
    assert said.startswith("This patch (row 3, column 3) attends most to row 1, column 2 (25.0 %).")
    assert OTHER in tab.value("attention.provider.models.map((each) => each.name)")
    assert tab.said == []


def test_photographs_are_small_and_heads_may_be_averaged() -> None:
    plain = maps(count=2)
    ramp = np.linspace(0, 255, 224).astype(np.uint8)
    photographs = np.broadcast_to(ramp[None, :, None, None], (2, 224, 160, 3))
    large = replace(plain, arrays={**plain.arrays, "images": photographs})
    assert len(attention.attention_data(large)) < len(attention.attention_data(plain)) + 20_000


def test_places_have_no_markup_from_names() -> None:
    for compact in (True, False):
        assert VIT not in attention.attention_viewer(maps(), compact)
        assert "<script>alert" not in attention.attention_data(maps())
