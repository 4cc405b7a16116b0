"""The papers' architectures, one per file, under one registry.

`build(name, image=..., classes=..., **options)` makes one, `names()` lists them. Importing this package imports every
file in its folder, which is how families register, and makes them known to timm as `vitreous_<name>`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from vitreous.models.registry import BadModel, Remembers, build, names, options, publish_to_timm

__all__ = ["BadModel", "Remembers", "build", "names", "options"]

for _found in iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")

publish_to_timm()
