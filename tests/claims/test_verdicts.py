"""From effects to verdicts: each of the nine, and their notes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from claims.synthetic import accuracy, item, result, training
from vitreous.claims.book import Check, Claim, Paper
from vitreous.claims.effects import Effect, at_most, less, more, noted
from vitreous.claims.evidence import Evidence, EvidenceItem, Query
from vitreous.claims.preconditions import Precondition
from vitreous.claims.quantity import NORMAL_95, REPLICATES, Quantity
from vitreous.claims.readings import accuracy as accuracy_of
from vitreous.claims.readings import identity, train_nll, variances
from vitreous.claims.verdicts import (
    Outcome,
    Verdict,
    judge,
)
from vitreous.storage.atomic_files import Damaged

PAPER = Paper("ABC", "A paper", "Nobody", 2000, "")


def entered(check: Check, id: str = "ABC-01", **about: Any) -> Claim:
    about = {"sentence": "A sentence.", "place": "Fig. 1", "reported": "nothing", **about}
    return Claim(id=id, paper=about.pop("paper", PAPER), study="zoo", check=check, **about)


def verdict(check: Check, *items: EvidenceItem, **about: Any) -> Verdict:
    (found,) = judge(Evidence(items), [entered(check, **about)])
    return found


def known(value: float, reach: float = 0.1, trainings: int = 3) -> Quantity:
    """Trainings that agree, with a 95 % interval over images of about `value` ± `reach`."""
    noise = np.tile([-1.0, 1.0], REPLICATES // 2) * reach / NORMAL_95
    return Quantity({seed: np.concatenate([[value], value + noise]) for seed in range(trainings)})


def of(*effects: Effect, **about: Any) -> Verdict:
    return verdict(lambda models: list(effects), **about)


def percents(trainings: int = 3, **models: float) -> list[EvidenceItem]:
    return [
        item(model, accuracy(percent), seed=seed)
        for model, percent in models.items()
        for seed in range(trainings)
    ]


def better(models: Query) -> Iterator[Effect]:
    gap = accuracy_of(models("vit")) - accuracy_of(models("resnet"))
    yield more("points", gap, paper=4.0)
    yield noted("accuracy of a Mixer", accuracy_of(models("mixer")))


@pytest.mark.parametrize(
    ("value", "reach", "wanted"),
    [
        (3.0, 0.1, "reproduced"),
        (1.0, 0.1, "weaker"),
        (0.0, 0.1, "no effect"),
        (-1.0, 0.1, "opposite"),
        (1.0, 9.0, "undecided"),
    ],
)
def test_the_main_effect_decides(value: float, reach: float, wanted: Outcome) -> None:
    found = of(more("main", known(value, reach), paper=4.0), more("other", known(1.0, 9.0)))
    assert (found.outcome, found.seeds, found.seen_once) == (wanted, 3, False)
    assert found.main is found.effects[0]
    assert found.notes == ()


def test_what_is_noted_is_never_the_main_effect() -> None:
    found = of(noted("a number", known(-9.0)), more("main", known(1.0)))
    assert found.main is found.effects[1]
    assert (found.outcome, found.supporting) == ("reproduced", [])


def test_supporting_effects_are_counted() -> None:
    found = of(
        more("main", known(3.0), paper=4.0),
        more("agrees", known(1.0)),
        more("agrees a little", known(1.0), paper=9.0),
        more("is not there", known(0.0), paper=9.0),
        noted("a number", known(1.0)),
    )
    assert (found.outcome, found.agreeing, len(found.supporting)) == ("reproduced", 2, 3)


@pytest.mark.parametrize("value", [3.0, 1.0])
def test_mixed_names_what_is_opposite(value: float) -> None:
    against = [more("one", known(-1.0)), less("other", known(1.0)), more("third", known(1.0))]
    found = of(more("main", known(value), paper=4.0), *against)
    assert found.outcome == "mixed"
    assert found.notes == ("The opposite holds of: one; other.",)


def test_a_missing_main_effect_is_not_mixed() -> None:
    for value, wanted in ((0.0, "no effect"), (-1.0, "opposite")):
        found = of(more("main", known(value), paper=4.0), more("other", known(-1.0)))
        assert found.outcome == wanted


# Untrained controls.


def smooth(models: Query) -> Iterator[Effect]:
    """On a measurement that untrained networks have, too."""
    yield less("mean variance minus one", variances(models("vit")).mean() - 1.0, matters=0.3)


def varied(trained: float, untrained: float | None, reach: float = 0.05) -> list[EvidenceItem]:
    def measured(value: float) -> Any:
        row = {"unit": "a", "kind": "attention", "value": value}
        return result("variance", [{**row, "low": value - reach, "high": value + reach}])

    return [
        item("vit", measured(value), seed=seed, **facts)
        for seed in range(3)
        for value, facts in ((trained, {}), (untrained, {"checkpoint": "start"}))
        if value is not None
    ]


@pytest.mark.parametrize(
    ("trained", "untrained", "wanted", "note"),
    [
        (0.5, 1.0, "reproduced", ""),
        (0.5, 1.4, "reproduced", ""),
        (
            0.5,
            0.5,
            "holds untrained",
            "Untrained networks show it, and training adds less than the size that counts.",
        ),
        (0.5, 0.3, "holds untrained", "Untrained networks show more of it than trained ones."),
        (0.4, 0.8, "reproduced", "Untrained networks show a part of it"),
        (0.4, 0.6, "weaker", "Untrained networks show a part of it"),
        (1.5, 0.5, "opposite", ""),
    ],
)
def test_the_untrained_control(
    trained: float, untrained: float, wanted: Outcome, note: str
) -> None:
    found = verdict(smooth, *varied(trained, untrained))
    assert found.outcome == wanted
    assert found.notes[0].startswith(note) if note else found.notes == ()
    assert found.main is not None
    assert found.main.control is not None
    assert found.main.control.value == pytest.approx(untrained - 1.0)


def test_a_control_that_was_not_measured_is_missed() -> None:
    found = verdict(smooth, *varied(0.5, None))
    assert found.outcome == "reproduced"
    assert found.notes == (
        "Untrained networks were not measured, so it may be a property of the architecture.",
    )


def test_a_claim_may_do_without_a_control() -> None:
    found = verdict(smooth, *varied(0.5, 0.5), control=False)
    assert (found.outcome, found.notes) == ("reproduced", ())


# Preconditions and withdrawn findings.


def test_not_testable_says_every_reason_and_comes_before_all_else() -> None:
    requires = (
        Precondition("classes", 50),
        Precondition("accuracy", 80, ("vit",)),
        Precondition("matched", 2, ("vit", "resnet")),
    )
    found = verdict(better, *percents(vit=90, resnet=60), requires=requires)
    assert found.outcome == "not testable here"
    assert found.notes == (
        "It needs images of at least 50 classes; these have 10.",
        "It needs models that are at most 2 points of accuracy apart; "
        "vit and resnet are 30.0 points apart.",
    )
    assert found.measured
    assert not found.seen_once
    alone = verdict(better, *percents(vit=90, resnet=60), requires=requires[1:2])
    assert alone.outcome == "reproduced"
    assert alone.notes == (
        "All 3 trainings have exactly this number, which tells nothing of how much others would "
        "differ.",
    )


def test_an_unknown_precondition_does_not_stop_a_claim() -> None:
    requires = (Precondition("steps", 100, ("vit",)),)
    found = verdict(better, *percents(vit=90, resnet=60), requires=requires)
    assert found.outcome == "reproduced"


def test_what_was_withdrawn_is_judged_all_the_same() -> None:
    found = of(more("main", known(1.0)), withdrawn="by its authors")
    assert (found.outcome, found.claim.withdrawn) == ("reproduced", "by its authors")


# What is exact.


def computed(models: Query) -> Iterator[Effect]:
    for name in ("one", "other"):
        yield at_most(name, identity(models("identities"), name), 1e-5)


def exact(**values: float) -> EvidenceItem:
    rows = [{"measure": name, "value": value} for name, value in values.items()]
    table = [{**row, "low": row["value"], "high": row["value"]} for row in rows]
    return item("identities", result("identities", table), data="")


def test_an_identity_is_exact_in_every_part() -> None:
    assert verdict(computed, exact(one=0.0, other=1e-7)).outcome == "identity"
    assert verdict(computed, exact(one=0.0, other=0.1)).outcome == "opposite"
    assert verdict(computed, exact(one=0.1, other=0.0)).outcome == "opposite"
    assert not verdict(computed, exact(one=0.0, other=0.0)).seen_once


# Too little to tell.


def test_fewer_than_three_trainings_are_seen_once() -> None:
    def effect(value: float, reach: float, trainings: int) -> Effect:
        return more("main", known(value, reach, trainings), paper=4.0)

    for trainings, once in ((1, True), (2, True), (3, False)):
        for value in (3.0, 1.0, -1.0):
            assert of(effect(value, 0.1, trainings)).seen_once is once
    assert not of(effect(1.0, 9.0, 1)).seen_once  # undecided anyway


def recorded(models: Query) -> Iterator[Effect]:
    yield more("training loss", train_nll(models("vit")))


def losses(*values: float) -> list[EvidenceItem]:
    return [
        item("vit", training([{"measure": "train_nll", "epoch": 9, "value": value}]), seed=seed)
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(("count", "there"), [(1, "there is 1"), (2, "there are 2")])
def test_records_without_an_interval_need_three_trainings(count: int, there: str) -> None:
    found = verdict(recorded, *losses(*[1.0] * count))
    assert found.outcome == "undecided"
    assert found.notes == (
        "It is read off the record of a training, which has no interval: it needs 3 trainings, "
        f"and {there}.",
    )
    assert verdict(recorded, *losses(1.0, 1.1, 1.2)).outcome == "reproduced"


def test_two_trainings_that_differ_have_no_interval_over_images_either() -> None:
    """Student's t has one degree of freedom then, and its interval is wide."""
    assert verdict(recorded, *losses(1.0, 1.1)).seen_once
    assert verdict(recorded, *losses(1.0, 1.3)).outcome == "undecided"


