"""Findings of Park and Kim where the small version differs from the large one."""

from __future__ import annotations

import pytest

from claims.cases.park_2022_architecture import exact
from claims.synthetic import accuracy, exhibit
from vitreous import claims
from vitreous.claims.claim import find, judge
from vitreous.claims.evidence import Evidence, Exhibit
from vitreous.claims.park_2022.alternet import FEW, SMALL_BUILD_UP

HOLDS = {
    "attention_leak_from_constant": 3e-16,
    "attention_eighth_power_ratio": 1e-4,
    "random_attention_lowers_ratio": 1.0,
    "random_mlp_raises_high_share": 1.0,
    "random_convolutions_raise_high_share": 0.99,
    "random_attention_variance_ratio": 0.02,
}
FAILS = dict.fromkeys(HOLDS, 0.5) | {"random_attention_variance_ratio": 1.1}


def outcome(id: str, evidence: list[Exhibit]) -> str:
    (found,) = judge(Evidence(evidence), [find(claims.every(), id)])
    return found.outcome


@pytest.mark.parametrize("id", ["HDV-26", "HDV-28", "HDV-29", "HDV-34"])
def test_on_two_cores_what_holds_of_any_network_is_computed(id: str) -> None:
    embedded = exhibit("vit", accuracy(90), data="SYN-E")
    assert outcome(id, [embedded, *exact(**HOLDS)]) == "supported"
    assert outcome(id, [embedded, *exact(**FAILS)]) == "refuted"


def small(percents: list[float], fraction: float | None = None) -> list[Exhibit]:
    pairs = zip(SMALL_BUILD_UP, percents, strict=True)
    return [exhibit("alternet", accuracy(p), msas=msas, fraction=fraction, data="SYN-B") for msas, p in pairs]


def test_on_two_cores_alternet_is_built_up_in_three_stages() -> None:
    assert outcome("HDV-43", small([80, 81, 82, 83])) == "supported"
    assert outcome("HDV-43", small([80, 79, 78, 77])) == "refuted"
    assert outcome("HDV-47", [*small([80, 81, 82, 83]), *small([60, 62, 61, 60], FEW)]) == "supported"
    assert outcome("HDV-47", [*small([80, 82, 81, 80]), *small([60, 61, 62, 63], FEW)]) == "refuted"


def test_on_two_cores_local_attention_is_in_windows() -> None:
    others = [exhibit("vit", accuracy(60), data="SYN-B"), exhibit("vit", accuracy(65), pool="gap", data="SYN-B")]
    near = exhibit("vit", accuracy(68), kernel=5, data="SYN-B")
    assert outcome("HDV-56", [exhibit("window", accuracy(70), data="SYN-B"), near, *others]) == "supported"
    assert outcome("HDV-56", [exhibit("window", accuracy(61), data="SYN-B"), near, *others]) == "refuted"
