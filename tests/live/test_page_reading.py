"""The live page at every width and in both themes, its tour, hostile names, and what may break.

Set VITREOUS_SCREENSHOTS to keep screenshots.
"""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from urllib.request import urlopen

import pytest
import timm
import torch

import vitreous
from live.browsing import (
    Live,
    Servers,
    fragment,
    picture_file,
    serve,
    settle,
    shown_shares,
    text,
    visit,
)
from report.browser import Page, browser, found
from report.conftest import EVIL
from report.test_reading import axe_source

UNITS = {
    "nano": "blocks.1.attn",
    "vit and convnext": "blocks.1.attn",
    "swin and resnet": "layers.0.blocks.1.attn",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1920, 768])
def test_every_width_and_theme(
    tab: Page, servers: Servers, shots: Path, width: int, scheme: str
) -> None:
    """One view without scrolling; at 768 pixels the panels stack. Axe finds no barrier."""
    pairs = {1440: "vit and convnext", 1920: "swin and resnet", 768: "nano"}
    live = servers[pairs[width]]
    height = 900 if width == 1440 else 1080
    unit = UNITS[pairs[width]]
    visit(tab, f"{live.url}#edit=0:off:{unit}&noise=0.5,0.1,0.1", width, height, scheme)
    over = tab.value(
        "[document.documentElement.scrollWidth - innerWidth,"
        " document.documentElement.scrollHeight - innerHeight]"
    )
    assert over[0] <= 0
    assert over[1] <= 0 or width == 768
    outside = tab.value(
        "[...document.querySelectorAll('main button, main input, main canvas, main select')]"
        ".filter((each) => each.checkVisibility()).map((each) => [each.id || each.className,"
        " each.getBoundingClientRect()]).filter(([, box]) => box.right > innerWidth + 1 ||"
        " box.left < -1).map(([name]) => name)"
    )
    assert outside == []
    hidden = tab.value(
        "[...document.querySelectorAll('#jobs button, #sliders input, #force button')]"
        ".filter((each) => { const a = each.getBoundingClientRect();"
        " const b = each.closest('section').getBoundingClientRect();"
        " return a.bottom > b.bottom || a.right > b.right; }).map((each) => each.id)"
    )
    assert hidden == [], "cut off by its panel"
    for panel in ("attention", "stream"):
        tab.press("1" if panel == "attention" else "2")
        settle(tab)
        tab.picture(shots / f"live-{pairs[width]}-{width}-{scheme}-{panel}.png")
    source = axe_source()
    if source is None:
        pytest.skip("axe-core is not installed")
    tab.value(f"{source}; undefined")
    for act in (
        "undefined",
        "document.querySelector('#tour-button').click()",
        "document.querySelector('#help-button').click()",
    ):
        tab.value(act)
        violations = tab.value(
            "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map("
            "(each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html)}`))"
        )
        assert violations == [], "\n".join(violations)


def test_rows_of_long_paths_can_be_told_apart(tab: Page, servers: Servers) -> None:
    visit(tab, servers["nano"].url)
    names = {
        "blocks.11": "blocks.11", "layers.2.blocks.4": "2.4", "vit.layers.11": "layers.11",
        "vit.embeddings": "embeddings", "encoder.layers.encoder_layer_7": "…er_layer_7",
    }  # fmt: skip
    given = json.dumps(list(names))
    shown = tab.value(f"import('{servers['nano'].url}static/anatomy.js').then((it) => "
                      f"{given}.map(it.shortened))")  # fmt: skip
    assert dict(zip(names, shown, strict=True)) == names


def test_the_tour_begins_by_itself_once(tab: Page, servers: Servers) -> None:
    visit(tab, servers["nano"].url)
    assert not tab.value("document.querySelector('.tour')")
    tab.click("#tour-button")
    titles = []
    for _ in range(6):
        titles.append(text(tab, ".tour h2"))
        assert tab.value("document.querySelectorAll('.toured').length") == 1
        tab.value("document.querySelector('.tour .main').click()")
    assert len(set(titles)) == 6
    assert not tab.value("document.querySelector('.tour, .toured')")
    anew = "try { localStorage.removeItem('vitreous-tour'); } catch {}"
    added = tab.call("Page.addScriptToEvaluateOnNewDocument", source=anew)
    visit(tab, servers["nano"].url)
    tab.call("Page.removeScriptToEvaluateOnNewDocument", **added)
    assert text(tab, ".tour h2") == titles[0]
    tab.press("Escape")
    assert not tab.value("document.querySelector('.tour')")
    assert tab.value("localStorage.getItem('vitreous-tour')") == "seen"


