"""The live page as its readers use it, in a browser: what it shows is what the Python API gives.

Set VITREOUS_SCREENSHOTS to keep screenshots.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from live.browsing import (
    PAIRS,
    Live,
    Servers,
    check_shares,
    chip,
    fragment,
    picture_file,
    settle,
    shares,
    shown_shares,
    slide,
    text,
    visit,
)
from report.browser import Page
from vitreous.explorer.state import parse_changes

STEPS = {
    "nano": ("blocks.1.attn", "blocks.3.mlp"),
    "vit and convnext": ("blocks.1.attn", "blocks.2.mlp"),
    "swin and resnet": ("layers.0.blocks.1.attn", "layers.1.blocks.0.mlp"),
}
"""Two units of the first model of each pair."""


@pytest.mark.parametrize("pair", PAIRS)
def test_a_session_from_first_click_to_shared_address(
    tab: Page, servers: Servers, pair: str, tmp_path: Path
) -> None:
    """Select, click, edit two units, slide, upload, undo; the address brings all of it back."""
    live = servers[pair]
    first, second = STEPS[pair]
    visit(tab, live.url)
    subject = live.subject(0)
    plain = live.prepared(0, 0)
    whole = shares(subject.specimen, plain)
    check_shares(tab, 0, whole, whole)

    tab.click(chip(first))
    tab.click("#picture", 0.3, 0.8)
    settle(tab)
    rows, columns = subject.specimen.anatomy[first].grid or (0, 0)
    row, column = int(0.8 * rows), int(0.3 * columns)
    asked = [float(each) for each in fragment(tab)["query"][0].split(",")]
    assert asked == pytest.approx([(row + 0.5) / rows, (column + 0.5) / columns], abs=1e-4)
    check_attention(tab, live, first, (row, column))

    tab.press("o")
    check_shares(tab, 0, whole, shares(subject.specimen.without(first), plain))
    tab.click(chip(second))
    tab.press("o")
    edited = subject.specimen.without(first).without(second)
    check_shares(tab, 0, whole, shares(edited, plain))
    assert "mirrored" in text(tab, "#edits")

    slide(tab, "strength", 0.05, 0.1, 0.2)
    slide(tab, "frequency", 0.3)
    noise = {"frequency": 0.3, "width": 0.1, "strength": 0.2}
    model = live.explorer.models[0]
    noisy = subject.prepare(
        model.pixels(live.explorer.pictures["d0"], parse_changes({"noise": noise}))
    )
    check_shares(tab, 0, whole, shares(edited, noisy), shares(subject.specimen, noisy))

    tab.choose_file("#file", picture_file(tmp_path, "my photo.png"))
    tab.wait("location.hash.includes('image=u')")
    assert text(tab, "#label") == "my photo.png"
    for _ in range(2):  # both sliders
        tab.press("z", modifiers=2)
    upload = subject.prepare(model.frame(open_picture(tmp_path / "my photo.png")))
    check_shares(tab, 0, shares(subject.specimen, upload), shares(edited, upload))
    tab.press("z", modifiers=2)
    check_shares(
        tab, 0, shares(subject.specimen, upload), shares(subject.specimen.without(first), upload)
    )

    state, numbers = fragment(tab), [shown_shares(tab, each) for each in (0, 1)]
    visit(tab, tab.value("location.href"))
    assert fragment(tab) == state
    assert [shown_shares(tab, each) for each in (0, 1)] == numbers
    assert tab.value(f"document.querySelector({json.dumps(chip(second))}).ariaPressed") == "true"


def open_picture(path: Path) -> Any:
    from vitreous.data.photo import read_photo

    return read_photo(path)


def check_attention(tab: Page, live: Live, unit: str, cell: tuple[int, int]) -> None:
    """The enlarged map is the mean over heads of the attention that the patch has."""
    specimen = live.subject(0).specimen
    attention = specimen.observe(live.prepared(0, 0), ("attention",), [unit])[unit].attention
    assert attention is not None
    dense = attention.probabilities.dense()[0].mean(0)
    grid = attention.query_grid
    row = dense[attention.prefix + cell[0] * grid[1] + cell[1]][attention.prefix :]
    pane = '.pane[data-model="0"]'
    shown = tab.value(f"Object.assign({{}}, document.querySelector('{pane}').dataset)")
    assert (shown["unit"], shown["head"], shown["query"]) == (unit, "-1", f"{cell[0]},{cell[1]}")
    assert float(shown["most"]) == pytest.approx(float(row.max()), rel=1e-5)


def test_the_keyboard_alone(tab: Page, servers: Servers) -> None:
    live = servers["nano"]
    visit(tab, live.url)
    tab.value(f"document.querySelector({json.dumps(chip('blocks.3.attn'))}).focus()")
    for key in ("ArrowDown", "ArrowRight"):
        tab.press(key)
    assert fragment(tab)["unit"] == ["0:blocks.4.mlp"]
    tab.press("Enter")
    items = (
        "[...document.querySelectorAll('[role=menuitemcheckbox]')].map((each) => each.innerText)"
    )
    assert [item.split()[0] for item in tab.value(items)] == ["Switch", "Remove"]
    tab.press("ArrowDown")
    tab.press("s")
    settle(tab)
    assert fragment(tab)["edit"] == ["0:skip:blocks.4.mlp"]
    assert tab.value(f"document.activeElement.matches({json.dumps(chip('blocks.4.mlp'))})")
    specimen, plain = live.subject(0).specimen, live.prepared(0, 0)
    whole = shares(specimen, plain)
    check_shares(tab, 0, whole, shares(specimen.without_skip("blocks.4.mlp"), plain))
    for key, modifiers, edits in (("z", 2, 0), ("z", 10, 1), ("r", 0, 0), ("u", 0, 0)):
        tab.press(key, modifiers)
        assert len(fragment(tab).get("edit", [])) == edits, (key, "an MLP has no attention")
    tab.value(f"document.querySelector({json.dumps(chip('stages.1.0.convs', 1))}).focus()")
    tab.press("o")
    assert fragment(tab)["edit"] == ["1:off:stages.1.0.convs"], "the unit that has the focus"
    tab.press("r")
    tab.click(chip("blocks.3.attn"))
    tab.value("document.querySelector('#picture').focus()")
    tab.press("ArrowRight")
    assert fragment(tab)["query"] == ["0.5625,0.6875"]
    tab.press("x")
    assert fragment(tab)["box"] == ["0.5,0.625,0.625,0.75"]
    for key, part in (
        ("c", "query=class"),
        ("2", "panel=stream"),
        (".", "image=d1"),
        (",", "image=d0"),
    ):
        tab.press(key)
        assert part in tab.value("location.hash")
    tab.press("?")
    assert "switch the chosen unit off" in text(tab, "dialog")
    tab.press("o")
    tab.press("Escape")
    tab.wait("!document.querySelector('dialog')")
    assert "edit" not in fragment(tab), "the page behind a dialog does not react"
    settle(tab)


def test_every_edit_of_attention_is_what_the_api_gives(tab: Page, servers: Servers) -> None:
    live = servers["nano"]
    visit(tab, f"{live.url}#unit=0:blocks.2.attn")
    specimen, plain = live.subject(0).specimen, live.prepared(0, 0)
    whole, unit = shares(specimen, plain), "blocks.2.attn"
    means = specimen.mean_attention([live.subject(0).prepare(live.explorer.data.images)])
    for key, attention in (("u", "uniform"), ("b", "uniform 3x3")):
        tab.press(key)
        check_shares(tab, 0, whole, shares(specimen.with_attention(unit, attention), plain))
        assert len(fragment(tab)["edit"]) == 1, "attention is replaced in one way"
    tab.press("m")
    check_shares(tab, 0, whole, shares(specimen.with_attention(unit, means), plain))
    assert text(tab, '.unit[data-unit="blocks.2.attn"] .mark') == "mean"


def test_two_models_mirror_edits_until_mirroring_is_off(tab: Page, servers: Servers) -> None:
    live = servers["nano"]
    visit(tab, f"{live.url}#unit=0:blocks.3.mlp")
    tab.press("o")
    settle(tab)
    [mirrored] = tab.value(
        "[...document.querySelectorAll('.unit.mirrored')].map((each) => each.dataset.unit)"
    )
    other = live.subject(1).specimen
    depth = live.subject(0).specimen.anatomy["blocks.3.mlp"].depth
    gaps = {unit.name: abs(unit.depth - depth) for unit in other.units if unit.skip}
    assert gaps[mirrored] == min(gaps.values())
    plain = live.prepared(1, 0)
    whole = shares(other, plain)
    check_shares(tab, 1, whole, shares(other.without(mirrored), plain))
    tab.click("#mirror")
    check_shares(tab, 1, whole, whole)
    agree = text(tab, "#together")
    tops = [text(tab, f'.card[data-model="{i}"] .verdict b') for i in (0, 1)]
    assert ("Both say" in agree) == (tops[0] == tops[1])


def test_dragging_occludes_and_everything_can_be_taken_back(tab: Page, servers: Servers) -> None:
    live = servers["nano"]
    visit(tab, live.url)
    first = fragment(tab)
    tab.drag("#picture", (0.25, 0.5), (0.75, 1.0), shift=True)
    settle(tab)
    [box] = fragment(tab)["box"]
    assert [float(side) for side in box.split(",")] == pytest.approx([0.5, 0.25, 1, 0.75], abs=0.01)
    slide(tab, "low_pass", 0.5)
    tab.value(
        "((select) => { select.value = 'fog'; select.dispatchEvent(new Event('change')); })"
        "(document.querySelector('#corruption'))"
    )
    slide(tab, "severity", 5)
    assert fragment(tab)["corruption"] == ["fog,5"]
    lines = text(tab, "#edits")
    for words in ("one box is occluded", "below 50 %", "fog, severity 5"):
        assert words in lines
    changes = {"boxes": [[float(each) for each in box.split(",")]], "low_pass": 0.5,
               "corruption": {"name": "fog", "severity": 5}}  # fmt: skip
    model, plain = live.explorer.models[0], live.prepared(0, 0)
    pixels = model.pixels(live.explorer.pictures["d0"], parse_changes(changes))
    specimen = live.subject(0).specimen
    check_shares(tab, 0, shares(specimen, plain), shares(specimen, live.subject(0).prepare(pixels)))
    tab.click("#edits .remove[aria-label*=occluded]")
    assert "box" not in fragment(tab)
    tab.click("#clear")
    settle(tab)
    assert fragment(tab) == first
    for _ in range(6):
        tab.press("z", modifiers=2)
    tab.press("z", modifiers=10)
    assert "box" in fragment(tab), "the first thing done is done again first"


def test_the_back_button_returns_to_the_previous_place(tab: Page, servers: Servers) -> None:
    live = servers["nano"]
    visit(tab, f"{live.url}#image=d2")
    tab.press("2")
    tab.press(".")
    tab.press("o")
    settle(tab)
    for gone, there in (
        ("edit=", "image=d3"),
        ("image=d3", "panel=stream"),
        ("panel=stream", "image=d2"),
    ):
        tab.value("history.back()")
        tab.wait(f"!location.hash.includes('{gone}')")
        settle(tab)
        assert there in tab.value("location.hash")
    pressed = "document.querySelector('.thumbnail[aria-pressed=true]')"
    assert tab.value(f"[...document.querySelectorAll('.thumbnail')].indexOf({pressed})") == 2
    assert (
        tab.value("document.querySelector('[role=tab][aria-selected=true]').dataset.panel")
        == "attention"
    )


@pytest.mark.parametrize(
    "bad",
    [
        "image=d999", "query=7,8", "query=%00", "unit=0:nothing", "unit=9:head", "edit=0:off:<b>",
        "edit=0:melt:head", "noise=1,2,3", "low_pass=x", "box=0.5,0.5,0.1,0.1", "panel=evil",
        "corruption=rain,9",
    ],
)  # fmt: skip
def test_an_address_that_does_not_fit_shows_a_note(tab: Page, servers: Servers, bad: str) -> None:
    visit(tab, f"{servers['nano'].url}#{bad}")
    assert "do not fit" in text(tab, "#notes")
    name = bad.partition("=")[0]
    start = {
        "image": ["d0"],
        "query": ["0.5,0.5"],
        "unit": ["0:blocks.3.attn"],
        "panel": ["attention"],
    }
    assert fragment(tab).get(name) == start.get(name)


def test_a_slider_that_moves_fast_ends_where_it_was_let_go(tab: Page, servers: Servers) -> None:
    live = servers["nano"]
    visit(tab, live.url)
    tab.requests.clear()
    slide(tab, "high_pass", *(0.01 * step for step in range(1, 61)))
    model = live.explorer.models[0]
    pixels = model.pixels(live.explorer.pictures["d0"], parse_changes({"high_pass": 0.6}))
    specimen = live.subject(0).specimen
    after = shares(specimen, live.subject(0).prepare(pixels))
    check_shares(tab, 0, shares(specimen, live.prepared(0, 0)), after)
    views = [each for each in tab.requests if each.endswith("api/view")]
    assert len(views) < 61, "what is stale is not asked for"
    tab.press("z", modifiers=2)
    settle(tab)
    assert "high_pass" not in fragment(tab), "one movement is one step"
    slide(tab, "low_pass", 0.5, 1)
    assert tab.value("document.querySelector('#undo').disabled"), "there and back is no step"


def test_what_is_stale_is_aborted(tab: Page, servers: Servers) -> None:
    """Of two edits in one breath the first request is given up, and the second is shown."""
    live = servers["nano"]
    visit(tab, f"{live.url}#unit=0:blocks.2.attn")
    press = "dispatchEvent(new KeyboardEvent('keydown', { key: '%s' }))"
    aborted = tab.value(
        "(() => { const signals = []; const real = window.fetch; window.fetch = (url, options) => {"
        " if (url === 'api/view') signals.push(options.signal); return real(url, options); };"
        f" {press % 'o'}; {press % 's'}; return signals.map((each) => each.aborted); }})()"
    )
    assert aborted == [True, False]
    specimen, plain = live.subject(0).specimen, live.prepared(0, 0)
    edited = specimen.without("blocks.2.attn").without_skip("blocks.2.attn")
    check_shares(tab, 0, shares(specimen, plain), shares(edited, plain))


def test_small_maps_enlarge_under_the_pointer_and_can_be_chosen(
    tab: Page, servers: Servers
) -> None:
    live = servers["nano"]
    visit(tab, live.url)
    left, top, width, height = tab.show(".maps")
    step = width / 6
    for layer, down in ((1, 0.25), (4, 0.65)):
        tab.hover(left + (layer + 0.2) * step, top + down * height)
        pane = tab.value("Object.assign({}, document.querySelector('.pane').dataset)")
        assert pane["unit"] == f"blocks.{layer}.attn"
        assert pane["head"] == ("-1" if down < 0.5 else "0")
    tab.click(".maps", 4.2 / 6, 0.65)
    assert (fragment(tab)["unit"], fragment(tab)["head"]) == (["0:blocks.4.attn"], ["0"])
    seen = live.subject(0).specimen.observe(live.prepared(0, 0), ("attention",), ["blocks.4.attn"])
    attention = seen["blocks.4.attn"].attention
    assert attention is not None
    row = attention.probabilities.dense()[0, 0][attention.prefix + 4 * 8 + 4, attention.prefix :]
    most = float(tab.value("document.querySelector('.pane').dataset.most"))
    assert most == pytest.approx(float(row.max()), rel=1e-5)
    assert percent_of(tab, ".sentence", float(row.max()))
    tab.press("o")
    settle(tab)
    assert "attends to nothing" in text(tab, ".sentence")


def percent_of(tab: Page, selector: str, share: float) -> bool:
    return f"{100 * share:.1f} %" in text(tab, selector)


def test_streams_and_rollout_are_drawn(tab: Page, servers: Servers, shots: Path) -> None:
    live = servers["nano"]
    visit(tab, f"{live.url}#panel=stream&unit=0:blocks.4.mlp&edit=0:off:blocks.2.attn")
    units = tab.value(
        "[...document.querySelectorAll('.pane.stream')].map((each) => each.dataset.unit)"
    )
    assert units[0] == "blocks.4.mlp"
    assert len(units) == 2
    assert tab.value("document.querySelectorAll('.stream canvas').length") == 8, "before and after"
    norms = live.subject(0).specimen.observe(live.prepared(0, 0), ("out",), ["blocks.4.mlp"])
    after = (
        live.subject(0)
        .specimen.without("blocks.2.attn")
        .observe(live.prepared(0, 0), ("out",), ["blocks.4.mlp"])
    )
    features = [each["blocks.4.mlp"].out for each in (norms, after)]
    both = torch.stack([each.map.norm(dim=1) for each in features if each is not None])
    shown = text(tab, ".pane.stream .caption").rpartition("norm ")[2].split(" to ")
    assert [float(each) for each in shown] == pytest.approx(
        [float(both.min()), float(both.max())], rel=0.06
    )
    tab.press("3")
    settle(tab)
    assert tab.value("document.querySelectorAll('.pane.attention').length") == 1
    assert "attention" in text(tab, ".reason")
