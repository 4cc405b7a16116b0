"""Every claim reaches every verdict that its structure allows, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from claims.reachable import Evidences, reach, verdicts_by_structure
from claims.test_coverage import NULLS_OF_SHARES
from contracts.test_claims import cases
from vitreous import claims
from vitreous.claims.book import Claim

ROOT = Path(__file__).resolve().parents[2]
JUDGE = """
import sys, time
from vitreous import claims
from vitreous.claims.loading import load_evidence
from vitreous.claims.verdicts import judge
verdicts = judge(load_evidence(sys.argv[1]), claims.every_claim())
print(len(verdicts), "torch" in sys.modules, time.process_time())
"""


@pytest.mark.parametrize("claim", claims.every_claim(), ids=lambda claim: claim.id)
def test_it_reaches_what_its_structure_allows(claim: Claim) -> None:
    """Reproduced, weaker, no effect, opposite, mixed and undecided by moving what is read; holds
    untrained, where untrained networks show the same; not testable, where a precondition fails."""
    evidences = Evidences(claim, cases()[claim.id])
    verdict = evidences.judge()
    for effect in verdict.judged:
        if effect.measured.score is not None and effect.measured.score.few.kind == "share":
            assert effect.null in NULLS_OF_SHARES
    reachable = verdicts_by_structure(claim, verdict)
    found = reach(evidences, reachable)
    assert reachable <= found, f"It does not come to {', '.join(reachable - found)}."
    assert found <= reachable, f"It comes to {', '.join(found - reachable)}."


@pytest.mark.parametrize("claim", claims.every_claim(), ids=lambda claim: claim.id)
def test_a_failed_precondition_says_what_would_meet_it(claim: Claim) -> None:
    for requirement in claim.requires:
        verdict = Evidences(claim, cases()[claim.id]).judge(failed=requirement)
        assert verdict.outcome == "not testable here"
        assert verdict.notes


def test_judging_a_whole_study_takes_less_than_two_seconds(tmp_path: Path) -> None:
    """All three seeds of `vitreous study sanity`, 391 trainings, and all claims, from the start of
    Python on. The best of three: what else the machine does costs processor time, too."""
    [path] = sorted((ROOT / "results").glob("sanity-*.zip"))[-1:]
    ZipFile(path).extractall(tmp_path)
    taken: list[float] = []
    while len(taken) < 3 and min(taken, default=2.0) >= 2:
        done = subprocess.run(
            [sys.executable, "-c", JUDGE, str(tmp_path)], capture_output=True, check=True, text=True
        )
        count, imported, seconds = done.stdout.split()
        assert (int(count), imported) == (len(claims.every_claim()), "False")
        taken.append(float(seconds))
    assert min(taken) < 2
