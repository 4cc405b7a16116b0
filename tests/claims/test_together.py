"""What chance gives, against scipy, values by hand, and simulation."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
import pytest
from scipy.stats import norm
from vitreous.claims.together import by_chance, counts, doubt, holm, summary

from claims.cases.dosovitskiy_2021 import CASES
from vitreous.claims import dosovitskiy_2021
from vitreous.claims.evidence import Evidence
from vitreous.claims.verdicts import judge

PART = Part("an effect", 2.0, 1.0, 3.0, threshold=0.5, versus=0.0, seeds=1)


def test_the_p_value_is_that_of_the_interval() -> None:
    """An interval that just touches no effect belongs to 5 %."""
    assert doubt(replace(PART, effect=1.0, low=0.0, high=2.0)) == pytest.approx(0.05)
    deviation = 1 / norm.ppf(0.975)
    assert doubt(PART) == pytest.approx(2 * norm.sf(2 / deviation))
    assert doubt(replace(PART, effect=-2.0, low=-9.0, high=-1.0)) == pytest.approx(
        2 * norm.sf(2 / deviation)
    )


@pytest.mark.parametrize(
    "part",
    [
        replace(PART, threshold=None),
        replace(PART, versus=None),
        replace(PART, effect=nan),
        replace(PART, low=2.0, high=2.0),
    ],
    ids=["only noted", "no sign", "unknown", "exact"],
)
def test_where_chance_has_no_part(part: Part) -> None:
    assert doubt(part) is None
    assert by_chance([part]) == 0


def test_holm_step_by_step() -> None:
    """Sorted, the four of the second line meet 0.0125, 0.0167, 0.025 and 0.05; Bonferroni would believe one."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert holm([0.011, 0.016, 0.024, 0.049]) == [True, True, True, True]
    assert holm([0.013, 0.001, 0.001, 0.2]) == [True, True, True, False]
    assert holm([0.02, 0.02]) == [True, True]
    assert holm([0.03, 0.03]) == [False, False]
    assert holm([]) == []


def test_holm_errs_once_in_twenty_times() -> None:
    draws = np.random.default_rng(0).uniform(size=(4000, 12))
    assert np.mean([any(holm(row.tolist())) for row in draws]) == pytest.approx(0.05, abs=0.012)


def test_how_many_chance_gives() -> None:
    assert by_chance([PART] * 40) == pytest.approx(1.0)
    assert by_chance([replace(PART, seeds=3)] * 8) == pytest.approx(8 * 0.025 + 1)


def test_the_paragraph() -> None:
    claims = [find(dosovitskiy_2021.BOOK, f"VIT-{number:02d}") for number in (9, 14, 20, 23)]
    evidence = Evidence(
        [*CASES["VIT-09"].supported, *CASES["VIT-14"].refuted, *CASES["VIT-23"].refuted]
    )
    verdicts = judge(evidence, claims)
    (found,) = counts(verdicts).values()
    assert found == {"supported": 1, "refuted": 2, "inconclusive": 1}
    said = summary(verdicts)
    assert said.startswith(
        "4 claims: 1 supported, 2 refuted, 1 inconclusive. 1 of the inconclusive ones lack"
    )
    assert "5 effects whose sign was judged at 95 %" in said
    assert "up to 0.1 would seem certain" in said
    assert "Of 3 that support a claim 3 stay certain" in said


def test_a_sign_that_many_comparisons_take_away_is_named() -> None:
    (verdict,) = judge(Evidence(CASES["VIT-23"].supported), [find(dosovitskiy_2021.BOOK, "VIT-23")])
    weak = replace(
        verdict, parts=tuple(replace(PART, effect=1.0, low=0.1, high=1.9) for _ in range(9))
    )
    assert (
        "Of 9 that support a claim 0 stay certain if all are judged together (Holm); not so for VIT-23."
        in summary([weak])
    )
