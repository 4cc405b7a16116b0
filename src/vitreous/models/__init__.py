"""The papers' architectures, one per file, under one registry.

`build(name, image=..., classes=..., **options)` makes one, `names()` lists them. Importing this
package imports every file in its folder, which registers the families here and in timm.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from vitreous.models.registry import BadModel, ConfiguredModel, build, names, options

__all__ = ["BadModel", "ConfiguredModel", "build", "names", "options"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
