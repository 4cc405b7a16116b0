"""Pictures and files made by hand, for the tests of data sources."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def noise(count: int, height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """(n, h, w, 3)"""
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def save(path: Path, pixels: NDArray[np.uint8]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def encoded(pixels: NDArray[np.uint8], kind: str = "PNG") -> bytes:
    out = BytesIO()
    Image.fromarray(pixels).save(out, kind, lossless=True) if kind == "WEBP" else Image.fromarray(
        pixels
    ).save(out, kind)
    return out.getvalue()


def tree(
    top: Path, counts: dict[str, int], side: int = 8, seed: int = 0
) -> dict[str, NDArray[np.uint8]]:
    """A folder of PNGs for each of `counts`, {"train/cat": 3}; gives the pixels of each file by
    its path."""
    made = {}
    for number, (place, count) in enumerate(counts.items()):
        for i, pixels in enumerate(noise(count, side, side, 1000 * seed + number)):
            made[f"{place}/{i:03}.png"] = pixels
            save(top / place / f"{i:03}.png", pixels)
    return made


def chw(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.moveaxis(pixels, -1, -3)