def test_names_are_never_markup(tab: Page, tmp_path: Path) -> None:
    """Names of models, classes, data and files that would do harm if they were HTML."""
    plain = vitreous.data.load("world:shapes", split="test", size=12)
    classes = tuple(f"{name}{EVIL}" for name in plain.classes)
    data = replace(plain, classes=classes, name=f"data{EVIL}")
    model = timm.create_model("resnet18", num_classes=len(classes))
    live = serve({f"net{EVIL}<img src=x onerror=alert(1)>": model}, data=data)
    try:
        visit(tab, live.url)
        assert EVIL in text(tab, ".card .name")
        assert EVIL in text(tab, "#label")
        tab.choose_file("#file", picture_file(tmp_path, "<img src=x onerror=alert(2)>.png"))
        tab.wait("location.hash.includes('image=u')")
        settle(tab)
        assert text(tab, "#label") == "<img src=x onerror=alert(2)>.png"
        assert tab.value("document.querySelectorAll('main script, main img[onerror]').length") == 0
        broken = tmp_path / "<b>broken.png"
        broken.write_bytes(b"no picture at all")
        tab.choose_file("#file", broken)
        tab.wait("document.querySelector('#notes p')")
        assert "<b>broken.png" in text(tab, "#notes")
        assert "cannot be read" in text(tab, "#notes")
        tab.value("1")
        tab.said[:] = [line for line in tab.said if "status of 422" not in line]
    finally:
        live.running.stop()


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_images_can_be_dropped_and_pasted(tab: Page, servers: Servers, way: str) -> None:
    visit(tab, servers["nano"].url)
    event = {
        "drop": "new DragEvent('drop', { dataTransfer: moved, bubbles: true, cancelable: true })",
        "paste": "new ClipboardEvent('paste', { clipboardData: moved, bubbles: true })",
    }
    tab.value(
        "(async () => { const canvas = new OffscreenCanvas(40, 30);"
        " canvas.getContext('2d').fillRect(5, 5, 20, 10); const moved = new DataTransfer();"
        f" moved.items.add(new File([await canvas.convertToBlob()], '{way}ped.png'));"
        f" document.querySelector('#plate').dispatchEvent({event[way]}); }})()"
    )
    tab.wait("location.hash.includes('image=u')")
    settle(tab)
    assert text(tab, "#label") == f"{way}ped.png"
    assert len(shown_shares(tab)) == 5


def test_a_model_without_scores_says_so(tab: Page) -> None:
    live = serve({"features": timm.create_model("resnet18", num_classes=0)}, images=4)
    try:
        visit(tab, f"{live.url}#unit=0:layer2.0")
        tab.press("o")
        settle(tab)
        assert "score" in text(tab, ".card .verdict")
        assert shown_shares(tab) == {}
        # timm begins with residual branches that are zero
        assert "not changed by the edits" in text(tab, ".stream .caption")
    finally:
        live.running.stop()


def test_from_exploring_to_measuring_until_the_server_has_gone(tab: Page, tmp_path: Path) -> None:
    """The cost of an edit, the view as a report and as Python, and then nobody answers."""
    live = serve(["nano:resnet"], images=12, folder=tmp_path)
    try:
        visit(tab, f"{live.url}#unit=0:stages.1.1.convs")
        assert tab.value("document.querySelector('#tab-attention').disabled")
        assert fragment(tab)["panel"] == ["stream"], "a model without attention opens on its stream"
        assert tab.value("document.querySelector('#measure').disabled"), "nothing costs nothing"
        tab.press("o")
        tab.click("#measure")
        tab.wait("document.querySelector('#job .result')")
        check_cost(tab, live, "stages.1.1.convs")
        check_python(tab, live, "stages.1.1.convs")
        tab.click("#report")
        tab.wait("document.querySelector('#job progress')")
        tab.click("#job button")
        tab.wait("document.querySelector('#job').innerText.includes('Cancelled')")
        tab.click("#report")
        tab.wait("document.querySelector('#job a')")
        [file] = tmp_path.glob("*.html")
        assert "without stages.1.1.convs" in file.read_text(), "the edits are in the provenance"
        assert tab.value("document.querySelector('#job a').href").startswith(live.url)
    finally:
        live.running.stop()
    tab.press(".")
    tab.wait("document.querySelector('.lost')")
    assert "does not answer" in text(tab, ".lost")
    tab.value("1")
    tab.said[:] = [line for line in tab.said if "ERR_CONNECTION" not in line]


@torch.no_grad()
def check_cost(tab: Page, live: Live, unit: str) -> None:
    """Accuracy before and after is counted over all images."""
    subject, data = live.subject(0), live.explorer.data
    images = subject.prepare(data.images)
    for when, specimen in (("before", subject.specimen), ("after", subject.specimen.without(unit))):
        right = float((specimen(images).argmax(1) == data.labels).double().mean())
        shown = float(tab.value(f"document.querySelector('#job .result').dataset.{when}"))
        assert shown == pytest.approx(right)
    assert re.search(r"\d+\.\d points", text(tab, "#job .result"))


def check_python(tab: Page, live: Live, unit: str) -> None:
    """The code runs as it is, and prints what the page shows."""
    tab.click("#python")
    tab.wait("document.querySelector('dialog pre')")
    printed = StringIO()
    with redirect_stdout(printed):
        exec(tab.value("document.querySelector('dialog pre').textContent"), {})
    tab.press("Escape")
    shares = re.findall(r"\d\.\d+(?:e-\d+)?", printed.getvalue())
    shown = sorted((after for *_, after in shown_shares(tab).values()), reverse=True)
    assert float(shares[0]) == pytest.approx(shown[0], abs=2e-4)


def test_a_killed_browser_leaves_the_server_alive(servers: Servers) -> None:
    program = found()
    if program is None:
        pytest.skip("There is no Chromium on this machine to open the page with.")
    live = servers["nano"]
    with pytest.raises(AssertionError, match="The browser has gone"):
        kill_while_sliding(program, live.url)
    with urlopen(f"{live.url}api/session") as answer:
        assert json.load(answer)["models"][0]["name"] == "nano:vit"


def kill_while_sliding(program: str, url: str) -> None:
    with browser(program) as page:
        visit(page, url)
        page.value(
            "for (let i = 0; i < 40; i++) { const slider = document.querySelector('#strength');"
            " slider.value = i / 80; slider.dispatchEvent(new Event('input')); }"
        )
        os.kill(page.process, signal.SIGKILL)
        page.wait("false")
