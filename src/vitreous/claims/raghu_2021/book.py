"""Findings of Raghu et al., Do Vision Transformers See Like Convolutional Neural Networks? (2021)."""

from __future__ import annotations

from vitreous.claims.claim import Book, Paper

BOOK = Book(
    Paper("SLC", "Do Vision Transformers See Like Convolutional Neural Networks?", "Raghu et al.", 2021, "2108.08810")
)
claim = BOOK.claim
