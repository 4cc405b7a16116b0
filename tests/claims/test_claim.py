"""How claims are entered and found."""

from __future__ import annotations

from vitreous.claims.claim import Book, Paper


def test_claims_stand_in_the_order_of_their_ids_whatever_file_enters_them_first() -> None:
    book = Book(Paper("ABC", "A paper", "Nobody", 2000, ""))
    for id in ("ABC-10", "ABC-02", "ABC-01"):
        book.claim(id, "A sentence.", place="Fig. 1", reported="nothing", study="zoo")(lambda look: [])
    assert [claim.id for claim in book] == ["ABC-01", "ABC-02", "ABC-10"]
