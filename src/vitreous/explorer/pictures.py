"""Images of the explorer, from the dataset or uploaded, and their encoding for the page."""

from __future__ import annotations

from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from vitreous.data.sources.decode import describe_fault, header_size, rgb_picture
from vitreous.errors import VitreousError

THUMBNAIL = 256
"""Pixels of the longer side of an image on the page, at most."""


class Picture(NamedTuple):
    """An image of the dataset or an uploaded one."""

    id: str
    label: str
    row: int | None
    """Its row in the dataset."""
    width: int
    height: int
    frames: tuple[Tensor, ...] = ()
    """Of an upload: uint8 (1, 3, h, w) as each model gets it."""
    thumbnail: bytes = b""
    """Of an upload: a small PNG."""


def describe_picture(picture: Picture) -> dict[str, Any]:
    """The description of an image for the page."""
    return {
        "id": picture.id,
        "label": picture.label,
        "width": picture.width,
        "height": picture.height,
    }


def read_upload(content: bytes, name: str, upright: bool = False) -> Image.Image:
    """Decode a picture like any other; one of too many pixels is refused before it is decoded.

    `upright` turns it as EXIF says.
    """
    try:
        height, width = header_size(content)
        if width * height > (Image.MAX_IMAGE_PIXELS or width * height):
            raise VitreousError(
                f"{name!r} has {width:,} x {height:,} pixels; make it smaller, at most "
                f"{Image.MAX_IMAGE_PIXELS:,} fit."
            )
        return rgb_picture(content, upright)
    except VitreousError:
        raise
    except Exception as error:  # a broken file can break any part of a decoder
        raise VitreousError(
            f"{name!r} cannot be read as a picture: {describe_fault(error)}."
        ) from None


def thumbnail_png(image: Image.Image) -> bytes:
    """A small version of an image, encoded as PNG."""
    small = image.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    return png(small)


def image_of(pixels: Tensor) -> Image.Image:
    """The first of some images (n, 3, h, w) of bytes, for Pillow."""
    return Image.fromarray(np.ascontiguousarray(pixels[0].permute(1, 2, 0).cpu().numpy()))


def png(image: Image.Image) -> bytes:
    """An image encoded as PNG."""
    file = BytesIO()
    image.save(file, "PNG", compress_level=1)  # a larger file in a fifth of the time
    return file.getvalue()
