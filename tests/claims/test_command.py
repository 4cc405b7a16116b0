"""What is printed about claims."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from rich.console import Console

from claims.cases.dosovitskiy_2021 import CASES
from claims.synthetic import three_seeds
from vitreous import claims
from vitreous.claims.evidence import Evidence, Query
from vitreous.claims.verdicts import judge
from vitreous.commands.claim_tables import (
    criterion_text,
    print_claim,
    print_claims,
    select_claims,
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
    """With its criteria, all that it needs, and nothing that a terminal would take for a style."""
    print_claim(id.lower(), wide := console(400))
    said = printed(wide)
    (claim,) = (claim for claim in claims.every_claim() if claim.id == id)
    assert claim.sentence in said
    assert claim.withdrawn in said
    for effect in claim.check(Query()):
        assert effect.direction is None or criterion_text(effect) in said
    for requirement in claim.requires:
        assert str(requirement) in said
    for need in claim.needs():
        assert (str(need) if need.result != "identities" else "exact properties") in said


def test_criteria_by_scale_and_conflicts() -> None:
    print_claim("VIT-04", wide := console())
    assert "with a hundred classes and with ten classes:" in printed(wide)
    assert "less than 0 for certain, at most -0.3" in printed(wide)
    print_claim("VIT-07", wide := console(400))
    assert "Mean pooling is no worse than a class token" in printed(wide)
    print_claim("HDV-34", wide := console(400))
    assert "compared with the same networks before training" in printed(wide)


def test_verdicts_are_grouped_and_say_what_is_missing() -> None:
    evidence = Evidence(three_seeds([*CASES["VIT-06"].holds, *CASES["VIT-14"].fails]))
    chosen = [c for c in claims.every_claim() if c.id in ("VIT-06", "VIT-14", "VIT-16")]
    verdicts = judge(evidence, chosen)
    print_verdicts(verdicts, wide := console(200))
    text = printed(wide)
    assert text.index("reproduced (1)") < text.index("opposite (1)")
    assert text.index("opposite (1)") < text.index("not measured (1)")
    assert "Missing: rollout of vit data=SYN-B" in text
    assert "vitreous study zoo measures it." in text
    print_verdicts(verdicts, short := console(200), everything=False)
    assert "VIT-06" in printed(short)
    assert "VIT-16" not in printed(short)
    assert "--all shows them" in printed(short)


def test_no_torch_is_needed() -> None:
    """Neither is scipy for the list; power needs its special functions, which load fast."""
    code = "import sys; from vitreous.commands.claim_tables import *; print_claims(); "
    code += "assert not {'torch', 'scipy'} & set(sys.modules); print_claim('VIT-16'); "
    code += "assert not {'torch', 'scipy.stats', 'scipy.optimize'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_power_of_three_trainings_is_shown() -> None:
    for id, sentence in (
        ("HDV-01", "if 2 is true, 3 trainings have 80 % while their standard deviation is at most"),
        ("SLC-09", "if 1.5 is true, 3 trainings"),
        ("HDV-19", "80 % to be certain of an effect 3.3 times as large as the standard deviation"),
    ):
        print_claim(id, wide := console(400))
        assert sentence in printed(wide)
    print_claim("VIT-05", wide := console(400))  # exact
    assert "trainings" not in printed(wide)
