"""Where the claims of this paper are entered."""

from __future__ import annotations

from vitreous.claims.claim import Book, Paper

BOOK = Book(Paper("HDV", "How Do Vision Transformers Work?", "Park and Kim", 2022, "2202.06709"))
claim = BOOK.claim
