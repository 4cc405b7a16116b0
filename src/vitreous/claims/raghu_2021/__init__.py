"""Findings of Raghu et al., Do Vision Transformers See Like Convolutional Neural Networks?
(2021)."""

from __future__ import annotations

from vitreous.claims.raghu_2021 import amount, attention, similarity, skips, tokens
from vitreous.claims.raghu_2021.book import BOOK

__all__ = ["BOOK", "amount", "attention", "similarity", "skips", "tokens"]
