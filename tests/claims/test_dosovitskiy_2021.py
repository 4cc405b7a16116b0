"""What the claims of Dosovitskiy et al. ask on two cores, and where they could go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from claims.cases import dosovitskiy_2021 as made
from claims.synthetic import item, result
from vitreous.claims.dosovitskiy_2021 import BOOK
from vitreous.claims.dosovitskiy_2021.inside import on_the_object
from vitreous.claims.evidence import Evidence, EvidenceItem, Query
from vitreous.claims.verdicts import Verdict, judge


def verdict(id: str, items: list[EvidenceItem]) -> Verdict:
    (found,) = judge(Evidence(items), [find(BOOK, id)])
    return found


@pytest.mark.parametrize(
    ("without", "anywhere", "outcome"),
    [(25, 90.5, "supported"), (60, 90.5, "refuted"), (25, 80, "refuted")],
)
def test_positions_matter_where_a_place_is_asked_for_and_nowhere_else(
    without: float, anywhere: float, outcome: str
) -> None:
    control = made.trained("vit", 91, 3, "SYN-B") + made.trained(
        "vit", anywhere, 3, "SYN-B", positions="none"
    )
    found = verdict("VIT-01", made.positions(without, 98, 99, 99, "SYN-C") + control)
    assert (found.outcome, found.data, found.scale) == (outcome, "SYN-C", "sanity")


def test_two_trainings_are_too_few_to_tell_kinds_of_positions_apart() -> None:
    two = [each for each in made.positions(60, 65, 64.8, 64.9) if each.seed < 2]
    found = verdict("VIT-02", two)
    assert found.outcome == "inconclusive"
    assert found.notes == ("3 trainings of each model are needed, and there are 2.",)


@pytest.mark.parametrize(("before", "outcome"), [(0.02, "supported"), (-0.35, "refuted")])
def test_the_grid_is_learned_and_not_given(before: float, outcome: str) -> None:
    items = [
        made.grid(-0.35, 0.1, data="SYN-E"),
        made.grid(before, 0.0, data="SYN-E", moment="start"),
    ]
    assert verdict("VIT-04", items).outcome == outcome


@pytest.mark.parametrize(
    ("id", "good", "bad"),
    [
        ("VIT-06", {"interpolation_constant": 1e-7, "interpolation_linear": 1e-7, "interpolation_class": 0.0},
         {"interpolation_constant": 1e-7, "interpolation_linear": 0.02, "interpolation_class": 0.0}),
        ("VIT-22", {"zero_head_scores": 0.0}, {"zero_head_scores": 1e-3}),
    ],
)  # fmt: skip
def test_what_two_cores_compute_instead_of_training(
    id: str, good: dict[str, float], bad: dict[str, float]
) -> None:
    small = item("vit", result("accuracy", [{"value": 1.0}]), data="world:shapes")
    for measures, outcome in ((good, "supported"), (bad, "refuted")):
        found = verdict(id, [small, made.exact(**measures)])
        assert (found.outcome, found.scale) == (outcome, "sanity")


@pytest.mark.parametrize(
    ("token", "pooled", "outcome"),
    [
        ((76, 80, 79), (76, 79.6, 78), "supported"),  # one best rate, and worse there
        ((76, 80, 79), (76, 77, 78), "refuted"),  # another best rate, and still far behind
        (
            (76, 80, 79),
            (70, 80.2, 79),
            "refuted",
        ),  # one best rate, and no worse: nothing to explain
    ],
)
def test_rates_and_pooling(
    token: tuple[float, ...], pooled: tuple[float, ...], outcome: str
) -> None:
    assert verdict("VIT-07", made.rates(token, pooled)).outcome == outcome


def test_what_is_lost_at_the_rate_of_another() -> None:
    """Best of both 80.5 with the mean at a third of the rate; at the class token's best, the mean has 78."""
    found = verdict("VIT-07", made.rates((76, 80, 79), (80.5, 78, 70)))
    assert found.parts[1].effect == pytest.approx(2.5, abs=0.05)
    assert found.parts[0].effect == pytest.approx(0.5, abs=0.05)


def test_filters_are_judged_with_larger_patches_in_the_small_world() -> None:
    assert {need.facts.get("patch") for need in find(BOOK, "VIT-08").needs("sanity")} == {8}
    assert {need.facts.get("patch") for need in find(BOOK, "VIT-08").needs("ten")} == {None}


@pytest.mark.parametrize("broken", ["share", "frequency", "overlap"])
def test_each_property_of_filters_is_needed(broken: str) -> None:
    good = {"share": 0.1, "frequency": 0.3, "overlap": 0.8}
    bad = {"share": 0.05, "frequency": 0.6, "overlap": 0.5}
    start = made.filters(0.02, 0.76, 0.25, moment="start")
    assert verdict("VIT-08", [made.filters(**good), start]).outcome == "supported"
    assert (
        verdict("VIT-08", [made.filters(**{**good, broken: bad[broken]}), start]).outcome
        == "refuted"
    )


def test_no_share_of_a_gain_that_is_none() -> None:
    """After masked patches all are worse than from scratch; 0.7 of a loss is less than the loss."""
    items = [
        *made.trained("vit", 65, **made.MASKED), *made.trained("vit", 70, **made.TENTH),
        *made.trained("vit", 69, unlabelled=0.2, **made.MASKED), *made.trained("vit", 69, steps=0.1, **made.MASKED),
    ]  # fmt: skip
    found = verdict("VIT-19", items)
    assert found.outcome == "refuted"
    assert [part.outcome for part in found.parts] == ["refuted", "supported", "supported"]


def rolled(inside: list[float], box: list[float], **facts: Any) -> EvidenceItem:
    rows = [{"tile": last, "inside": share if last else 1.0, "box": size, "value": 0.5}
            for share, size in zip(inside, box, strict=True) for last in (False, True)]  # fmt: skip
    return item("vit", result("rollout", rows), data="SYN-B", **facts)


def test_what_rests_on_the_object_is_read_off_the_last_layer() -> None:
    look = Query(others=[rolled([0.2, 0.4, 0.6], [0.1, 0.1, 0.2])])
    (found,) = on_the_object(models("vit", data="SYN-B")).seeds.values()
    assert found[0] == pytest.approx(1.2 / 0.4)
    assert 2.0 <= found[1:].min() < found[0] < found[1:].max() <= 4.0


def test_trained_and_untrained_are_compared_on_the_same_images() -> None:
    """Images differ a hundredfold and each gains the same, so that only a pairwise comparison can tell."""
    generator = np.random.default_rng(0)
    before = (0.002 * 100 ** generator.uniform(size=40)).tolist()
    gained = [
        rolled([share * 1.05 for share in before], [0.01] * 40),
        rolled(before, [0.01] * 40, moment="start"),
    ]
    trained, gain = verdict("VIT-16", gained).parts
    assert gain.low > 0
    assert gain.high - gain.low < 0.2 * (trained.high - trained.low)


def test_rollout_of_images_without_boxes_is_no_evidence() -> None:
    bare = [rolled([np.nan] * 3, [np.nan] * 3), rolled([np.nan] * 3, [np.nan] * 3, moment="start")]
    found = verdict("VIT-16", bare)
    assert found.outcome == "inconclusive"
    assert "does not say what lies inside the boxes" in found.notes[0]
