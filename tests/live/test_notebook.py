"""`vitreous.live`: the page in a cell, served once."""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from torch import nn

import vitreous
from live.browsing import settle
from report.browser import Page
from vitreous.errors import VitreousError
from vitreous.explorer.notebook import LivePage
from vitreous.models.loading import load_model


@pytest.fixture(scope="module")
def page() -> Iterator[LivePage]:
    shown = vitreous.live("nano:resnet", "world:shapes", limit=6, height=640)
    yield shown
    shown.stop()


def session(page: LivePage) -> Any:
    with urlopen(f"{page.url}api/session") as answer:
        return json.load(answer)


def test_a_cell_shows_the_page_in_a_frame(page: LivePage) -> None:
    html = page._repr_html_()
    assert re.fullmatch(r"<iframe .*></iframe>", html)
    assert f'src="{page.url}"' in html
    assert 'height="640"' in html
    found = session(page)
    assert [model["name"] for model in found["models"]] == ["nano:resnet"]
    assert found["of"] == 6


def test_the_same_call_starts_no_second_server(page: LivePage) -> None:
    again = vitreous.live("nano:resnet", "world:shapes", limit=6, height=500)
    assert again is page
    assert 'height="500"' in again._repr_html_()


def test_a_module_is_opened_anew_and_its_old_page_ends() -> None:
    """It may have been trained since."""
    model = load_model("nano:resnet")
    assert isinstance(model, nn.Module)
    first = vitreous.live({"mine<b>": model}, limit=4)
    second = vitreous.live({"mine<b>": model}, limit=4)
    try:
        assert second is not first
        assert (first.alive, second.alive) == (False, True)
        assert "no longer served" in first._repr_html_()
        assert "<b>" not in second._repr_html_()
        assert session(second)["models"][0]["name"] == "mine<b>"
    finally:
        second.stop()
        second.stop()
    with pytest.raises(URLError):
        urlopen(second.url)


def test_notebooks_of_this_machine_may_frame_it_and_others_may_not(page: LivePage) -> None:
    headers = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "iframe",
    }
    with urlopen(Request(page.url, headers=headers)) as answer:
        ancestors = answer.headers["content-security-policy"].rpartition("frame-ancestors ")[2]
    assert "http://localhost:*" in ancestors
    assert not {"*", "http:", "https:"} & set(ancestors.split())


def test_a_page_of_another_port_shows_it(tab: Page, page: LivePage, tmp_path: Path) -> None:
    """As JupyterLab does, which has another origin and another name of this machine."""
    (tmp_path / "notebook.html").write_text(
        f'<title>Notebook</title><link rel="icon" href="data:,">{page._repr_html_()}'
    )
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        tab.open(f"http://localhost:{server.server_port}/notebook.html")
        with frame_of(tab, page.url):
            settle(tab)
            assert tab.value("document.querySelectorAll('.card li').length") == 5
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def frame_of(tab: Page, url: str) -> Iterator[None]:
    """Talk to a frame of another site, which has a process of its own."""
    outer = tab.session
    targets = tab.call("Target.getTargets")["targetInfos"]
    [frame] = [each["targetId"] for each in targets if each["url"].startswith(url)]
    tab.session = tab.call("Target.attachToTarget", targetId=frame, flatten=True)["sessionId"]
    yield
    tab.session = outer


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_starlette(name: str, *rest: Any) -> Any:
        if name == "vitreous.explorer.server":
            raise ModuleNotFoundError("No module named 'starlette'", name="starlette")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_starlette)
    with pytest.raises(VitreousError, match=r"needs starlette.*pip install 'vitreous\[live\]'"):
        vitreous.live("nano:resnet", limit=4)


@pytest.mark.parametrize("height", [0, -5, 10**6])
def test_a_height_without_sense_is_refused(height: int) -> None:
    with pytest.raises(VitreousError, match="height"):
        vitreous.live("nano:resnet", height=height)
