"""What every claim promises, asked of all of them, so that a new one cannot escape."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from claims.synthetic import Case
from vitreous import claims
from vitreous.claims.claim import Claim, judge
from vitreous.claims.evidence import Evidence, Scale

CASES = Path(__file__).resolve().parents[1] / "claims" / "cases"
COUNTS = {"HDV": 58, "SLC": 33, "VIT": 24, "CVT": 34}
every = pytest.mark.parametrize("claim", claims.every(), ids=lambda claim: claim.id)


@cache
def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for path in sorted(CASES.glob("[!_]*.py")):
        found |= import_module(f"claims.cases.{path.stem}").CASES
    return found


def test_all_findings_are_there() -> None:
    wanted = [
        f"{key}-{number:02d}" for key, count in COUNTS.items() for number in range(1, count + 1)
    ]
    assert [claim.id for claim in claims.every()] == wanted


@every
def test_supported_when_it_holds(claim: Claim) -> None:
    (found,) = judge(Evidence(cases()[claim.id].supported), [claim])
    assert found.outcome == "supported", (found.parts, found.missing, found.notes)


@every
def test_refuted_when_it_does_not(claim: Claim) -> None:
    (found,) = judge(Evidence(cases()[claim.id].refuted), [claim])
    assert found.outcome == "refuted", (found.parts, found.missing, found.notes)


@every
def test_inconclusive_when_nothing_is_known(claim: Claim) -> None:
    (found,) = judge(Evidence([]), [claim])
    assert found.outcome == "inconclusive"
    assert found.missing, "It must say what it lacks."
    assert found.command == f"vitreous study {claim.study}"


@every
def test_inconclusive_when_one_result_is_missing(claim: Claim) -> None:
    """It does not hold of less than it asks for, unless that is only noted."""
    given = cases()[claim.id].supported
    without = (Evidence([*given[:i], *given[i + 1 :]]) for i in range(len(given)))
    assert any(judge(rest, [claim])[0].outcome != "supported" for rest in without)


@every
def test_it_says_where_it_stands(claim: Claim) -> None:
    assert claim.id.startswith(claim.paper.key)
    assert claim.sentence.endswith(".")
    assert len(claim.sentence) > 30
    assert claim.place
    assert claim.reported
    for scale in get_args(Scale):
        assert claim.needs(scale)


def test_no_torch_is_needed() -> None:
    code = "import sys, vitreous.claims as c; c.every(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
