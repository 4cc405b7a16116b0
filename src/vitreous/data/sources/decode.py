"""Decode images that Pillow can read to RGB of one size, in several threads.

The pixels equal those of torchvision's `ImageFolder` and timm, `convert("RGB")` of Pillow's image,
so that a model gets what it was trained and evaluated on. So images are not rotated by their EXIF
data unless a framing says so, and transparency is ignored. The one exception are images of more
than eight bits, which Pillow would clip to white: they are scaled.

Threads suffice, because Pillow releases the interpreter while it decodes and resizes: on two cores
they are 1.8 times as fast as one, and two processes are no faster. Neither torchvision's decoder
(the same pixels in the same time) nor libjpeg's scaled decoding (other pixels) would help.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
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

CHUNK = 16
"""Number of images that a thread decodes at a time: few, because Ctrl-C waits for them."""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF", "JPEG2000")
"""Pillow's names of the formats of the suffixes in `paths.PICTURES`."""

VERSION = 2
"""Version of the decoded pixels: cached images of another version are not used."""


def decode(listing: Listing, framing: Framing, put: Put, what: str) -> Faults:
    """Decode and frame every image and pass it to `put`; return those that cannot be decoded."""
    order = np.argsort(listing.rows, kind="stable")  # the order in their files
    chunks = listing.rows[order] // max(CHUNK, listing.per)  # no sheet is shared by two threads
    parts = np.split(order, np.flatnonzero(np.diff(chunks)) + 1)
    faults: Faults = {}
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(_cores()) as pool,
        progress(f"Decoding {what}", len(listing)) as advance,
    ):
        # Pillow warns of pictures of 90 million pixels and refuses twice as many.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        decoded = pool.map(partial(_decode_some, listing, framing, put), parts)
        for part, wrong in zip(parts, decoded, strict=True):
            faults.update(wrong)
            advance(len(part))
    return faults


def _cores() -> int:
    """Number of cores that this process may use, which a container or scheduler may limit.

    At most 32, since more threads only wait for the interpreter's lock.
    """
    allowed = getattr(os, "sched_getaffinity", None)
    return min(len(allowed(0)) if allowed else os.cpu_count() or 1, 32)


def _decode_some(listing: Listing, framing: Framing, put: Put, positions: Rows) -> Faults:
    faults: Faults = {}
    before, images = -1, list[Image.Image]()
    for position in positions.tolist():
        which, place = divmod(int(listing.rows[position]), listing.per)
        try:
            if which != before:
                picture = rgb_picture(listing.pictures[which], framing.upright)
                images = cut_sheet(picture, listing.per)
                before = which
            put(position, framing(images[place]))
        except Exception as error:  # a broken file can break any part of a decoder
            faults[position] = describe_fault(error)
    return faults


def describe_fault(error: Exception) -> str:
    """Describe in a few words why an image cannot be decoded."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, Image.DecompressionBombError):
        return f"more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # without the path, which is named anyway
    return str(error).partition("\n")[0] or type(error).__name__


def rgb_picture(
    source: Path | bytes | NDArray[np.uint8] | Image.Image, upright: bool = False
) -> Image.Image:
    """Convert an image to RGB with eight bits per channel; of an animation the first frame.

    `upright` rotates it as EXIF says. Where Pillow would clip, the maximum is assumed to be 65535
    for integers and 1 for floats.
    """
    with _opened(source) as image:
        if upright:
            ImageOps.exif_transpose(image, in_place=True)
        if image.mode.startswith("I"):
            levels = (np.asarray(image).clip(0, 65535) / 257).round().astype(np.uint8)
            return Image.fromarray(levels).convert("RGB")
        if image.mode == "F":
            levels = (np.asarray(image).clip(0, 1) * 255).round().astype(np.uint8)
            return Image.fromarray(levels).convert("RGB")
        image.load()
        # transparency is ignored in the conversion to RGB; Pillow would warn for some palettes
        image.info.pop("transparency", None)
        return image.convert("RGB")


def _opened(source: Path | bytes | NDArray[np.uint8] | Image.Image) -> Image.Image:
    if isinstance(source, Image.Image):
        return source
    if isinstance(source, np.ndarray):
        return Image.fromarray(source[..., 0] if source.shape[-1] == 1 else source)
    file = BytesIO(source) if isinstance(source, bytes) else source
    return Image.open(file, formats=_formats())


@cache
def _formats() -> list[str]:
    """The formats to read. Others are not used in datasets, and some run programs: Pillow passes
    EPS to Ghostscript."""
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


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
            size = header_size(listing.pictures[which], listing.per)
        except Exception:  # the error will be raised when the image is decoded
            continue
        if shared not in (None, size):
            return None
        shared = size
    return shared


def header_size(source: Any, per: int = 1) -> tuple[int, int]:
    """Height and width of a picture, or of the `per` squares of a sheet, without decoding it."""
    with _opened(source) as image:
        if per > 1:
            return (sheet_side(image.size, per),) * 2
        return image.height, image.width
