"""Findings of Park and Kim: every part counts by itself, and the small versions that differ from
the large ones."""

from __future__ import annotations

import pytest

from claims.cases import park_2022_architecture as architecture
from claims.cases import park_2022_features as features
from claims.cases.park_2022_architecture import exact
from claims.synthetic import accuracy, item, three_seeds
from vitreous import claims
from vitreous.claims.book import find_claim
from vitreous.claims.evidence import Evidence, EvidenceItem
from vitreous.claims.park_2022.alternet import FEW_SHARE, SMALL_BUILD_UP
from vitreous.claims.verdicts import judge

HOLDS = {
    "attention_leak_from_constant": 3e-16,
    "attention_eighth_power_ratio": 1e-4,
    "random_attention_lowers_ratio": 1.0,
    "random_mlp_raises_high_share": 1.0,
    "random_convolutions_raise_high_share": 0.99,
    "random_attention_variance_ratio": 0.02,
}
FAILS = dict.fromkeys(HOLDS, 0.5) | {"random_attention_variance_ratio": 1.1}


LOW, HIGH = [-2.0] * 5, [0.0, 4.0, 9.0, 9.0]
BUILT = architecture.PAPER
VARIANCE = features.PAPER_VARIANCE
VIT = item("vit", features.variance(features.blocks([0.9] * 4, [1.2] * 4), ratios=True))
FOR = [
    (
        "HDV-31",  # by the mean
        [
            item("swin", features.fourier(features.blocks([0.3, -0.3], [0, 0]))),
            *features.vit_frequencies([-0.1, -0.1], [0, 0]),
        ],
    ),
    (
        "HDV-35",
        [VIT, features.resnet_variance(*VARIANCE[:3], (0.2, 0.19))],
    ),  # in the mean over stages
    ("HDV-43", architecture.built((*BUILT[:5], 82.0))),  # by the best
]
AGAINST = [
    (
        "HDV-26",
        features.vit_frequencies([-0.01] * 8 + [0.3] * 4, [0.0] * 12),
    ),  # layers, but not the mean
    ("HDV-28", features.vit_frequencies([0.3] * 12, [0.1] * 12)),  # MLPs sharpen, attention more so
    (
        "HDV-29",
        [features.resnet_frequencies(*features.PAPER_HIGHS[:2], (-4.0, -4.0), (-1.0, -1.0))],
    ),  # one stage falls
    ("HDV-30", features.ends(vit=-2.5, resnet=-2.5)),
    ("HDV-32", features.band_noise([2.0] * 5 + HIGH)),
    ("HDV-32", features.band_noise([*LOW, 0.0, -9.0, 4.0, 4.0])),
    ("HDV-33", [features.cues("vit", 80, low_pass=50), features.cues("resnet", 40, low_pass=30)]),
    ("HDV-36", [features.resnet_variance(*VARIANCE[:2], (0.8, 0.4), VARIANCE[3])]),  # stage 3
    (
        "HDV-40",
        [features.resnet_lesion((5, 4), (0.2, 0.1), (4, 3.5), (3, 2.9))],
    ),  # stage 2 is early
    (
        "HDV-41",
        [features.swin_lesion((*features.SWIN_ATTENTION[:3], (2.0, 1.0)), features.SWIN_MLP)],
    ),
    ("HDV-43", architecture.built((82.5, 82.0, *BUILT[2:]))),  # not the first one
    ("HDV-45", architecture.robust(-1.0, 1.7)),
    ("HDV-46", architecture.curved(569, 0.005)),
    ("HDV-52", architecture.blurred(80.1, corrupted=65)),
    ("HDV-52", architecture.blurred(81, start=82)),
    ("HDV-52", architecture.blurred(81, nll=1.2)),
    ("HDV-52", architecture.blurred(81, corrupted=59)),
    ("HDV-52", architecture.blurred(81, ape=110)),
    ("HDV-53", architecture.mixed(70, 60, 50)),
    ("HDV-56", architecture.reaching(swin=32, near=28)),
    (
        "HDV-57",
        [
            *architecture.trained(-0.5, 3, order="falling"),
            *architecture.trained(0.5, 3, order="constant"),
        ],
    ),
]


def outcome(id: str, evidence: list[EvidenceItem]) -> str:
    (found,) = judge(Evidence(three_seeds(evidence)), [find_claim(claims.every_claim(), id)])
    return found.outcome


@pytest.mark.parametrize(("id", "evidence"), FOR)
def test_evidence_for_the_sentence_is_enough_to_reproduce_it(
    id: str, evidence: list[EvidenceItem]
) -> None:
    assert outcome(id, evidence) == "reproduced"


@pytest.mark.parametrize(("id", "evidence"), AGAINST)
def test_one_effect_that_fails_shows_in_the_verdict(id: str, evidence: list[EvidenceItem]) -> None:
    assert outcome(id, evidence) in ("mixed", "weaker", "no effect", "opposite")


@pytest.mark.parametrize("id", ["HDV-26", "HDV-28", "HDV-29", "HDV-34"])
def test_on_two_cores_what_holds_of_any_network_is_computed(id: str) -> None:
    embedded = item("vit", accuracy(90), data="SYN-E")
    assert outcome(id, [embedded, *exact(**HOLDS)]) == "identity"
    assert outcome(id, [embedded, *exact(**FAILS)]) == "opposite"


def small(percents: list[float], fraction: float | None = None) -> list[EvidenceItem]:
    pairs = zip(SMALL_BUILD_UP, percents, strict=True)
    return [
        item("alternet", accuracy(p), msas=msas, fraction=fraction, data="SYN-B")
        for msas, p in pairs
    ]


def test_on_two_cores_alternet_is_built_up_in_three_stages() -> None:
    assert outcome("HDV-43", small([80, 81, 82, 83])) == "reproduced"
    assert outcome("HDV-43", small([80, 79, 78, 77])) == "opposite"
    helped = [*small([80, 81, 82, 83]), *small([60, 62, 61, 60], FEW_SHARE)]
    assert outcome("HDV-47", helped) == "reproduced"
    hindered = [*small([80, 82, 81, 80]), *small([60, 61, 62, 63], FEW_SHARE)]
    assert outcome("HDV-47", hindered) == "opposite"


def test_on_two_cores_local_attention_is_in_windows() -> None:
    others = [
        item("vit", accuracy(60), data="SYN-B"),
        item("vit", accuracy(65), pool="gap", data="SYN-B"),
    ]
    near = item("vit", accuracy(68), kernel=5, data="SYN-B")
    assert (
        outcome("HDV-56", [item("window", accuracy(70), data="SYN-B"), near, *others])
        == "reproduced"
    )
    assert (
        outcome("HDV-56", [item("window", accuracy(61), data="SYN-B"), near, *others]) == "weaker"
    )
