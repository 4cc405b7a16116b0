"""Many small images on one sheet: filters, attention maps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import VitreousError
from vitreous.results.names import short_names
from vitreous.results.view import View

if TYPE_CHECKING:
    from vitreous.results.result import Result

WIDTH, GAP, WORDS, HEADING = 560, 8, 16, 22
CHARACTER = 5.6
"""Width of a character of a label."""


@dataclass(frozen=True)
class Montage:
    """The layout of a sheet; all sizes are in points."""

    pictures: NDArray[np.uint8]
    """(n, h, w, 3) or (n, h, w)"""
    tile: tuple[int, int]
    """Width and height at which each image is shown."""
    corners: list[tuple[int, int]]
    """The upper left corner of each image."""
    width: int
    height: int
    labels: Sequence[str]
    headings: list[tuple[str, int]]
    """The text over each group of images, and the y of its baseline."""


def montage(
    pictures: NDArray[np.generic], labels: Sequence[str] = (), groups: Sequence[str] = ()
) -> Montage:
    """Return the layout of images on a sheet.

    Parameters
    ----------
    pictures
        (n, h, w) or (n, h, w, 3): bytes, or floats between 0 and 1.
    labels
        The text above each image, if any.
    groups
        The group of each image, if any; every group begins a line under its name.
    """
    grey, colour = pictures.ndim == 3, pictures.ndim == 4 and pictures.shape[-1] == 3
    if not (grey or colour) or not pictures.size:
        raise VitreousError(
            f"An array of shape {pictures.shape} cannot be shown as tiles; they are (n, h, w) or "
            "(n, h, w, 3)."
        )
    count, high, wide = pictures.shape[:3]
    by_group = groupby(range(count), lambda i: groups[i] if groups else "")
    parts = [list(group) for _, group in by_group]
    longest = max(map(len, parts))
    across = min(longest, max(math.ceil(math.sqrt(1.6 * longest)), 4))
    width = min((WIDTH - GAP * (across - 1)) // across, max(wide, 112))
    tile = (width, max(round(width * high / wide), 1))
    words = WORDS if labels else 0
    short = short_names(labels, max(int(width / CHARACTER), 5))
    corners: list[tuple[int, int]] = []
    headings, y = [], 0
    for part in parts:
        if groups:
            y += HEADING
            headings.append((groups[part[0]], y))
        rows, top = tile[1] + GAP + words, y + words
        corners += [
            ((i % across) * (tile[0] + GAP), top + (i // across) * rows) for i in range(len(part))
        ]
        y = corners[-1][1] + tile[1] + GAP
    scale = 1.0 if pictures.dtype == np.uint8 else 255.0
    scaled = np.round(np.nan_to_num(pictures.astype(np.float64)) * scale)
    return Montage(
        np.clip(scaled, 0, 255).astype(np.uint8),
        tile,
        corners,
        across * (tile[0] + GAP) - GAP,
        y - GAP,
        [short[label] for label in labels],
        headings,
    )


def label_texts(result: Result, view: View) -> Iterator[list[str]]:
    """Yield the labels of a view's tiles, then their groups; each may be empty."""
    for name in (view.x, view.facet):
        yield [str(value) for value in result.table[name]] if name else []


def montage_png(sheet: Montage) -> bytes:
    """Return the sheet as a PNG, two pixels to a point, transparent between images.

    Images are only smoothed to shrink them.
    """
    from PIL import Image

    canvas = Image.new("RGBA", (2 * sheet.width, 2 * sheet.height))
    smaller = sheet.pictures.shape[2] > 2 * sheet.tile[0]
    method = Image.Resampling.BOX if smaller else Image.Resampling.NEAREST
    size = (2 * sheet.tile[0], 2 * sheet.tile[1])
    for picture, (x, y) in zip(sheet.pictures, sheet.corners, strict=True):
        image = Image.fromarray(picture).convert("RGB")
        canvas.paste(image.resize(size, method), (2 * x, 2 * y))
    content = BytesIO()
    canvas.save(content, "PNG", optimize=True)
    return content.getvalue()
