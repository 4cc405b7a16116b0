"""Contradictions between the papers, between a paper and its code, or its common interpretation.

Each conflict has a sentence, the claims and systems of the catalogue that it concerns, and how the
package treats it. Disputed claims are judged like all others; the conflict is shown beside the
verdict."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from vitreous.errors import UnknownName


@dataclass(frozen=True)
class Conflict:
    """One contradiction, and how it is treated."""

    id: str
    sentence: str
    concerns: tuple[str, ...]
    """Ids of claims (`VIT-11`), systems (`A4.18`), tables (`C4`) and recipes (`D1`)."""
    treated: str
    """What the package does about it."""


CONFLICTS = tuple(
    Conflict(id, entry["sentence"], tuple(entry["concerns"]), entry["treated"])
    for id, entry in tomllib.loads(
        Path(__file__).with_name("books").joinpath("conflicts.toml").read_text(encoding="utf-8")
    ).items()
)
"""All conflicts, in the order of their ids."""


def concerning(claim_id: str) -> tuple[Conflict, ...]:
    """The conflicts that concern a claim."""
    return tuple(conflict for conflict in CONFLICTS if claim_id.upper() in conflict.concerns)


def conflict(id: str) -> Conflict:
    """The conflict with this id, in upper or lower case."""
    known = {each.id: each for each in CONFLICTS}
    if (wanted := id.upper()) not in known:
        raise UnknownName("conflict", id, known)
    return known[wanted]
