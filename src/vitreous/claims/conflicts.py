"""Where the papers contradict each other, their own code, or what is commonly read into them, and
what is done about it.

Each says in a sentence what does not agree, which claims and systems of the catalogue it is about,
and how the package treats it. Claims that are disputed are judged like all others; their conflicts
are shown beside the verdict."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from vitreous.errors import UnknownName


@dataclass(frozen=True)
class Conflict:
    """Things that do not agree."""

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
"""All of them, in the order of their ids."""


def concerning(claim_id: str) -> tuple[Conflict, ...]:
    """What does not agree about a claim."""
    return tuple(conflict for conflict in CONFLICTS if claim_id.upper() in conflict.concerns)


def conflict(id: str) -> Conflict:
    """By id, however it is written."""
    known = {each.id: each for each in CONFLICTS}
    if (wanted := id.upper()) not in known:
        raise UnknownName("conflict", id, known)
    return known[wanted]
