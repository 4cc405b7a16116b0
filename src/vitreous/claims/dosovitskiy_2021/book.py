"""Where the claims of this paper are entered."""

from __future__ import annotations

from vitreous.claims.claim import Book, Paper

BOOK = Book(Paper("VIT", "An Image is Worth 16x16 Words", "Dosovitskiy et al.", 2021, "2010.11929"))
claim = BOOK.claim
