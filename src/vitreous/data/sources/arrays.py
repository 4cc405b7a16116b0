"""Pictures that come as one array: which axis is what."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import VitreousError


def channels_last(array: NDArray[Any], what: str) -> NDArray[np.uint8]:
    """uint8 images as (n, h, w, 1 or 3), however they lie; nothing is copied."""
    if array.dtype != np.uint8:
        raise VitreousError(
            f"{what} is {array.dtype}; images are uint8, 0 to 255: convert it and save it again."
        )
    if array.ndim == 3:
        return array[..., None]
    if array.ndim == 4 and array.shape[3] in (1, 3):
        return array
    if array.ndim == 4 and array.shape[1] in (1, 3):
        return array.transpose(0, 2, 3, 1)
    raise VitreousError(
        f"{what} is of shape {'x'.join(map(str, array.shape))}; images are n x h x w, n x h x w x 3 or n x 3 x h x w."
    )


def label_numbers(array: NDArray[Any], count: int, what: str) -> NDArray[np.int64]:
    """Labels as integers, one for each of `count` images."""
    flat = array.reshape(-1)
    if not np.issubdtype(flat.dtype, np.integer):
        raise VitreousError(f"{what} is {flat.dtype}; labels are integers, counted from 0.")
    if len(flat) != count:
        raise VitreousError(
            f"{what} has {len(flat)} labels for {count} images; there has to be one for each."
        )
    return flat.astype(np.int64)
