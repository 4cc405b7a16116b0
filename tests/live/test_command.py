"""`vitreous live`: from the command line to the page, and back by Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest

from vitreous import cli
from vitreous.cli import launch
from vitreous.commands import live
from vitreous.explorer.server import bind


def test_from_start_to_ctrl_c_in_the_middle_of_a_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def browse(url: str) -> None:
        body = {"image": "d0", "edits": [{"unit": "blocks.0.attn", "what": "off"}]}
        try:
            with httpx2.Client(trust_env=False, base_url=url) as client:
                seen.append(client.get("api/session").json()["models"][0]["name"])
                job = client.post("api/measure", json=body).json()["job"]
                while not client.get(f"api/jobs/{job}").json()["done"]:
                    time.sleep(0.01)
        finally:
            os.kill(os.getpid(), signal.SIGINT)  # as a terminal does, to the whole process

    def open_browser(url: str) -> None:
        threading.Thread(target=browse, args=(url,)).start()

    monkeypatch.setattr("webbrowser.open", open_browser)
    monkeypatch.setattr("gc.freeze", lambda: None)  # other tests go on in this process
    words = ["live", "nano:vit", "--limit", "64", "--open", "--out", str(tmp_path / "new")]
    others = set(threading.enumerate())  # pages of other tests are still served
    assert launch(*words) == 130
    assert seen == ["nano:vit"]
    printed = capsys.readouterr()
    assert "Explore nano:vit at\nhttp://127.0.0.1:" in printed.out
    assert "Ctrl-C stops it." in printed.out
    assert printed.err.strip() == "Stopped."
    assert not any("vitreous" in each.name for each in set(threading.enumerate()) - others)
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nano:vit", "nano:resnet", "nano:convit"], "3 models were given; the page has room"),
        (["nano:vitt"], "There is no"),
        (["nano:vit", "--data", "nowhere"], "nowhere"),
        (["nano:vit", "--mean", "0.5"], "mean is set without std"),
        (["nano:vit", "--classes", "none.txt"], "There is no file 'none.txt'"),
        (["nano:vit", "--weights", "a.pth", "b.pth", "c.pth"], "a.pth"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_before_anything_is_loaded(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launch("live", *words) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("port", [0, 99999, -1])
def test_a_port_that_cannot_be_used_is_reported_before_models_are_opened(
    port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "_open", None)
    with closing(bind(0)) as taken:
        wanted = port or taken.getsockname()[1]
        assert launch("live", "nano:vit", "--port", str(wanted)) == 2
    says = "ddress already in use" if port == 0 else "ports are numbers from 0 to 65535"
    assert f"{says}. Choose another one with --port" in capsys.readouterr().err


def test_what_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        live, "find_spec", lambda name: None if name == "uvicorn" else find_spec(name)
    )
    assert launch("live", "nano:vit") == 2
    assert "needs uvicorn, which is not installed; pip install" in capsys.readouterr().err


def test_the_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    cli.app(["live", "--help"], **cli.HOW)
    text = capsys.readouterr().out
    assert "Example: vitreous live nano:vit nano:resnet --open" in text
    for option in ("--port", "--open", "--out", "--weights", "--mean", "--data"):
        assert option in text
    assert "starlette" not in vars(sys.modules["vitreous.commands.live"])
