"""What is printed about claims."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from rich.console import Console

from claims.cases.dosovitskiy_2021 import CASES
from vitreous import claims
from vitreous.claims.evidence import Evidence, Query
from vitreous.claims.verdicts import judge
from vitreous.commands.claim_tables import (
    print_claim,
    print_claims,
    select_claims,
    threshold_text,
)
from vitreous.commands.judge import print_verdicts
from vitreous.errors import UnknownName


def console(width: int = 160) -> Console:
    return Console(file=io.StringIO(), width=width)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_list_has_them_all() -> None:
    print_claims(console=(wide := console()))
    for claim in claims.every_claim():
        assert claim.id in printed(wide)


def test_by_paper_and_by_study() -> None:
    assert [claim.id for claim in select_claims("vit", "identities")] == [
        "VIT-05",
        "VIT-21",
        "VIT-24",
    ]
    assert select_claims("dosovitskiy_2021") == select_claims("VIT")
    with pytest.raises(UnknownName, match="Did you mean VIT"):
        select_claims("VITT")
    with pytest.raises(UnknownName, match="Studies are zoo"):
        select_claims(study="zooo")


@pytest.mark.parametrize("id", [claim.id for claim in claims.every_claim()])
def test_every_claim_can_be_shown(id: str) -> None:
    """With its thresholds, all that it needs, and nothing that a terminal would take for a style."""
    print_claim(id.lower(), wide := console(400))
    said = printed(wide)
    (claim,) = (claim for claim in claims.every_claim() if claim.id == id)
    assert claim.sentence in said
    assert claim.withdrawn in said
    for part in claim.check(Query()):
        assert part.threshold is None or f"{part.says}: {threshold_text(part)}" in said
    for need in claim.needs():
        assert (str(need) if need.result != "identities" else "exact properties") in said


def test_thresholds_by_scale_and_conflicts() -> None:
    print_claim("VIT-04", wide := console())
    assert "with a hundred classes and with ten classes:" in printed(wide)
    assert "at most -0.3" in printed(wide)
    print_claim("VIT-07", wide := console(400))
    assert "X-02  Mean pooling" in printed(wide)
    assert "at least 3 of each model" in printed(wide)


def test_verdicts_with_symbols_numbers_and_what_is_missing() -> None:
    evidence = Evidence([*CASES["VIT-06"].supported, *CASES["VIT-14"].refuted])
    verdicts = judge(
        evidence,
        select_claims("VIT", "masked")[:1]
        + select_claims("VIT", "zoo")[-2:]
        + select_claims("VIT", "data")[:1],
    )
    print_verdicts(verdicts, wide := console(200))
    supported, refuted, unseen, partly = (
        " ".join(row.split()) for row in printed(wide).split("\nVIT-")[1:]
    )
    assert "✓ supported 30 [29.9, 30.1] ≥ 10 1" in supported
    assert "(3 of 3 parts hold)" in supported
    assert "✗ refuted 0.5 [" in refuted
    assert "? inconclusive" in unseen
    assert (
        "Missing: rollout of vit data=SYN-B and 1 more. vitreous study zoo measures it." in unseen
    )
    assert (
        "Missing: accuracy of vit fraction=0.1 schedule=samples and 4 more. vitreous study data"
        in partly
    )
    assert "4 claims: 1 supported, 1 refuted, 2 inconclusive." in partly


def test_no_torch_is_needed() -> None:
    code = "import sys; from vitreous.commands.claim_tables import *; print_claims(); print_claim('VIT-16')"
    code += "; assert not {'torch', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
