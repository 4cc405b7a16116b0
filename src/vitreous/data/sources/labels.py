"""Labels as they are found in files, numbers or words, as numbers and names of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import VitreousError


def number_labels(
    found: Sequence[int | str | None], what: str
) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Numbers of the labels, -1 where there is none, and the names of the classes.

    Numbers stay as they are, and their classes have no names (None). Words are numbered in
    alphabetical order. With no label at all there are no classes.

    >>> number_labels(["dog", "cat", None], "Labels")
    (array([ 1,  0, -1]), ('cat', 'dog'))
    """
    known = [label for label in found if label is not None]
    if not known:
        return np.full(len(found), -1, np.int64), ()
    if all(isinstance(label, int) for label in known):
        numbers = [-1 if label is None else int(label) for label in found]
        return np.array(numbers, np.int64), None
    if not all(isinstance(label, str) for label in known):
        raise VitreousError(f"{what} are partly numbers and partly words; use one of the two.")
    names = sorted({str(label) for label in known})
    number = {name: place for place, name in enumerate(names)}
    numbers = [-1 if label is None else number[str(label)] for label in found]
    return np.array(numbers, np.int64), tuple(names)
