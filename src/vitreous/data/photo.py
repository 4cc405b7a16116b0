"""Read one image from a file, a Pillow image, an array or a tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vitreous.data.sources.decode import describe_fault, rgb_picture
from vitreous.data.sources.paths import check_picture
from vitreous.errors import VitreousError

Photo = str | Path | Image.Image | NDArray[Any] | Tensor
"""A path, Pillow's image, or levels in [0, 1] or bytes: height and width with channels last or
first."""

SLACK = 0.01
"""Tolerance for levels outside of [0, 1], which bicubic resizing can produce."""


def read_photo(source: Photo, upright: bool = False) -> Image.Image:
    """A picture in RGB, eight bits a channel.

    Parameters
    ----------
    source
        A path, Pillow's image, or an array or tensor: bytes, or floats in [0, 1], of shape
        (h, w), (h, w, channels) or (channels, h, w), perhaps as a batch of one. Where both ends of
        a shape could be channels, they come last in an array and first in a tensor.
    upright
        Rotate it as its EXIF data says.

    Examples
    --------
    >>> read_photo(np.zeros((4, 6, 3), np.uint8)).size
    (6, 4)
    """
    if isinstance(source, (str, Path)):
        return _read_file(source, upright)
    if isinstance(source, Image.Image):
        return rgb_picture(source.copy(), upright)  # a copy, because reading closes it
    if isinstance(source, (Tensor, np.ndarray)):
        return rgb_picture(_pixels(source))
    raise VitreousError(
        f"A picture is a path, Pillow's image, an array or a tensor, and not "
        f"{type(source).__name__}."
    )


def _read_file(source: str | Path, upright: bool) -> Image.Image:
    check_picture(source)
    try:
        return rgb_picture(Path(source).expanduser(), upright)
    except Exception as error:  # a broken file can break any part of a decoder
        raise VitreousError(
            f"{str(source)!r} cannot be read as a picture: {describe_fault(error)}."
        ) from None


def _pixels(source: NDArray[Any] | Tensor) -> NDArray[np.uint8]:
    """(height, width, 1 or 3) bytes of an array or tensor."""
    channels_first = isinstance(source, Tensor)
    shape = tuple(source.shape)
    array = np.asarray(source.detach().cpu()) if isinstance(source, Tensor) else source
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    if array.ndim == 2:
        array = array[..., None]
    first, last = (array.ndim == 3 and array.shape[end] in (1, 3, 4) for end in (0, -1))
    if array.size == 0 or not (first or last):
        raise VitreousError(
            f"A picture has the shape (h, w), (h, w, 3) or (3, h, w), and not {shape}; give one "
            "picture at a time."
        )
    if first and (channels_first or not last):
        array = array.transpose(1, 2, 0)
    if array.shape[2] == 4:  # transparency is ignored, as in files
        array = array[..., :3]
    return np.ascontiguousarray(_bytes(array))


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Levels as bytes; raises for numbers that are neither in [0, 1] nor bytes."""
    if array.dtype == np.uint8:
        return array
    low, high = float(array.min()), float(array.max())
    if array.dtype.kind in "iu" and low >= 0 and high <= 255:
        return array.astype(np.uint8)
    if array.dtype.kind == "f" and low >= -SLACK and high <= 1 + SLACK:
        return (array.astype(np.float64).clip(0, 1) * 255).round().astype(np.uint8)
    remedy = "divide by 255" if array.dtype.kind == "f" and low >= 0 and high <= 255 else (
        "undo the normalisation, which Vitreous applies itself"
    )  # fmt: skip
    raise VitreousError(
        f"The picture has levels from {low:.3g} to {high:.3g} ({array.dtype}); give floats in "
        f"[0, 1] or bytes: {remedy}."
    )
