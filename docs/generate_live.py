"""Film the live explorer for the README: live.webp.

    python docs/generate_live.py

Needs Chromium. A pointer and a caption are drawn into the page; everything else is the page itself,
with two of the bundled models. Frames differ in length, so that a still second costs nothing.
"""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from vitreous.explorer.opening import open_explorer
from vitreous.explorer.server import start

HOME = Path(__file__).parent
sys.path.insert(0, str(HOME.parent / "tests"))  # the driver of the browser, which tests need, too

from report.browser import Page, browser, found  # noqa: E402

WIDTH, HEIGHT, SCALE, BELOW = 1120, 820, 1.2857, 50
"""Of the window, the pixels of the film for each of its pixels, and its room for the caption."""
IMAGE = "d11"
"""An image of the bundled world, on which both models are right at first."""
MOVE, STEP = 40, 6
"""Milliseconds of a frame while the pointer moves, and frames of a movement."""
MOST = 2_000_000
"""Bytes of the film."""
STAGE = """
(() => {
  const pointer = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  pointer.setAttribute("viewBox", "0 0 16 22");
  const arrow = document.createElementNS("http://www.w3.org/2000/svg", "path");
  arrow.setAttribute("d", "M1 1V17L5 13.2L7.6 19.6L10.6 18.4L8 12.2H14Z");
  arrow.setAttribute("fill", "#111");
  arrow.setAttribute("stroke", "#fff");
  arrow.setAttribute("stroke-width", "1.5");
  pointer.append(arrow);
  Object.assign(pointer.style, {
    position: "fixed", width: "22px", zIndex: 99, left: "0", top: "0", pointerEvents: "none",
  });
  const caption = document.createElement("div");
  Object.assign(caption.style, {
    position: "fixed", inset: "auto 0 0", height: "BELOWpx", zIndex: 98,
    background: "#14171C", color: "#fff", font: "600 24px/BELOWpx system-ui, sans-serif",
    textAlign: "center",
  });
  document.body.append(pointer, caption);
  document.body.style.height = `${innerHeight - BELOW}px`;
  window.stage = {
    move(x, y) { pointer.style.left = `${x}px`; pointer.style.top = `${y}px`; },
    say(words) { caption.textContent = words; caption.style.display = words ? "" : "none"; },
  };
})()
"""


