"""The findings of four papers as claims that can be judged from stored results, without torch."""

from __future__ import annotations

from importlib import import_module

from vitreous.claims.claim import Claim

PAPERS = ("park_2022", "raghu_2021", "dosovitskiy_2021", "dascoli_2021")
"""One file each."""


def every() -> list[Claim]:
    """All claims, paper by paper, in the order of the catalogue."""
    return [claim for paper in PAPERS for claim in import_module(f"vitreous.claims.{paper}").BOOK]
