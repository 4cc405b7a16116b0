"""Many small pictures on one sheet: filters, attention maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import VitreousError

WIDTH, GAP, WORDS, HEADING = 560, 8, 16, 22


@dataclass(frozen=True)
class Montage:
    """Pictures as bytes (n, h, w, 3) or (n, h, w), the size at which each is shown, and where its corner is."""

    pictures: NDArray[np.uint8]
    tile: tuple[int, int]
    """Width and height in points."""
    corners: list[tuple[int, int]]
    width: int
    height: int
    labels: Sequence[str]
    headings: list[tuple[str, int]]
    """What stands over a group of pictures, and the foot of its line."""


def montage(
    pictures: NDArray[np.generic], labels: Sequence[str] = (), groups: Sequence[str] = ()
) -> Montage:
    """Lay out pictures: whole numbers are bytes, others lie between 0 and 1; about as many across as fill a line, and
    pictures of many pixels larger. With a group for each picture, every group begins a line under its name."""
    if (
        pictures.ndim not in (3, 4)
        or (pictures.ndim == 4 and pictures.shape[-1] != 3)
        or not pictures.size
    ):
        raise VitreousError(
            f"Tiles were asked of an array of shape {pictures.shape}; they are (n, h, w) or (n, h, w, 3)."
        )
    count, high, wide = pictures.shape[:3]
    parts = [
        list(group) for _, group in groupby(range(count), lambda i: groups[i] if groups else "")
    ]
    longest = max(map(len, parts))
    across = min(longest, max(math.ceil(math.sqrt(1.6 * longest)), 4))
    width = min((WIDTH - GAP * (across - 1)) // across, max(wide, 112))
    tile = (width, max(round(width * high / wide), 1))
    words = WORDS if labels else 0
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
    bytes_ = np.clip(np.round(np.nan_to_num(pictures.astype(np.float64)) * scale), 0, 255).astype(
        np.uint8
    )
    return Montage(bytes_, tile, corners, across * (tile[0] + GAP) - GAP, y - GAP, labels, headings)


def montage_png(sheet: Montage, paper: str) -> bytes:
    """The sheet as a PNG, two pixels to a point; pixels stay sharp unless there is no room for them."""
    from PIL import Image

    canvas = Image.new("RGB", (2 * sheet.width, 2 * sheet.height), paper)
    smaller = sheet.pictures.shape[2] > 2 * sheet.tile[0]
    how = Image.Resampling.BOX if smaller else Image.Resampling.NEAREST
    for picture, (x, y) in zip(sheet.pictures, sheet.corners, strict=True):
        resized = (
            Image.fromarray(picture)
            .convert("RGB")
            .resize((2 * sheet.tile[0], 2 * sheet.tile[1]), how)
        )
        canvas.paste(resized, (2 * x, 2 * y))
    content = BytesIO()
    canvas.save(content, "PNG", optimize=True)
    return content.getvalue()