class Film:
    """Frames of a page, each with its length."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.lengths: list[int] = []
        self.at = (WIDTH / 2, HEIGHT / 2)

    def open(self, address: str) -> None:
        """Open a view and set up pointer and caption."""
        self.page.call("Page.navigate", url="about:blank")
        self.page.call("Page.navigate", url=address)
        self.settle()
        self.page.value(STAGE.replace("BELOW", str(BELOW)))
        self.page.value(f"stage.move({self.at[0]}, {self.at[1]})")

    def settle(self) -> None:
        """Wait until all answers are drawn."""
        self.page.wait(
            "document.documentElement?.dataset.ready !== undefined"
            " && document.documentElement.dataset.busy === undefined"
        )
        self.page.value("new Promise((done) => setTimeout(done, 260))")  # bars glide

    def shoot(self, milliseconds: int) -> None:
        """Add a frame; one like the last makes that one longer."""
        shot = self.page.call("Page.captureScreenshot", format="png")["data"]
        frame = Image.open(io.BytesIO(base64.b64decode(shot))).convert("RGB")
        if self.frames and frame.tobytes() == self.frames[-1].tobytes():
            self.lengths[-1] += milliseconds
            return
        self.frames.append(frame)
        self.lengths.append(milliseconds)

    def say(self, words: str) -> None:
        self.page.value(f"stage.say({json.dumps(words)})")

    def point(self, selector: str, across: float = 0.5, down: float = 0.5) -> tuple[float, float]:
        """Move the pointer to a place of an element, slowly at both ends."""
        left, top, width, height = self.page.show(selector)
        end = left + across * width, top + down * height
        begin = self.at
        for step in range(1, STEP + 1):
            share = step / STEP
            share = share * share * (3 - 2 * share)
            x, y = (a + (b - a) * share for a, b in zip(begin, end, strict=True))
            self.page.value(f"stage.move({x}, {y})")
            self.shoot(MOVE)
        self.at = end
        return end

    def click(self, selector: str, across: float = 0.5, down: float = 0.5, hold: int = 900) -> None:
        """Point, click, wait for the answer, and look at it."""
        self.point(selector, across, down)
        self.page.click(selector, across, down)
        self.settle()
        self.shoot(hold)

    def slide(self, name: str, values: list[float], most: float, hold: int = 900) -> None:
        """Drag a slider over some values."""
        self.point(f"#{name}", values[0] / most)
        for value in values:
            left, top, width, height = self.page.show(f"#{name}")
            self.at = left + 8 + (width - 16) * value / most, top + height / 2
            self.page.value(
                f"(() => {{ stage.move({self.at[0]}, {self.at[1]});"
                f" const slider = document.querySelector('#{name}'); slider.value = {value};"
                " slider.dispatchEvent(new Event('input')); })()"
            )
            self.settle()
            self.shoot(130)
        self.page.value(f"document.querySelector('#{name}').dispatchEvent(new Event('change'))")
        self.settle()
        self.shoot(hold)

    def save(self, path: Path) -> None:
        """Write the film, in the best quality that stays below `MOST`."""
        for quality in range(80, 20, -10):
            content = io.BytesIO()
            self.frames[0].save(
                content, "WEBP", save_all=True, append_images=self.frames[1:], loop=0,
                duration=self.lengths, quality=quality, method=6, minimize_size=True,
            )  # fmt: skip
            if len(content.getvalue()) < MOST:
                break
        path.write_bytes(content.getvalue())
        size = f"{self.frames[0].width}×{self.frames[0].height}"
        seconds, kilobytes = sum(self.lengths) / 1000, len(content.getvalue()) / 1000
        print(
            f"{path.name}: {size}, {len(self.frames)} frames, {seconds:.1f} s, {kilobytes:.0f} kB, "
            f"quality {quality}"
        )


@contextmanager
def served(*models: str) -> Iterator[str]:
    running = start(open_explorer(list(models), "world:shapes", limit=64))
    try:
        yield running.url
    finally:
        running.stop()


def one_model(film: Film, url: str) -> None:
    """A patch, a block, noise."""
    film.open(f"{url}#image={IMAGE}&unit=0:blocks.3.attn")
    film.say("Click a patch: see it in all layers and heads")
    film.shoot(800)
    film.click("#picture", 0.5, 0.35, 1300)
    film.say("Switch a block off: watch the prediction change")
    film.click('.unit[data-unit="blocks.0.attn"] .power', 0.5, 0.5, 1700)
    film.click("#undo", 0.5, 0.5, 300)
    film.say("Slide noise through the frequencies")
    film.slide("strength", [0.02, 0.04, 0.06, 0.08, 0.1], 0.5, 300)
    film.slide("frequency", [0.6, 0.5, 0.4, 0.3, 0.2, 0.1], 1, 1300)


def two_models(film: Film, url: str, view: str) -> None:
    """The same noise in two models, and a block of both."""
    film.open(f"{url}#{view}")
    film.say("Compare two models: same patch, same noise, same edit")
    film.shoot(1500)
    film.click('.unit[data-unit="blocks.4.mlp"] .power', 0.5, 0.5, 1900)


def main() -> None:
    program = found()
    if program is None:
        sys.exit("This needs Chromium.")
    with browser(program) as page:
        page.call(
            "Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT,
            deviceScaleFactor=SCALE, mobile=False,
        )  # fmt: skip
        seen = "try { localStorage.setItem('vitreous-tour', 'seen'); } catch {}"
        page.call("Page.addScriptToEvaluateOnNewDocument", source=seen)
        film = Film(page)
        with served("nano:vit") as url:
            one_model(film, url)
        view = page.value("location.hash.slice(1)")
        with served("nano:vit", "nano:resnet") as url:
            two_models(film, url, view)
    film.save(HOME / "live.webp")


if __name__ == "__main__":
    main()
