"""Findings of d'Ascoli et al., ConViT (2021)."""

from __future__ import annotations

from vitreous.claims.claim import Book, Paper

BOOK = Book(
    Paper(
        "CVT",
        "ConViT: Improving Vision Transformers with Soft Convolutional Inductive Biases",
        "d'Ascoli et al.",
        2021,
        "2103.10697",
    )
)
claim = BOOK.claim
