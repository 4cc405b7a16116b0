"""Decoding: whatever Pillow reads becomes upright RGB of one size, in several threads.

Threads work because Pillow releases the interpreter while it decodes: two cores bring photographs
of 500x375 to 224 pixels at 1.8 times the speed of one (625 against 339 images/s; two processes
reach 545). Images of 64 pixels gain nothing, but one core decodes 6000 of those a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from vitreous.data.framing import Framing
from vitreous.data.sources.listing import Listing, Rows
from vitreous.progress import progress

Faults = dict[int, str]
"""Positions of images that cannot be decoded, and why."""

Put = Callable[[int, NDArray[np.uint8]], None]
"""Receives the position of an image in the listing and its pixels; several threads call it at
once."""

CHUNK = 64
"""Images a thread takes at a time."""


def decode(listing: Listing, framing: Framing, put: Put, what: str) -> Faults:
    """Decode and frame every image and pass it to `put`; return those that cannot be decoded."""
    chunks = listing.rows // max(CHUNK, listing.per)  # no sheet is shared by two threads
    parts = np.split(np.arange(len(listing)), np.flatnonzero(np.diff(chunks)) + 1)
    faults: Faults = {}
    with (
        ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as pool,
        progress(f"Decoding {what}", len(listing)) as advance,
    ):
        decoded = pool.map(partial(_decode_some, listing, framing, put), parts)
        for part, wrong in zip(parts, decoded, strict=True):
            faults.update(wrong)
            advance(len(part))
    return faults


def _decode_some(listing: Listing, framing: Framing, put: Put, positions: Rows) -> Faults:
    rgb = upright_rgb if framing.upright else stored_rgb
    faults: Faults = {}
    before, images = -1, list[Image.Image]()
    for position in positions.tolist():
        which, place = divmod(int(listing.rows[position]), listing.per)
        try:
            if which != before:
                images = cut_sheet(rgb(listing.pictures[which]), listing.per)
                before = which
            put(position, framing(images[place]))
        except UnidentifiedImageError:
            faults[position] = "not an image"
        except Exception as error:  # a broken file can break any part of a decoder
            faults[position] = str(error).partition("\n")[0] or type(error).__name__
    return faults


def upright_rgb(source: Path | bytes | NDArray[np.uint8] | Image.Image) -> Image.Image:
    """A picture in RGB: turned as EXIF says, the first frame, transparent parts on white."""
    with _opened(source) as image:
        ImageOps.exif_transpose(image, in_place=True)
        return _rgb(image)


def stored_rgb(source: Path | bytes | NDArray[np.uint8] | Image.Image) -> Image.Image:
    """A picture in RGB as timm and torchvision read it: not turned, transparency dropped."""
    with _opened(source) as image:
        return image.convert("RGB")


def _opened(source: Path | bytes | NDArray[np.uint8] | Image.Image) -> Image.Image:
    if isinstance(source, Image.Image):
        return source
    if isinstance(source, np.ndarray):
        return Image.fromarray(source[..., 0] if source.shape[-1] == 1 else source)
    return Image.open(BytesIO(source) if isinstance(source, bytes) else source)


def _rgb(image: Image.Image) -> Image.Image:
    """Eight bits a channel: integers are assumed to end at 65535, floats at 1."""
    if image.mode.startswith("I"):
        levels = (np.asarray(image).clip(0, 65535) / 257).round().astype(np.uint8)
        return Image.fromarray(levels).convert("RGB")
    if image.mode == "F":
        levels = (np.asarray(image).clip(0, 1) * 255).round().astype(np.uint8)
        return Image.fromarray(levels).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    return image.convert("RGB")


def cut_sheet(sheet: Image.Image, per: int) -> list[Image.Image]:
    """The `per` images of a sheet, row by row."""
    if per == 1:
        return [sheet]
    side = sheet_side(sheet.size, per)
    return [
        sheet.crop((left, top, left + side, top + side))
        for top in range(0, sheet.height, side)
        for left in range(0, sheet.width, side)
    ]


def sheet_side(size: tuple[int, int], per: int) -> int:
    """The side of each of the `per` equal squares that fill a sheet of this size."""
    width, height = size
    side = round((width * height / per) ** 0.5)
    divides = side > 0 and width % side == 0 and height % side == 0
    if not divides or (width // side) * (height // side) != per:
        raise ValueError(f"a sheet of {width}x{height} pixels cannot hold {per} equal squares")
    return side


def shared_size(listing: Listing) -> tuple[int, int] | None:
    """Height and width if all images share them; reads at most the headers of files."""
    if isinstance(listing.pictures, np.ndarray):
        return int(listing.pictures.shape[1]), int(listing.pictures.shape[2])
    shared = None
    for which in dict.fromkeys((listing.rows // listing.per).tolist()):
        try:
            size = _header_size(listing.pictures[which], listing.per)
        except Exception:  # decoding it will say what is wrong
            continue
        if shared not in (None, size):
            return None
        shared = size
    return shared


def _header_size(source: Any, per: int) -> tuple[int, int]:
    with _opened(source) as image:
        if per > 1:
            return (sheet_side(image.size, per),) * 2
        turned = image.getexif().get(0x0112, 1) >= 5  # orientations 5 to 8 lie on their side
        return image.size if turned else (image.height, image.width)
