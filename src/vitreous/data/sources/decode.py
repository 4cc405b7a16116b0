"""Pictures into pixels: whatever Pillow reads becomes upright RGB of one size, many at a time.

Threads, because Pillow lets go of the interpreter as it decodes: two cores bring photographs of 500x375 to 224 pixels
at 1.8 times the speed of one (625 against 339 images/s; two processes manage 545). For images of 64 pixels they bring
nothing, but one core does 6000 of those a second.
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

from vitreous.data.progress import progress
from vitreous.data.sources.listing import Listing, Rows

Faults = dict[int, str]
"""Positions of images that cannot be decoded, and why."""

Put = Callable[[int, NDArray[np.uint8]], None]
"""What is done with the pixels of an image, given its position in the listing; called by several threads at once."""

CHUNK = 64
"""Images a thread takes at a time."""


def picture(thing: Path | bytes | NDArray[np.uint8] | Image.Image) -> Image.Image:
    """As it is meant to be seen, in RGB: turned as EXIF says, the first frame, transparent parts on white."""
    with _opened(thing) as image:
        ImageOps.exif_transpose(image, in_place=True)
        return _rgb(image)


def _opened(thing: Path | bytes | NDArray[np.uint8] | Image.Image) -> Image.Image:
    if isinstance(thing, Image.Image):
        return thing
    if isinstance(thing, np.ndarray):
        return Image.fromarray(thing[..., 0] if thing.shape[-1] == 1 else thing)
    return Image.open(BytesIO(thing) if isinstance(thing, bytes) else thing)


def _rgb(image: Image.Image) -> Image.Image:
    """More than eight bits are brought to eight: integers are taken to end at 65535, floats at 1."""
    if image.mode.startswith("I"):
        return Image.fromarray(
            (np.asarray(image).clip(0, 65535) / 257).round().astype(np.uint8)
        ).convert("RGB")
    if image.mode == "F":
        return Image.fromarray(
            (np.asarray(image).clip(0, 1) * 255).round().astype(np.uint8)
        ).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        seen = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")
    return image.convert("RGB")


def fitted(image: Image.Image, size: tuple[int, int]) -> NDArray[np.uint8]:
    """(3, height, width): the shorter side brought to `size`, bicubic and antialiased, and the middle cut out."""
    height, width = size
    if image.size != (width, height):
        image = ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC)
    return np.asarray(image).transpose(2, 0, 1)


def cut(sheet: Image.Image, per: int) -> list[Image.Image]:
    """The images of a sheet, row by row."""
    if per == 1:
        return [sheet]
    side = side_of(sheet.size, per)
    return [
        sheet.crop((left, top, left + side, top + side))
        for top in range(0, sheet.height, side)
        for left in range(0, sheet.width, side)
    ]


def side_of(size: tuple[int, int], per: int) -> int:
    """Of each of the `per` equal squares that fill a sheet of this size."""
    side = round((size[0] * size[1] / per) ** 0.5)
    if (
        side == 0
        or size[0] % side
        or size[1] % side
        or (size[0] // side) * (size[1] // side) != per
    ):
        raise ValueError(f"a sheet of {size[0]}x{size[1]} pixels cannot hold {per} equal squares")
    return side


def size_of(listing: Listing) -> tuple[int, int] | None:
    """Height and width, if all images share them; reads no more than the heads of files, and not those if it can."""
    if isinstance(listing.pictures, np.ndarray):
        return int(listing.pictures.shape[1]), int(listing.pictures.shape[2])
    found = None
    for which in dict.fromkeys((listing.rows // listing.per).tolist()):
        try:
            size = _head(listing.pictures[which], listing.per)
        except Exception:  # decoding it will say what is wrong
            continue
        if found not in (None, size):
            return None
        found = size
    return found


def _head(thing: Any, per: int) -> tuple[int, int]:
    with _opened(thing) as image:
        if per > 1:
            return (side_of(image.size, per),) * 2
        turned = image.getexif().get(0x0112, 1) >= 5  # orientation: 5 to 8 lie on their side
        return image.size if turned else (image.height, image.width)


def decode(listing: Listing, size: tuple[int, int], put: Put, what: str) -> Faults:
    """Every image, (3, *size), is put where it belongs. Gives those that cannot be decoded, and why."""
    rooms = listing.rows // max(CHUNK, listing.per)  # a sheet is never shared by two threads
    parts = np.split(np.arange(len(listing)), np.flatnonzero(np.diff(rooms)) + 1)
    faults: Faults = {}
    with (
        ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as pool,
        progress(f"Decoding {what}", len(listing)) as forward,
    ):
        for part, found in zip(
            parts, pool.map(partial(_decode_some, listing, size, put), parts), strict=True
        ):
            faults.update(found)
            forward(len(part))
    return faults


def _decode_some(listing: Listing, size: tuple[int, int], put: Put, positions: Rows) -> Faults:
    faults: Faults = {}
    before, images = -1, list[Image.Image]()
    for position in positions.tolist():
        which, place = divmod(int(listing.rows[position]), listing.per)
        try:
            if which != before:
                images = cut(picture(listing.pictures[which]), listing.per)
                before = which
            put(position, fitted(images[place], size))
        except UnidentifiedImageError:
            faults[position] = "not an image"
        except Exception as error:  # a broken file can break any part of a decoder; the user hears which file it was
            faults[position] = str(error).partition("\n")[0] or type(error).__name__
    return faults
