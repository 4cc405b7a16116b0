"""How claims are entered and found."""

from __future__ import annotations

from vitreous.claims.claim import Book, Paper, more, no_less
from vitreous.claims.measure import Measure


def test_claims_stand_in_the_order_of_their_ids_whatever_file_enters_them_first() -> None:
    book = Book(Paper("ABC", "A paper", "Nobody", 2000, ""))
    for id in ("ABC-10", "ABC-02", "ABC-01"):
        book.claim(id, "A sentence.", place="Fig. 1", reported="nothing", study="zoo")(lambda look: [])
    assert [claim.id for claim in book] == ["ABC-01", "ABC-02", "ABC-10"]


def test_as_much_is_no_less_but_not_more() -> None:
    doubtful, worse = Measure.drawn(0, "a", 0.0, -1.0, 1.0), Measure.drawn(0, "b", -2.0, -3.0, -1.0)
    assert [part("", doubtful).outcome for part in (no_less, more)] == ["supported", "inconclusive"]
    assert [part("", worse).outcome for part in (no_less, more)] == ["refuted", "refuted"]
