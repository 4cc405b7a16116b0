"""Open a model, look inside it, change it."""

from __future__ import annotations

from vitreous.specimen.anatomy import Anatomy, Unit

__all__ = ["Anatomy", "Unit"]