@pytest.mark.parametrize(
    ("vit", "resnet", "wanted"),
    [
        (99.1, 100.0, "undecided"),
        (100.0, 99.0, "undecided"),
        (98.9, 100.0, "opposite"),
        (100.0, 97.0, "reproduced"),
    ],
)
def test_models_that_have_nothing_left_to_learn_decide_nothing(
    vit: float, resnet: float, wanted: Outcome
) -> None:
    found = verdict(better, *percents(vit=vit, resnet=resnet))
    assert found.outcome == wanted
    assert any("no room to differ" in note for note in found.notes) == (wanted == "undecided")


@pytest.mark.parametrize("value", [nan, inf])
def test_an_effect_that_is_not_finite_is_undecided_with_a_note(value: float) -> None:
    found = of(more("ratio", Quantity.exactly(value)))
    assert found.outcome == "undecided"
    assert found.notes == ("The effect is not a finite number.",)
    assert not found.measured


def test_what_is_not_finite_is_told_although_other_numbers_are_missing() -> None:
    found = verdict(better, *percents(vit=80.0, resnet=nan))
    assert found.outcome == "undecided"
    assert [str(need) for need in found.missing] == ["accuracy of mixer"]
    assert found.notes == ("The effect is not a finite number.",)


def test_nothing_to_judge_is_undecided() -> None:
    for found in (of(), of(noted("a number", known(1.0)))):
        assert (found.outcome, found.main, found.seeds) == ("undecided", None, 0)
        assert not found.measured
        assert found.notes == ("Its check yields no effect that could decide.",)


