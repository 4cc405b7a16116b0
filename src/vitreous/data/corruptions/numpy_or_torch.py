"""Code that runs on numpy on a CPU and on torch elsewhere.

With one image, a step takes torch longer to start than numpy to finish. The functions in use have
the same names and arguments in both libraries, so code written with `library` runs on either.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Array = Any
"""A tensor, or numpy's view of one."""


def native(x: Tensor) -> Array:
    """The tensor as a numpy view on a CPU; unchanged elsewhere."""
    return x.numpy() if x.device.type == "cpu" else x


def library(x: Array) -> Any:
    """The module for this array: numpy or torch."""
    return np if isinstance(x, np.ndarray) else torch


def true_places(x: Array) -> Array:
    """The indices, int64, at which a 1-D array is true."""
    return np.flatnonzero(x) if isinstance(x, np.ndarray) else x.nonzero().flatten()


def take_at(x: Array, places: Array) -> Array:
    """The values of a 1-D array at these indices."""
    return library(x).take(x, library(x).asarray(places, dtype=library(x).int64))


def add_frame(x: Array, rows: tuple[int, int], columns: tuple[int, int], value: float = 0) -> Array:
    """Arrays (n, h, w) with more rows above and below, and columns left and right, of one value."""
    (images, height, width), (above, below), (left, right) = x.shape, rows, columns
    shape = (images, above + height + below, left + width + right)
    done = np.full(shape, value, x.dtype) if isinstance(x, np.ndarray) else x.new_full(shape, value)
    done[:, above : above + height, left : left + width] = x
    return done


class Neighbours:
    """The neighbours of each pixel of arrays (n, h, w), as lines (n, h * (w + 2)), row behind row.

    Numpy is twice as fast on one long line as on many short ones. The two values between rows mean
    nothing; `rows` removes them. Outside are zeros or, in scipy's words, the "nearest" pixels or
    the "mirror" image.
    """

    def __init__(self, x: Array, outside: Literal["zeros", "nearest", "mirror"] = "zeros") -> None:
        self.height, self.width = x.shape[1:]
        # The last row is for the two values after the last pixel.
        frame = add_frame(x, (1, 2), (1, 1))
        if outside != "zeros":
            y, z = (
                min(2 if outside == "mirror" else 1, length) for length in (self.height, self.width)
            )
            frame[:, 0], frame[:, -2] = frame[:, y], frame[:, self.height + 1 - y]
            frame[..., 0], frame[..., -1] = frame[..., z], frame[..., self.width + 1 - z]
        self.line = frame.reshape(len(x), -1)

    def __call__(self, down: int, right: int) -> Array:
        """The neighbours `down` and `right` of each pixel, by -1, 0 or 1."""
        start = (1 + down) * (self.width + 2) + 1 + right
        return self.line[:, start : start + self.height * (self.width + 2)]

    def rows(self, line: Array) -> Array:
        """Lines as arrays (n, h, w)."""
        return line.reshape(len(line), self.height, self.width + 2)[..., : self.width]
