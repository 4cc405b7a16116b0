"""Draw `reference/analyses/NAME.svg` for every analysis: one of its pictures, of models that come
with the package.

    python docs/generate_analyses.py
    python docs/generate_analyses.py lesion erf

Bundled models on the embedded world, with a fixed seed, so that the pictures of the manual are what
anybody gets. A function for each analysis says what is asked of whom, and gives the result and
which of its views to draw.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import vitreous
from vitreous.measure import analyses
from vitreous.results import Result

FOLDER = Path(__file__).resolve().parent / "reference" / "analyses"
LARGEST = 150_000
"""Bytes of a picture."""


def asked(name: str, models: tuple[str, ...], limit: int, **options: Any) -> Result:
    """The answer to one question."""
    return vitreous.analyse(
        list(models), "world:shapes", {name: options}, limit=limit, device="cpu", seed=0
    )[name]


def hessian() -> tuple[Result, int]:
    return asked("hessian", ("nano:vit", "nano:resnet"), 128, recipe="nano"), 0


def lesion() -> tuple[Result, int]:
    return asked("lesion", ("nano:vit", "nano:resnet", "nano:alternet"), 256), 0


def corruption() -> tuple[Result, int]:
    return asked("corruption", ("nano:vit", "nano:resnet"), 256), 0


def band_noise() -> tuple[Result, int]:
    return asked("band_noise", ("nano:vit", "nano:resnet"), 256), 0


def landscape() -> tuple[Result, int]:
    return asked("landscape", ("nano:vit", "nano:resnet"), 64), 0


def linear_probe() -> tuple[Result, int]:
    return asked("linear_probe", ("nano:vit", "nano:vit_gap", "nano:resnet"), 512), 0


def adversarial() -> tuple[Result, int]:
    return asked("adversarial", ("nano:vit", "nano:resnet"), 128), 0


def frequency_pass() -> tuple[Result, int]:
    return asked("frequency_pass", ("nano:vit", "nano:resnet"), 256), 0


def trajectory() -> tuple[Result, int]:
    return asked("trajectory", ("nano:vit", "nano:resnet"), 4), 0


def erf() -> tuple[Result, int]:
    return asked("erf", ("nano:vit", "nano:resnet", "nano:swin"), 32, positions=("centre",)), 0


def cue_conflict() -> tuple[Result, int]:
    return asked("cue_conflict", ("nano:vit", "nano:resnet", "nano:vit@warmup"), 256), 0


def occlusion() -> tuple[Result, int]:
    return asked("occlusion", ("nano:vit", "nano:resnet"), 256), 0


def similarity_to() -> tuple[Result, int]:
    return asked("similarity_to", ("nano:vit@initial", "nano:vit@warmup", "nano:vit"), 512), 0


def mc_dropout() -> tuple[Result, int]:
    return asked("mc_dropout", ("nano:vit", "nano:resnet"), 256, rate=0.2), 0


def ensemble() -> tuple[Result, int]:
    return asked(
        "ensemble", ("nano:vit@warmup", "nano:resnet@warmup", "nano:mixer", "nano:vit"), 512
    ), 0


def draw(names: list[str]) -> None:
    """Ask, and write the pictures."""
    for name in names:
        result, view = globals()[name]()
        path = result.figure(FOLDER / f"{name}.svg", view)
        if path.stat().st_size > LARGEST:  # marks say every number once more for readers of screens
            path.write_text(re.sub(r' aria-[a-z]+="[^"]*"', "", path.read_text()))
        size = path.stat().st_size
        print(f"{path.name}: {size / 1000:.0f} kB{', too large' if size > LARGEST else ''}")


if __name__ == "__main__":
    draw(sys.argv[1:] or analyses.names())
