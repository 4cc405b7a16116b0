"""Vitreous: see inside any vision model.

The public names are here and load on first use, so that `import vitreous` costs nothing and never
imports torch.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitreous import data as data
    from vitreous.errors import VitreousError as VitreousError
    from vitreous.explorer.notebook import live as live
    from vitreous.measure.engine import analyse as analyse
    from vitreous.measure.engine import inspect as inspect
    from vitreous.measure.inspection import Inspection as Inspection
    from vitreous.models import build as build
    from vitreous.report.show import show as show
    from vitreous.results.result import Result as Result
    from vitreous.specimen.anatomy import Anatomy as Anatomy
    from vitreous.specimen.anatomy import Unit as Unit
    from vitreous.specimen.opening import open as open
    from vitreous.specimen.specimen import Specimen as Specimen
    from vitreous.training import recipes as recipes
    from vitreous.training.loop import train as train

__version__ = "0.2.0"

_PACKAGES = {"data": "vitreous.data", "recipes": "vitreous.training.recipes"}
_HOMES = {
    "Anatomy": "vitreous.specimen.anatomy",
    "Inspection": "vitreous.measure.inspection",
    "Result": "vitreous.results.result",
    "Specimen": "vitreous.specimen.specimen",
    "Unit": "vitreous.specimen.anatomy",
    "VitreousError": "vitreous.errors",
    "analyse": "vitreous.measure.engine",
    "build": "vitreous.models",
    "inspect": "vitreous.measure.engine",
    "live": "vitreous.explorer.notebook",
    "open": "vitreous.specimen.opening",
    "show": "vitreous.report.show",
    "train": "vitreous.training.loop",
}
"""Where each public name lives."""

__all__ = [
    "Anatomy", "Inspection", "Result", "Specimen", "Unit", "VitreousError", "__version__",
    "analyse", "build", "data", "inspect", "live", "open", "recipes", "show",
    "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(_PACKAGES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'vitreous' has no attribute {name!r}")
    drawn = random.getstate()
    value = getattr(import_module(_HOMES[name]), name)
    random.setstate(drawn)  # rich draws from Python's random numbers when it is imported
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
