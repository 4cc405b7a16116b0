"""What the claims of Park and Kim about learning and curvature ask for at another scale, and what
they read."""

from __future__ import annotations

import numpy as np
import pytest

from claims.cases.park_2022_curvature import ERRATIC, SMOOTH, landscape, little, warm
from claims.cases.park_2022_learning import ERRORS, trained
from claims.synthetic import accuracy, item, three_seeds
from vitreous.claims.evidence import Evidence, EvidenceItem
from vitreous.claims.park_2022 import BOOK
from vitreous.claims.park_2022.curvature import farthest, highest, rise, turning
from vitreous.claims.park_2022.learning import contradictions
from vitreous.claims.quantity import REPLICATES, Quantity
from vitreous.claims.verdicts import judge


def outcome(id: str, items: list[EvidenceItem]) -> str:
    (found,) = judge(Evidence(three_seeds(items)), [BOOK.claims[id]])
    assert not found.missing
    return found.outcome


@pytest.mark.parametrize(("classes", "wanted"), [(10, "reproduced"), (100, "weaker")])
def test_a_gap_of_three_points_is_enough_for_few_classes_only(classes: int, wanted: str) -> None:
    errors = {**ERRORS, "resnet": 22.0, "swin": 23.0, "pit": 24.0, "vit": 25.0, "mixer": 26.0}
    zoo = [item(model, accuracy(100 - error, classes=classes)) for model, error in errors.items()]
    assert outcome("HDV-01", zoo) == wanted


def test_on_two_cores_few_and_many_images_are_of_one_task() -> None:
    errors = {
        ("vit", 0.05): 30.0,
        ("vit", None): 12.0,
        ("resnet", 0.05): 10.0,
        ("resnet", None): 10.0,
    }
    found = [
        trained(model, error, data="SYN-E", fraction=share)
        for (model, share), error in errors.items()
    ]
    assert outcome("HDV-03", found) == "reproduced"


def test_on_two_cores_heads_are_fewer_and_narrower() -> None:
    heads = [
        warm("vit", 0.5 - 0.1 * i, 50.0 - i, heads=2**i, head_dim=8, data="SYN-E") for i in range(4)
    ]
    assert outcome("HDV-23", heads) == "reproduced"
    widths = [
        warm("vit", 0.5 - 0.1 * i, 50.0 - i, heads=2, head_dim=4 * 2**i, data="SYN-E")
        for i in range(4)
    ]
    assert outcome("HDV-24", widths) == "reproduced"


def test_a_small_data_set_of_many_classes_is_all_of_it() -> None:
    needs = {str(need) for need in BOOK.claims["HDV-05"].needs("hundred")}
    assert needs == {"accuracy of resnet", "accuracy of vit epochs=4", "accuracy of vit"}
    assert all("fraction=0.2" in str(need) for need in BOOK.claims["HDV-05"].needs("ten"))


def test_a_resnet_that_is_not_convex_refutes_the_claim_for_any_vit() -> None:
    assert outcome("HDV-08", little(0.2, 0.9)) == "opposite"


def test_models_contradict_if_one_errs_more_and_has_less_loss_for_sure() -> None:
    def row(*values: float, spread: float = 0.0) -> Quantity:
        noise = spread * np.random.default_rng(0).standard_normal((1 + REPLICATES, len(values)))
        noise[0] = 0
        return Quantity({0: np.asarray(values) + noise})

    def count(errors: Quantity, losses: Quantity) -> float:
        return float(contradictions(errors, losses).values[0])

    assert count(row(10, 20, 30), row(1, 2, 3)) == 0
    assert count(row(10, 20, 30), row(3, 2, 1)) == 3
    assert count(row(10, 20, 30), row(1, 3, 2)) == 1
    assert count(row(10, 20, 30, spread=10.0), row(1, 3, 2)) == 0  # not for sure
    assert count(row(10, 20, 30), row(1, 3, 2, spread=1.0)) == 0
    assert not contradictions(Quantity({}), row(1, 2)).known


def test_landscapes_are_read_on_rings_and_losses_that_are_not_finite_are_infinite() -> None:
    _, models = Evidence(
        [item("vit", landscape(0.3, 2.5, norms=40.0)), item("resnet", landscape(0.2, np.nan))]
    ).query()
    vit, resnet = models("vit"), models("resnet")
    assert rise(vit, 0.1).values.tolist() == [0.3]
    assert [rise(vit, 0.8, term).values.tolist() for term in ("", "l2", "norms")] == [
        [2.5],
        [6.5],
        [4.5],
    ]
    assert (highest(vit).values.tolist(), highest(resnet).values.tolist()) == ([2.5], [np.inf])
    assert rise(resnet, 0.8).values.tolist() == [np.inf]
    assert not rise(vit, 0.5).known
    assert models.notes == ["landscape of vit has no ring of radius 0.5; 21 points have one"]


def test_trajectories_are_read_up_to_the_end() -> None:
    _, models = Evidence([item("vit", SMOOTH), item("resnet", ERRATIC)]).query()
    assert [farthest(models(model)).values.tolist() for model in ("vit", "resnet")] == [
        [1.0],
        [1.5],
    ]
    assert [turning(models(model)).values.tolist() for model in ("vit", "resnet")] == [
        [62.0],
        [92.0],
    ]
