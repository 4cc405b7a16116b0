"""Findings of Park and Kim, How Do Vision Transformers Work? (ICLR 2022)."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from vitreous.claims.park_2022.book import BOOK

__all__ = ["BOOK"]

for part in iter_modules(__path__):
    import_module(f"{__name__}.{part.name}")  # registers its checks
