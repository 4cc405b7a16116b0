"""Numbers that every command and function takes under one name, and the range each has to lie in."""

from __future__ import annotations

from math import inf
from typing import Any

from vitreous.errors import VitreousError

RANGES: dict[str, tuple[float, float, str]] = {
    "seed": (0, 2**63 - 1, "a whole number from 0 to 2^63 - 1"),
    "limit": (1, inf, "at least one image, or 'all'"),
    "size": (1, inf, "at least one image"),
    "test_size": (1, inf, "at least one image"),
    "batch": (1, inf, "at least one image"),
    "shard": (1, inf, "at least one image"),
    "seeds": (1, 10**6, "at least one training of each model"),
    "workers": (1, 4096, "at least one process"),
    "fraction": (1e-9, 1, "a share above 0 and up to 1"),
}
"""Name: smallest, largest, and what it is in words."""


def check_ranges(**given: Any) -> None:
    """An error for the first number that lies outside its range; what is no number is somebody else's matter."""
    for name, value in given.items():
        if name not in RANGES or isinstance(value, bool):
            continue
        low, high, words = RANGES[name]
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, (int, float)) and not low <= each <= high:
                raise VitreousError(f"{name}={value} was asked for; it is {words}.")
