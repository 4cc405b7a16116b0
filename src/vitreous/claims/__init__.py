"""The findings of papers as claims that can be judged from stored results, without torch."""

from __future__ import annotations

from typing import get_args

from vitreous.claims.book import Book, Claim, Study
from vitreous.claims.book_sources import PAPERS, every_book, use_books
from vitreous.errors import UnknownName

__all__ = [
    "PAPERS",
    "STUDIES",
    "Book",
    "claims_of_study",
    "every_book",
    "every_claim",
    "study_names",
    "use_books",
]

STUDIES = (*get_args(Study), "sanity", "all")
"""Names of sets of claims of this package's papers."""


def every_claim() -> list[Claim]:
    """All claims of all books in use, paper by paper, in the order of their ids.

    Examples
    --------
    >>> every_claim()[0].id
    'HDV-01'
    """
    return [claim for book in every_book() for claim in book]


def study_names() -> list[str]:
    """Names of sets of claims, those of other packages' books included."""
    return list(dict.fromkeys([*STUDIES, *(claim.study for claim in every_claim())]))


def claims_of_study(name: str) -> list[Claim]:
    """The claims that a study decides.

    Parameters
    ----------
    name
        A study; `sanity` has all claims with a small version, `all` has all, and the key of a
        paper ("HDV") has all of that paper.
    """
    every = every_claim()
    keys = {claim.paper.key for claim in every}
    names = study_names()
    if name not in names and name.upper() in keys:
        name = name.upper()
    if name not in names and name not in keys:
        known = [*names, "build-up"]  # which judges nothing, so it has no claims
        hint = f"Studies are {', '.join(known)}; a book's own are known with --book."
        raise UnknownName("study", name, [*known, *sorted(keys)], hint)
    return [
        claim
        for claim in every
        if name in (claim.study, claim.paper.key, "all") or (name == "sanity" and claim.sanity)
    ]
