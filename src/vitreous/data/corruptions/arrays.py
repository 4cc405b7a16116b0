"""Numpy on a CPU, torch elsewhere: with one image, a step takes torch longer to begin than numpy to
finish.

The functions used have the same names and arguments in both, so that what is written with `library`
runs on either.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Array = Any
"""A tensor, or numpy's view of one."""


def native(x: Tensor) -> Array:
    """What is quickest on the tensor's device: numpy's view of it on a CPU, itself elsewhere."""
    return x.numpy() if x.device.type == "cpu" else x


def library(x: Array) -> Any:
    """The module that works on such an array: numpy or torch."""
    return np if isinstance(x, np.ndarray) else torch


def places(x: Array) -> Array:
    """Where a line is true, int64."""
    return np.flatnonzero(x) if isinstance(x, np.ndarray) else x.nonzero().flatten()


def look(x: Array, places: Array) -> Array:
    """A line at these places."""
    return library(x).take(x, library(x).asarray(places, dtype=library(x).int64))


def framed(x: Array, rows: tuple[int, int], columns: tuple[int, int], value: float = 0) -> Array:
    """Arrays (n, h, w) with so many more rows above and below, and columns left and right, of a
    value."""
    (images, height, width), (above, below), (left, right) = x.shape, rows, columns
    shape = (images, above + height + below, left + width + right)
    done = np.full(shape, value, x.dtype) if isinstance(x, np.ndarray) else x.new_full(shape, value)
    done[:, above : above + height, left : left + width] = x
    return done


class Around:
    """What lies around each pixel of arrays (n, h, w), as lines (n, h * (w + 2)), row behind row.

    Numpy needs half as long for one line as for many short ones. The two pixels between rows mean
    nothing, and `rows` leaves them out. Outside are zeros or, in scipy's words, the "nearest"
    pixels or the "mirror" image.
    """

    def __init__(self, x: Array, outside: Literal["zeros", "nearest", "mirror"] = "zeros") -> None:
        self.height, self.width = x.shape[1:]
        frame = framed(
            x, (1, 2), (1, 1)
        )  # the last row is what the two pixels after the last one see
        if outside != "zeros":
            y, z = (
                min(2 if outside == "mirror" else 1, length) for length in (self.height, self.width)
            )
            frame[:, 0], frame[:, -2] = frame[:, y], frame[:, self.height + 1 - y]
            frame[..., 0], frame[..., -1] = frame[..., z], frame[..., self.width + 1 - z]
        self.line = frame.reshape(len(x), -1)

    def __call__(self, down: int, right: int) -> Array:
        """What lies so many pixels away, one at most."""
        start = (1 + down) * (self.width + 2) + 1 + right
        return self.line[:, start : start + self.height * (self.width + 2)]

    def rows(self, line: Array) -> Array:
        """Lines as arrays (n, h, w) again."""
        return line.reshape(len(line), self.height, self.width + 2)[..., : self.width]
