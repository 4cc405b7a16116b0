"""Convert labels in files, which may be numbers or words, to numbers and class names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vitreous.errors import VitreousError


def number_labels(
    labels_in_file: Sequence[int | str | None], what: str
) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Number the labels, with -1 for missing ones, and return also the names of the classes.

    Numbers are not changed, and their classes have no names (None). Words are numbered in
    alphabetical order. Without any label there are no classes.

    >>> number_labels(["dog", "cat", None], "Labels")
    (array([ 1,  0, -1]), ('cat', 'dog'))
    """
    known = [label for label in labels_in_file if label is not None]
    if not known:
        return np.full(len(labels_in_file), -1, np.int64), ()
    if all(isinstance(label, int) for label in known):
        numbers = [-1 if label is None else int(label) for label in labels_in_file]
        return np.array(numbers, np.int64), None
    if not all(isinstance(label, str) for label in known):
        raise VitreousError(f"{what} are partly numbers and partly words; use one of the two.")
    names = sorted({str(label) for label in known})
    number = {name: place for place, name in enumerate(names)}
    numbers = [-1 if label is None else number[str(label)] for label in labels_in_file]
    return np.array(numbers, np.int64), tuple(names)