def test_what_was_not_measured_is_named_once_with_the_command_that_would() -> None:
    found = verdict(better, *percents(vit=90))
    assert (found.outcome, found.measured) == ("undecided", False)
    assert [str(need) for need in found.missing] == ["accuracy of resnet", "accuracy of mixer"]
    assert found.command == "vitreous study zoo"


def test_a_verdict_does_not_wait_for_what_is_only_noted() -> None:
    found = verdict(better, *percents(vit=90, resnet=80))
    assert found.outcome == "reproduced"
    assert [str(need) for need in found.missing] == ["accuracy of mixer"]
    complete = verdict(better, *percents(vit=90, resnet=80, mixer=70))
    assert (complete.missing, complete.command) == ((), "")


# Checks that fail.


def test_a_failing_check_does_not_affect_other_verdicts() -> None:
    def failing(models: Query) -> Iterator[Effect]:
        yield more("main", known(1.0))
        raise IndexError("no such\n  layer")

    claims = [entered(better, "ABC-01"), entered(failing, "ABC-02"), entered(better, "ABC-03")]
    first, failed, last = judge(Evidence(percents(vit=90, resnet=80)), claims)
    assert first.outcome == last.outcome == "reproduced"
    assert (failed.outcome, failed.effects, failed.data) == ("undecided", (), "cifar10")
    assert re.fullmatch(r"IndexError: no such layer \(test_verdicts\.py, line \d+\)", failed.failed)
    assert failed.notes == (f"It could not be judged: {failed.failed}",)
    assert not failed.measured


def test_a_damaged_file_is_raised() -> None:
    def damaged(models: Query) -> list[Effect]:
        raise Damaged(Path("accuracy.json"), "its checksum differs", "measure it again")

    with pytest.raises(Damaged, match="accuracy"):
        verdict(damaged)
