"""Findings of Park and Kim, How Do Vision Transformers Work? (ICLR 2022)."""

from __future__ import annotations

from vitreous.claims.park_2022 import curvature
from vitreous.claims.park_2022.book import BOOK

__all__ = ["BOOK", "curvature"]
