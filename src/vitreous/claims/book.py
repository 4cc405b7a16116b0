"""Claims and the books they stand in.

What a claim *says* is data: a TOML file with a table for the paper and one for every finding
(sentence, place in the paper, what the paper reports, study, preconditions). What it *compares* is
a function, entered under the finding's id:

    BOOK = Book.read(Path(__file__).with_name("registers.toml"))

    @BOOK.check("REG-01")
    def some_tokens_have_a_large_norm(models: Query) -> Iterator[Effect]:
        yield more("largest norm over the median", norm_ratio(models("vit")), 1.0, paper=4.0)
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vitreous.claims.effects import Effect
from vitreous.claims.evidence import Need, Query, Scale
from vitreous.claims.preconditions import Precondition, read_preconditions
from vitreous.errors import UnknownName, VitreousError

Study = Literal[
    "zoo",
    "data",
    "hessian-sweeps",
    "sweeps",
    "alternet",
    "convit",
    "skips",
    "masked",
    "identities",
]
Check = Callable[[Query], Iterable[Effect]]

REPRESENTATION = frozenset(
    (
        "attention_distance",
        "attention_entropy",
        "cka",
        "equivariance",
        "erf",
        "filters",
        "fourier",
        "head_diversity",
        "local_heads",
        "localisation",
        "nonlocality",
        "position_similarity",
        "rollout",
        "similarity_to",
        "skip_ratio",
        "variance",
    )
)
"""Measurements of what a network computes rather than of how well it does: an untrained network has
them, too, so claims about trained networks are compared with that."""


@dataclass(frozen=True)
class Paper:
    """Where claims come from; `key` is the beginning of their ids."""

    key: str
    title: str
    authors: str
    year: int
    arxiv: str


@dataclass(frozen=True)
class Claim:
    """A finding of a paper, and the check that judges it.

    Parameters
    ----------
    place
        Figure, table or section.
    reported
        What the paper measured, in a few words and numbers.
    study
        The study that trains and measures what it needs.
    task
        The task of the embedded world on which a small version runs; empty if there is none.
    sanity
        Whether there is a small version for two cores.
    large
        Whether the paper speaks of ImageNet or more, of which small data have only an analogue.
    withdrawn
        Who withdrew or disputes it, and where.
    requires
        What has to hold before the claim can be tested.
    control
        False if untrained networks say nothing about it, although it is about representations.
    """

    id: str
    sentence: str
    paper: Paper
    place: str
    reported: str
    study: Study
    check: Check
    task: str = ""
    sanity: bool = False
    large: bool = False
    withdrawn: str = ""
    requires: tuple[Precondition, ...] = ()
    control: bool = True

    def needs(self, scale: Scale = "ten") -> list[Need]:
        """Every result it reads, its untrained control included, found by evaluating it on
        nothing."""
        query = Query(scale=scale)
        for _ in self.check(query):
            pass
        for requirement in self.requires:
            requirement.unmet(query)
        needs = query.needs + (self.control_needs(scale) if self.has_control(scale) else [])
        return list({str(need): need for need in needs}.values())

    def has_control(self, scale: Scale = "ten") -> bool:
        """Whether its main effect is a property of trained networks that untrained ones can have,
        too."""
        if not self.control:
            return False
        query = Query(scale=scale)
        _first(self.check(query))
        trained = [need for need in query.needs if "moment" not in need.facts]
        return bool(trained) and {need.result for need in query.needs} <= REPRESENTATION

    def control_needs(self, scale: Scale) -> list[Need]:
        query = Query(scale=scale, untrained=True)
        _first(self.check(query))
        return query.needs


def _first(effects: Iterable[Effect]) -> Effect | None:
    """The main effect, which is the first that is not merely noted."""
    return next((effect for effect in effects if effect.direction is not None), None)


class Book:
    """The claims of one paper, in the order of their ids."""

    def __init__(self, paper: Paper, entries: dict[str, dict[str, Any]]) -> None:
        self.paper = paper
        self.entries = entries
        self.claims: dict[str, Claim] = {}

    @classmethod
    def read(cls, path: Path) -> Book:
        """From a TOML file with a table `paper` and one for each claim."""
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        try:
            return cls(Paper(**content.pop("paper")), content)
        except (KeyError, TypeError) as error:
            raise VitreousError(
                f"{path.name} is no book of claims: its table [paper] needs key, title, authors, "
                f"year and arxiv ({error})."
            ) from None

    def check(self, id: str) -> Callable[[Check], Check]:
        """Enter the check of a claim; its text is in the book's file."""
        if id not in self.entries:
            raise UnknownName(
                "claim", id, self.entries, "The book's file has no table of that name."
            )

        def enter(check: Check) -> Check:
            entry = dict(self.entries[id])
            requires = read_preconditions(id, entry.pop("requires", ()))
            entry["sanity"] = bool(entry.get("sanity") or entry.get("task"))
            try:
                self.claims[id] = Claim(
                    id=id, paper=self.paper, check=check, requires=requires, **entry
                )
            except TypeError as error:
                raise VitreousError(f"The table of {id} is not that of a claim: {error}.") from None
            return check

        return enter

    def __iter__(self) -> Iterator[Claim]:
        return iter(sorted(self.claims.values(), key=lambda claim: claim.id))


def find_claim(claims: Iterable[Claim], id: str) -> Claim:
    """A claim by its id, in upper or lower case."""
    known = {claim.id: claim for claim in claims}
    if (wanted := id.upper()) not in known:
        raise UnknownName("claim", id, known, "`vitreous claims list` shows them all.")
    return known[wanted]
