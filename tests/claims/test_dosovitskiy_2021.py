"""What the claims of Dosovitskiy et al. ask on two cores, and where they could go wrong."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from claims.cases import dosovitskiy_2021 as made
from claims.synthetic import item, result
from vitreous.claims.book import find_claim
from vitreous.claims.dosovitskiy_2021 import BOOK
from vitreous.claims.dosovitskiy_2021.inside import on_the_object
from vitreous.claims.evidence import Evidence, EvidenceItem, Query, Scale
from vitreous.claims.verdicts import Verdict, judge


def verdict(id: str, items: list[EvidenceItem]) -> Verdict:
    (found,) = judge(Evidence(items), [find_claim(BOOK, id)])
    return found


@pytest.mark.parametrize(
    ("without", "anywhere", "outcome"),
    [(25, 90.5, "reproduced"), (60, 90.5, "mixed"), (25, 80, "mixed")],
)
def test_positions_matter_only_for_the_task_about_positions(
    without: float, anywhere: float, outcome: str
) -> None:
    control = made.trained("vit", 91, 3, "SYN-B") + made.trained(
        "vit", anywhere, 3, "SYN-B", positions="none"
    )
    found = verdict("VIT-01", made.positions(without, 98, 99, 99, "SYN-C") + control)
    assert (found.outcome, found.data, found.scale) == (outcome, "SYN-C", "sanity")


@pytest.mark.parametrize(
    ("id", "good", "bad"),
    [
        (
            "VIT-06",
            {
                "interpolation_constant": 1e-7,
                "interpolation_linear": 1e-7,
                "interpolation_class": 0.0,
            },
            {
                "interpolation_constant": 1e-7,
                "interpolation_linear": 0.02,
                "interpolation_class": 0.0,
            },
        ),
        ("VIT-22", {"zero_head_scores": 0.0}, {"zero_head_scores": 1e-3}),
    ],
)
def test_what_two_cores_compute_instead_of_training(
    id: str, good: dict[str, float], bad: dict[str, float]
) -> None:
    small = item("vit", result("accuracy", [{"value": 1.0}]), data="world:shapes")
    for measures, outcome in ((good, "identity"), (bad, "opposite")):
        found = verdict(id, [small, made.exact(**measures)])
        assert (found.outcome, found.scale) == (outcome, "sanity")


def test_filters_are_judged_with_larger_patches_in_the_small_world() -> None:
    for scale, patch in (("sanity", 8), ("ten", None)):
        needs = find_claim(BOOK, "VIT-08").needs(cast(Scale, scale))
        assert {n.facts.get("patch") for n in needs if n.result == "filters"} == {patch}


def rolled(inside: list[float], box: list[float], **facts: Any) -> EvidenceItem:
    rows = [
        {"tile": last, "inside": share if last else 1.0, "box": size, "value": 0.5}
        for share, size in zip(inside, box, strict=True)
        for last in (False, True)
    ]
    return item("vit", result("rollout", rows), data="SYN-B", **facts)


def test_what_rests_on_the_object_is_read_off_the_last_layer() -> None:
    models = Query(others=[rolled([0.2, 0.4, 0.6], [0.1, 0.1, 0.2])])
    (found,) = on_the_object(models("vit", data="SYN-B")).seeds.values()
    assert found[0] == pytest.approx(1.2 / 0.4)
    assert 2.0 <= found[1:].min() < found[0] < found[1:].max() <= 4.0


def test_rollout_of_images_without_boxes_is_no_evidence() -> None:
    bare = [
        rolled([np.nan] * 3, [np.nan] * 3),
        rolled([np.nan] * 3, [np.nan] * 3, checkpoint="start"),
    ]
    found = verdict("VIT-16", bare)
    assert found.outcome == "undecided"
    assert "does not say what lies inside the boxes" in found.notes[0]
