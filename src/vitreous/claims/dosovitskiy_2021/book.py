"""The book of this paper, in which checks are registered with `@check(ID)`."""

from __future__ import annotations

from pathlib import Path

from vitreous.claims.book import Book

BOOK = Book.read(Path(__file__).parents[1] / "books" / "dosovitskiy_2021.toml")
check = BOOK.check
