"""Arrays that a result holds beside its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vitreous.errors import VitreousError

if TYPE_CHECKING:
    import numpy as np

# numpy is imported within the functions, so that it is no part of start-up


def native_copy(name: str, array: Any) -> np.ndarray:
    """Return a copy in row order and native bytes, which is what safetensors can store."""
    import numpy as np

    given = np.asarray(array)
    if given.dtype.kind not in "biuf":
        raise VitreousError(f"Array {name!r} holds {given.dtype}; arrays of a result hold numbers.")
    return np.array(given, dtype=given.dtype.newbyteorder("="), order="C")


def equal_arrays(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays have the same type and content; NaN equals NaN."""
    import numpy as np

    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
