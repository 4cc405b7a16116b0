"""The live page in a browser: servers in threads, and what a reader does and sees."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import torch
from torch import Tensor, nn

from report.browser import Page
from vitreous.data.dataset import Dataset
from vitreous.explorer.opening import open_explorer
from vitreous.explorer.server import Running, start
from vitreous.explorer.views import Explorer
from vitreous.measure.subject import Subject, logits
from vitreous.specimen.specimen import Specimen

IDLE = (
    "document.documentElement?.dataset.ready !== undefined"
    " && document.documentElement.dataset.busy === undefined"
)
SMALL: dict[str, dict[str, Any]] = {
    "vit": {"model_name": "vit_tiny_patch16_224", "img_size": 64, "depth": 4},
    "convnext": {"model_name": "convnext_atto", "depths": (1, 1, 2, 1)},
    "swin": {
        "model_name": "swin_tiny_patch4_window7_224", "img_size": 64, "window_size": 4,
        "depths": (2, 2), "embed_dim": 24, "num_heads": (2, 4),
    },
    "resnet": {"model_name": "resnet18"},
}  # fmt: skip
"""Models of timm, of random weights and made small."""
PAIRS = {
    "nano": ("nano:vit", "nano:resnet"),
    "vit and convnext": ("vit", "convnext"),
    "swin and resnet": ("swin", "resnet"),
}
SEEN = "try { localStorage.setItem('vitreous-tour', 'seen'); } catch {}"


@dataclass
class Live:
    """A running server, and the explorer behind it."""

    running: Running
    explorer: Explorer

    @property
    def url(self) -> str:
        return self.running.url

    def subject(self, model: int) -> Subject:
        return self.explorer.models[model].subject

    def prepared(self, model: int, row: int) -> Tensor:
        """An image of the dataset as a model takes it."""
        return self.subject(model).prepare(self.explorer.data.images[row][None])


def serve(
    models: Mapping[str, nn.Module] | Sequence[str],
    images: int = 24,
    data: Dataset | str = "world:shapes",
    folder: Path | str = ".",
) -> Live:
    size = None if isinstance(models, Sequence) else 64
    explorer = open_explorer(models, data, limit=images, image=size, device="cpu")
    return Live(start(explorer, folder=folder), explorer)


class Servers(dict[str, Live]):
    """Servers by the names of `PAIRS`, which start when they are first asked for."""

    def __missing__(self, pair: str) -> Live:
        import timm  # only here: most tests take bundled models

        torch.manual_seed(0)
        names = PAIRS[pair]
        made = {
            name: timm.create_model(**SMALL[name], num_classes=10)
            for name in names
            if name in SMALL
        }
        self[pair] = serve(made or names)
        return self[pair]


def visit(
    tab: Page, address: str, width: int = 1440, height: int = 900, scheme: str = "light"
) -> None:
    """Open the page anew, also if only the part behind # differs, and wait for all answers."""
    tab.call("Page.navigate", url="about:blank")
    tab.open(address, width, height, scheme)
    settle(tab)


def settle(tab: Page) -> None:
    tab.wait(IDLE)


def chip(unit: str, model: int = 0) -> str:
    return f'.unit[data-model="{model}"][data-unit="{unit}"] .chip'


def slide(tab: Page, name: str, *values: float) -> None:
    """Move a slider over some values and let it go at the last."""
    for value in values:
        tab.value(
            f"(() => {{ const e = document.querySelector('#{name}'); e.value = {value};"
            " e.dispatchEvent(new Event('input', { bubbles: true })); })()"
        )
    tab.value(f"document.querySelector('#{name}').dispatchEvent(new Event('change'))")
    settle(tab)


def text(tab: Page, selector: str) -> str:
    """The text of an element, with ordinary spaces."""
    shown: str = tab.value(f"document.querySelector({json.dumps(selector)}).innerText")
    return shown.replace("\u00a0", " ")


def fragment(tab: Page) -> dict[str, list[str]]:
    """The state in the address."""
    return parse_qs(urlsplit(tab.value("location.href")).fragment)


def shown_shares(tab: Page, model: int = 0) -> dict[int, tuple[float, float, float]]:
    """Shares before, with the changed image, and after, by the number of the class."""
    rows = tab.value(
        f"[...document.querySelectorAll('.card[data-model=\"{model}\"] li')]"
        ".map(({ dataset: d }) => [d.index, d.before, d.clean, d.after].map(Number))"
    )
    return {int(index): (before, clean, after) for index, before, clean, after in rows}


@torch.no_grad()
def shares(specimen: Specimen, images: Tensor) -> Tensor:
    """Probabilities of one image, in double precision."""
    scores = logits(specimen(images))
    assert scores is not None
    return scores[0].double().softmax(0)


def check_shares(
    tab: Page, model: int, before: Tensor, after: Tensor, clean: Tensor | None = None
) -> None:
    """The page shows these probabilities: the likeliest after, to five digits, as text and as
    numbers."""
    settle(tab)
    found = shown_shares(tab, model)
    assert len(found) >= min(4, len(after))
    assert int(after.argmax()) in found
    assert int(before.argmax()) in found
    for index, (was, changed, now) in found.items():
        assert was == pytest.approx(float(before[index]), rel=1e-5)
        assert now == pytest.approx(float(after[index]), rel=1e-5)
        if clean is not None:
            assert changed == pytest.approx(float(clean[index]), rel=1e-5)
    card = f'.card[data-model="{model}"]'
    row = f'{card} li[data-index="{int(after.argmax())}"] .share'
    assert text(tab, row) == percent(float(after.max()))


def percent(share: float) -> str:
    value = 100 * share
    return f"{value:.0f} %" if value >= 99.95 else "< 0.1 %" if value < 0.05 else f"{value:.1f} %"


def picture_file(folder: Path, name: str) -> Path:
    """A photograph of 60 × 40 pixels in a file."""
    from PIL import Image  # only here: most tests need no picture of their own

    path = folder / name
    ramp = torch.linspace(0, 255, 60).byte()
    pixels = torch.stack([ramp.expand(40, 60), ramp.flip(0).expand(40, 60), ramp.expand(40, 60)], 2)
    Image.fromarray(pixels.contiguous().numpy()).save(path, "PNG")
    return path


def complaints(tab: Page) -> list[Any]:
    """What the page said on its console, but for requests that it gave up itself."""
    tab.value("1")
    return list(tab.said)
