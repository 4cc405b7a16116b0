"""Where the claims of this paper are entered."""

from __future__ import annotations

from vitreous.claims.claim import Book, Paper
from vitreous.claims.evidence import Look

BOOK = Book(
    Paper(
        "SLC",
        "Do Vision Transformers See Like Convolutional Neural Networks?",
        "Raghu et al.",
        2021,
        "2108.08810",
    )
)
claim = BOOK.claim


def larger(look: Look) -> dict[str, str]:
    """Facts of the larger ViT, which has enough heads to compare; in the embedded world there is one size only."""
    return {} if look.sanity else {"size": "s"}


def few_images(look: Look) -> dict[str, float | str]:
    """Facts of a training on few images that sees as many in all: 5 %, and 256 of 8192 in the embedded world."""
    return {"fraction": 1 / 32 if look.sanity else 0.05, "schedule": "samples"}
