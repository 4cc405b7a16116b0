"""The book of this paper, in which checks are registered with `@check(ID)`."""

from __future__ import annotations

from pathlib import Path

from vitreous.claims.book import Book
from vitreous.claims.evidence import Query

BOOK = Book.read(Path(__file__).parents[1] / "books" / "raghu_2021.toml")
check = BOOK.check


def larger(models: Query) -> dict[str, str]:
    """Facts of the larger ViT, which has enough heads to compare; generated images use the standard
    size."""
    return {} if models.sanity else {"size": "s"}


def few_images(models: Query) -> dict[str, float | str]:
    """Facts of a training on 5 % of the images (1/32 of generated ones) with the usual number of
    samples in total."""
    return {"fraction": 1 / 32 if models.sanity else 0.05, "schedule": "samples"}
