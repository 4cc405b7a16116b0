"""Images and labels: every source in one spelling, the embedded world, subsets, augmentation and
corruptions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitreous.data.dataset import Dataset as Dataset
    from vitreous.data.loading import load as load

_HOMES = {"Dataset": "vitreous.data.dataset", "load": "vitreous.data.loading"}
"""Where each public name lives. They load on first use, so that importing the room costs
nothing."""

__all__ = ["Dataset", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vitreous.data' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
