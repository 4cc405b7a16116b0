"""Labelled images: loading from any source, synthetic data, subsets, augmentation, corruptions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitreous.data.dataset import Dataset as Dataset
    from vitreous.data.loading import load as load

_HOMES = {"Dataset": "vitreous.data.dataset", "load": "vitreous.data.loading"}
"""The module of each public name. Modules are imported on first use, to keep start-up fast."""

__all__ = ["Dataset", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vitreous.data' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
