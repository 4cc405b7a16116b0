"""That conflicts are complete, and speak of claims that exist."""

from __future__ import annotations

import re

import pytest

from vitreous import claims
from vitreous.claims.conflicts import CONFLICTS, concerning, conflict
from vitreous.errors import UnknownName


def test_none_is_missing() -> None:
    assert [each.id for each in CONFLICTS] == [f"X-{number:02d}" for number in range(1, 39)]


def test_what_they_concern_exists() -> None:
    known = {claim.id for claim in claims.every_claim()}
    for each in CONFLICTS:
        assert len(set(each.concerns)) == len(each.concerns)
        for id in each.concerns:
            assert id in known or re.fullmatch(r"A[1-4]\.\d\d|[CD][1-8]", id), (
                f"{each.id} concerns {id}"
            )


def test_they_say_something() -> None:
    for each in CONFLICTS:
        for text in (each.sentence, each.treated):
            assert text.endswith(".")
            assert not re.search(r"\bS[0-4]\b|  ", text)


def test_by_claim_and_by_id() -> None:
    assert [each.id for each in concerning("hdv-15")] == ["X-24", "X-37"]
    assert concerning("VIT-24") == ()
    assert conflict("x-05").concerns == ("HDV-12",)
    with pytest.raises(UnknownName, match="X-39"):
        conflict("X-39")
