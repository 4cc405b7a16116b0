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
    SMALL,
    Live,
    Servers,
    chip,
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
from vitreous.explorer.opening import open_explorer
from vitreous.explorer.server import start

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


@pytest.mark.parametrize("panel", ["attention", "stream"])
def test_nothing_is_cut_on_a_phone(tab: Page, servers: Servers, shots: Path, panel: str) -> None:
    edits = "edit=0:off:blocks.1.attn&edit=0:box:blocks.3.attn&noise=0.5,0.1,0.1"
    visit(tab, f"{servers['nano'].url}#{edits}&panel={panel}", 390, 844)
    tab.picture(shots / f"live-nano-390-{panel}.png", whole=True)
    words = (
        ".chip .kind, .sentence, #inside figcaption, .card .name, .slider label, .buttons button"
    )
    cut = tab.value(
        f"[...document.querySelectorAll({json.dumps(words)})]"
        ".filter((each) => each.checkVisibility() && each.clientWidth"
        " && !each.closest('.unit:not([data-edits=\"\"])'))"  # a mark may take the room
        ".filter((each) => each.scrollWidth > each.clientWidth + 1"
        " || each.scrollHeight > each.clientHeight + 2).map((each) => each.innerText)"
    )
    assert cut == []
    assert tab.value("document.documentElement.scrollWidth") == 390


def test_long_names_of_classes_leave_room_for_the_shares(tab: Page) -> None:
    """And of two classes in one line both are seen."""
    long = [f"{number} {'a name of eighty letters ' * 3}" for number in range(10)]
    plain = vitreous.data.load("world:shapes", split="test", size=6)
    live = serve(["nano:vit"], data=replace(plain, classes=tuple(long)))
    try:
        for width in (1440, 390):
            visit(tab, f"{live.url}#edit=0:off:blocks.0.attn&edit=0:off:blocks.1.attn", width)
            outside = tab.value(
                "[...document.querySelectorAll('.card :is(.share, .was, .change, s, b, .wrong)')]"
                ".filter((each) => each.getBoundingClientRect().right >"
                " each.closest('.card').getBoundingClientRect().right"
                " || each.clientWidth === 0 && each.matches('s, b')).map((each) => each.className)"
            )
            assert outside == []
            assert tab.value("document.querySelectorAll('.verdict s').length") == 1
    finally:
        live.running.stop()


def test_what_is_shown_after_a_reload_is_the_same_to_the_pixel(tab: Page) -> None:
    """The address has four decimals, so the page has no more: the middle of a patch is where four
    patches of an earlier layer meet, and one of 7 rows has no middle of four decimals."""
    small = {**SMALL["swin"], "img_size": 56, "window_size": 7, "num_classes": 10}
    running = start(open_explorer(timm.create_model(**small), limit=4, image=56, device="cpu"))
    try:
        visit(tab, running.url)
        query = "document.querySelector('.pane').dataset.query"
        for place in (0.1, 0.3, 0.45, 0.7, 0.95):
            tab.click(chip("layers.1.blocks.0.attn"))
            tab.click("#picture", place, place)
            tab.drag("#picture", (0.03, 0.05), (place, place), shift=True)
            tab.click(chip("layers.0.blocks.0.attn"))
            settle(tab)
            seen = tab.value(query), shown_shares(tab)
            visit(tab, tab.value("location.href"))
            assert (tab.value(query), shown_shares(tab)) == seen
    finally:
        running.stop()


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
    tab.call("Page.navigate", url="about:blank")  # so that the page stops asking the server
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
