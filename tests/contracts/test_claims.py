"""What every claim promises, asked of all of them, so that a new one cannot escape."""

from __future__ import annotations

import csv
import subprocess
import sys
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, get_args

import pytest

from claims.synthetic import Case, three_seeds
from vitreous import claims
from vitreous.claims.book import Claim, find_claim
from vitreous.claims.evidence import Evidence, Query, Scale
from vitreous.claims.verdicts import judge

COMPARED = Path(__file__).with_name("claims.csv")
"""What the main effect of every claim is compared with. It was read against papers and catalogue:
change it only with the paper at hand."""
CASES = Path(__file__).resolve().parents[1] / "claims" / "cases"
COUNTS = {"HDV": 58, "SLC": 33, "VIT": 24, "CVT": 34}
every = pytest.mark.parametrize("claim", claims.every_claim(), ids=lambda claim: claim.id)


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
    assert [claim.id for claim in claims.every_claim()] == wanted


@every
def test_reproduced_when_it_holds(claim: Claim) -> None:
    (verdict,) = judge(Evidence(three_seeds(cases()[claim.id].holds)), [claim])
    wanted = {"identity", "reproduced"}
    if any(requirement.kind == "note" for requirement in claim.requires):
        wanted = {"not testable here"}
    assert verdict.outcome in wanted, (verdict.effects, verdict.missing, verdict.notes)


@every
def test_not_reproduced_when_it_does_not(claim: Claim) -> None:
    (verdict,) = judge(Evidence(three_seeds(cases()[claim.id].fails)), [claim])
    wanted = {"no effect", "opposite", "weaker", "mixed", "holds untrained"}
    if any(requirement.kind == "note" for requirement in claim.requires):
        wanted = {"not testable here"}
    assert verdict.outcome in wanted, (verdict.effects, verdict.missing, verdict.notes)


@every
def test_undecided_when_nothing_is_known(claim: Claim) -> None:
    (verdict,) = judge(Evidence([]), [claim])
    assert verdict.outcome in ("undecided", "not testable here")
    assert verdict.missing, "It must say what it lacks."
    assert verdict.command == f"vitreous study {claim.study}"


def compared(claim: Claim, scale: Any) -> dict[str, str]:
    """How the main effect is judged, and what is read for it."""
    query = Query(scale=scale)
    main = next(effect for effect in claim.evaluate(query) if effect.direction is not None)
    sizes = {name: getattr(main, name) for name in ("null", "paper", "matters", "bound")}
    return {
        "claim": claim.id,
        "scale": scale,
        "effect": main.label,
        "direction": str(main.direction),
        **{name: "" if size is None else f"{size:.6g}" for name, size in sizes.items()},
        "untrained": "compared" if claim.has_control(scale) else "",
        "requires": "; ".join(map(str, claim.requires)),
        "reads": "; ".join(dict.fromkeys(map(str, query.needs))),
    }


def at_scales(claim: Claim) -> list[dict[str, str]]:
    """For many classes, and for other images where anything differs."""
    many, *others = (compared(claim, scale) for scale in ("hundred", "ten", "sanity"))
    return [many, *(row for row in others if {**row, "scale": "hundred"} != many)]


def kept_rows() -> dict[str, list[dict[str, str]]]:
    """The rows of the table by claim."""
    rows: dict[str, list[dict[str, str]]] = {}
    for row in csv.DictReader(StringIO(COMPARED.read_text(encoding="utf-8"))):
        rows.setdefault(row["claim"], []).append(row)
    return rows


KEPT = kept_rows()


@pytest.mark.parametrize("name", KEPT)
def test_it_is_compared_with_what_was_read_in_the_paper(name: str) -> None:
    """A null, a size, a control or a precondition that changes by mistake is seen here; verdicts on
    stored evidence need not change."""
    claim = find_claim(claims.every_claim(), name)
    assert at_scales(claim) == KEPT[name]


def test_the_table_of_comparisons_has_every_claim() -> None:
    new = [claim for claim in claims.every_claim() if claim.id not in KEPT]
    lines = StringIO()
    csv.writer(lines).writerows(row.values() for claim in new for row in at_scales(claim))
    assert not new, f"Compare with the paper, and add to {COMPARED.name}:\n{lines.getvalue()}"


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
    code = "import sys, vitreous.claims as c; c.every_claim(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
