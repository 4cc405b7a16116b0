"""Where the claims of this paper are entered."""

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
