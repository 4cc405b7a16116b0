"""The findings of papers as claims that can be judged from stored results, without torch."""

from __future__ import annotations

from importlib import import_module
from typing import get_args

from vitreous.claims.book import Claim, Study
from vitreous.errors import UnknownName

PAPERS = ("park_2022", "raghu_2021", "dosovitskiy_2021", "dascoli_2021")
"""One package of checks each; their texts are in `books/`."""
STUDIES = (*get_args(Study), "sanity", "all")
"""Names of sets of claims."""


def every_claim() -> list[Claim]:
    """All claims, paper by paper, in the order of their ids."""
    return [claim for paper in PAPERS for claim in import_module(f"vitreous.claims.{paper}").BOOK]


def claims_of_study(name: str) -> list[Claim]:
    """The claims that a study decides: `sanity` has all with a small version, `all` has all."""
    if name not in STUDIES:
        raise UnknownName("study", name, STUDIES, f"Studies are {', '.join(STUDIES)}.")
    return [
        claim
        for claim in every_claim()
        if name in (claim.study, "all") or (name == "sanity" and claim.sanity)
    ]
