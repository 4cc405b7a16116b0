"""Where the claims of this paper are entered."""

from __future__ import annotations

from pathlib import Path

from vitreous.claims.book import Book
from vitreous.claims.evidence import Query

BOOK = Book.read(Path(__file__).parents[1] / "books" / "raghu_2021.toml")
check = BOOK.check


def larger(models: Query) -> dict[str, str]:
    """Facts of the larger ViT, which has enough heads to compare; in the embedded world there is
    one size only."""
    return {} if models.sanity else {"size": "s"}


def few_images(models: Query) -> dict[str, float | str]:
    """Facts of a training on few images that sees as many in all: 5 %, and 256 of 8192 in the
    embedded world."""
    return {"fraction": 1 / 32 if models.sanity else 0.05, "schedule": "samples"}
