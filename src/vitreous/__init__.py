"""Vitreous: see through any vision model."""

from __future__ import annotations

__version__ = "0.1.0"
