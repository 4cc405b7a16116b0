"""Image sizes as users give them: a side, (height, width) or (channels, height, width); 3x224x160
on the command line.

No torch here: the command line rejects a wrong size at once.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vitreous.errors import VitreousError

ImageSize = int | Sequence[int]
"""A side, (height, width) or (channels, height, width)."""

LARGEST = 16_384
"""Maximum of a side and of the channels: catches typing errors that would need terabytes."""

FORMS = "a side (224), height and width (224x160) or channels, height and width (3x224x160)"


def image_size(image: Any) -> tuple[int, ...]:
    """Check and convert a size to (height, width) or (channels, height, width).

    >>> image_size(224), image_size([3, 224, 160])
    ((224, 224), (3, 224, 160))
    """
    several = hasattr(image, "__getitem__") and not isinstance(image, (str, bytes, Mapping))
    several = several and getattr(image, "ndim", 1) != 0  # a number of numpy's or torch's
    parts = list(image) if several else [image, image]
    try:
        sizes = tuple(0 if isinstance(part, bool) else operator.index(part) for part in parts)
    except (TypeError, RuntimeError):  # no whole number, or a tensor of several
        sizes = ()
    if len(sizes) not in (2, 3) or not all(1 <= size <= LARGEST for size in sizes):
        raise VitreousError(
            "image= takes a side, (height, width) or (channels, height, width), whole numbers from "
            "1 to "
            f"{LARGEST}, and not {_short(image)}."
        )
    return sizes


def sides(image: ImageSize | None) -> int | tuple[int, int] | None:
    """Height and width without the channels; a square becomes its side."""
    if image is None:
        return None
    height, width = image_size(image)[-2:]
    return height if height == width else (height, width)


def square_side(image: ImageSize | None) -> int | None:
    """The side of a square size; raises for other sizes."""
    side = sides(image)
    if isinstance(side, tuple):
        raise VitreousError(
            f"A study takes square images and not {format_size(side)}; for example image={side[0]}."
        )
    return side


def format_size(shape: Sequence[int]) -> str:
    """A size as text: 3x224x160."""
    return "x".join(map(str, shape))


def parse_image(text: str) -> int | tuple[int, ...]:
    """Parse the value of `--image`."""
    parts = text.strip().lower().replace("×", "x").split("x")
    sizes = tuple(int(part) if re.fullmatch(r"[0-9]{1,9}", part) else 0 for part in parts)
    if len(sizes) > 3 or not all(1 <= size <= LARGEST for size in sizes):
        raise VitreousError(
            f"--image takes {FORMS}, whole numbers from 1 to {LARGEST}, and not {_short(text)}."
        )
    return sizes[0] if len(sizes) == 1 else sizes


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}…"
