"""Findings of Dosovitskiy et al., An Image is Worth 16x16 Words (ICLR 2021)."""

from __future__ import annotations

from vitreous.claims.dosovitskiy_2021 import inside, positions, pretraining, scale
from vitreous.claims.dosovitskiy_2021.book import BOOK

__all__ = ["BOOK", "inside", "positions", "pretraining", "scale"]
