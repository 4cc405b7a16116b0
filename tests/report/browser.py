"""A headless Chromium on a pipe, with the standard library: open a file or an address, click, drag,
press, hover, choose files, take pictures."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--hide-scrollbars", "--disable-extensions", "--disable-background-networking",
    "--disable-component-update", "--remote-debugging-pipe",
)  # fmt: skip
KEY_CODES = {"Escape": 27, "Tab": 9}
LAUNCH = """
import os, sys
from fcntl import F_DUPFD, fcntl
there, back = (fcntl(int(each), F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(there, 3)
os.dup2(back, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Becomes the browser, with our two pipes where it expects them."""


def found() -> str | None:
    """The browser of this machine, if it has one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab. Everything it says on its console, and every request it makes, is kept."""

    def __init__(self, send: int, receive: int) -> None:
        self.send, self.receive = send, receive
        self.rest, self.number, self.session = b"", 0, ""
        self.process = 0
        """The number of the browser's process."""
        self.said: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        try:
            os.write(self.send, json.dumps(message).encode() + b"\0")
        except BrokenPipeError as error:
            raise AssertionError("The browser has gone.") from error
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            more = os.read(self.receive, 1 << 20)
            assert more, "The browser has gone."
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        about = event.get("params", {})
        if event.get("method") == "Log.entryAdded":
            self.said.append(about["entry"]["text"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.said.append(
                json.dumps(about["exceptionDetails"].get("exception", {}).get("description", about))
            )
        elif event.get("method") == "Runtime.consoleAPICalled" and about["type"] in (
            "error",
            "warning",
        ):
            self.said.append(
                " ".join(str(each.get("value", each.get("description"))) for each in about["args"])
            )
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    def open(
        self, path: Path | str, width: int = 1280, height: int = 900, scheme: str = "light"
    ) -> None:
        """Open a file, or an address given as a string."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        url = path if isinstance(path, str) else path.resolve().as_uri()
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def value(self, expression: str) -> Any:
        """What an expression comes to; promises are waited for."""
        got = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in got, f"{expression}: {got['exceptionDetails']}"
        return got["result"].get("value")

    def wait(self, expression: str, seconds: float = 60) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < end, (
                f"After {seconds} s still not: {expression}. The page said {self.said}"
            )
            time.sleep(0.01)

    def show(self, selector: str) -> tuple[float, float, float, float]:
        """Scroll to an element; its left, top, width and height in the window."""
        self.value(
            f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block:'center',behavior:'instant'}})"
        )
        box: list[float] = self.value(
            f"(() => {{ const b = "
            f"document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.left, b.top, b.width, b.height]; })()"
        )
        return box[0], box[1], box[2], box[3]

    def hover(self, x: float, y: float) -> None:
        for dx in (-2, 0):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + dx, y=y)

    def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        left, top, width, height = self.show(selector)
        x, y = left + across * width, top + down * height
        self.hover(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(
        self,
        selector: str,
        begin: tuple[float, float],
        end: tuple[float, float],
        shift: bool = False,
    ) -> None:
        """Press at one place of an element, move to another and let go; places across and down."""
        left, top, width, height = self.show(selector)
        held = {"button": "left", "buttons": 1, "modifiers": 8 if shift else 0}
        places = [(left + across * width, top + down * height) for across, down in (begin, end)]
        for kind, (x, y) in (
            ("mousePressed", places[0]), ("mouseMoved", places[0]), ("mouseMoved", places[1]),
            ("mouseReleased", places[1]),
        ):  # fmt: skip
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, clickCount=1, **held)

    def choose_file(self, selector: str, path: Path) -> None:
        """Hand a file to an input, as its dialog would."""
        root = self.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press a key; `modifiers` adds up 1 for Alt, 2 for Ctrl, 4 for Meta and 8 for Shift."""
        event = {"key": key, "code": key, "modifiers": modifiers}
        if key in KEY_CODES:  # what the browser itself does needs a number
            event["windowsVirtualKeyCode"] = KEY_CODES[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **event)

    def picture(self, path: Path, whole: bool = False) -> Path:
        """A screenshot of the window, or of the page from top to bottom."""
        path.parent.mkdir(parents=True, exist_ok=True)
        got = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(got["data"]))
        return path


@contextmanager
def browser(program: str) -> Iterator[Page]:
    """A browser of our own, with a profile that is thrown away. It listens on descriptor 3 and
    answers on 4."""
    there, send = os.pipe()
    receive, back = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            sys.executable,
            "-c",
            LAUNCH,
            str(there),
            str(back),
            program,
            *OPTIONS,
            f"--user-data-dir={profile}",
        ]
        quiet = subprocess.DEVNULL
        running = subprocess.Popen(command, pass_fds=(there, back), stdout=quiet, stderr=quiet)
        os.close(there)
        os.close(back)
        try:
            page = Page(send, receive)
            page.process = running.pid
            yield page
            page.session = ""
            page.call("Browser.close")
            running.wait(timeout=20)
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
            os.close(send)
            os.close(receive)
