"""How claims are entered, judged and found."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from claims.synthetic import accuracy, item
from vitreous.claims import readings
from vitreous.claims.book import Book, Check, Claim, Paper
from vitreous.claims.effects import Effect, at_least, at_most, less, more, noted
from vitreous.claims.evidence import Evidence, EvidenceItem, Query
from vitreous.claims.quantity import REPLICATES, Quantity
from vitreous.claims.verdicts import Outcome, Verdict, judge
from vitreous.errors import UnknownName

PAPER = Paper("ABC", "A paper", "Nobody", 2000, "")


def test_claims_stand_in_the_order_of_their_ids_whatever_file_enters_them_first() -> None:
    book = Book(PAPER)
    for id in ("ABC-10", "ABC-02", "ABC-01"):
        book.claim(id, "A sentence.", place="Fig. 1", reported="nothing", study="zoo")(
            lambda models: []
        )
    assert [claim.id for claim in book] == ["ABC-01", "ABC-02", "ABC-10"]


def test_as_much_is_no_less_but_not_more() -> None:
    doubtful, worse = (
        Quantity.drawn(0, "a", 0.0, -1.0, 1.0),
        Quantity.drawn(0, "b", -2.0, -3.0, -1.0),
    )
    assert [part("", doubtful).outcome for part in (no_less, more)] == ["supported", "inconclusive"]
    assert [part("", worse).outcome for part in (no_less, more)] == ["refuted", "refuted"]


def test_near_zero_on_either_side() -> None:
    wide = near("a difference", Quantity.drawn(0, "a", 0.5, -3.0, 3.0), 2.0)
    assert [part.outcome for part in wide] == [
        "inconclusive",
        "inconclusive",
    ]  # it may well be larger
    outcomes = {
        value: [part.outcome for part in near("a difference", Quantity.exactly(value), 2.0)]
        for value in (-3.0, -2.0, 1.0, 3.0)
    }
    assert outcomes == {
        -3.0: ["refuted", "supported"],
        -2.0: ["supported", "supported"],
        1.0: ["supported", "supported"],
        3.0: ["supported", "refuted"],
    }


def known(*values: float, low: float, high: float) -> Quantity:
    """A training for each value, whose 95 % interval reaches from so much below it to so much above."""
    ends = np.where(np.arange(REPLICATES) % 2, high, low)
    return Quantity(
        {seed: np.concatenate([[value], value + ends]) for seed, value in enumerate(values)}
    )


@pytest.mark.parametrize(
    ("value", "low", "high", "wanted"),
    [
        (2.0, -1.5, 1.5, "supported"),  # at the threshold, and certainly above zero
        (2.0, -2.5, 2.5, "inconclusive"),  # at the threshold, but perhaps below zero
        (2.0, -2.0, 2.0, "inconclusive"),  # perhaps zero
        (1.9, -0.5, 0.5, "inconclusive"),  # below the threshold, but perhaps above
        (1.9, -0.5, 0.1, "inconclusive"),  # perhaps at it
        (1.9, -0.5, 0.05, "refuted"),
        (-9.0, -0.5, 0.5, "refuted"),
        (nan, 0.0, 0.0, "inconclusive"),
    ],
)
def test_one_training_beside_a_threshold(
    value: float, low: float, high: float, wanted: Outcome
) -> None:
    assert at_least("", known(value, low=low, high=high), 2.0).outcome == wanted
    mirrored = known(-value, low=-high, high=-low)
    assert at_most("", mirrored, -2.0).outcome == wanted


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ((2.5, 2.5, 2.5), "supported"),  # each may be below zero, but they agree
        ((0.5, 3.0, 4.0), "supported"),
        ((2.5, 2.5), "inconclusive"),  # two are too few to count on that
        ((-0.5, 4.0, 4.0), "inconclusive"),  # they disagree
        ((0.0, 4.0, 4.0), "inconclusive"),
    ],
)
def test_three_trainings_that_agree_are_certain(values: tuple[float, ...], wanted: Outcome) -> None:
    assert at_least("", known(*values, low=-9.0, high=9.0), 2.0).outcome == wanted
    assert at_most("", -known(*values, low=-9.0, high=9.0), -2.0).outcome == wanted


def test_three_trainings_that_agree_on_too_small_an_effect_refute() -> None:
    assert at_least("", known(0.5, 0.6, 0.7, low=-0.1, high=0.1), 2.0).outcome == "refuted"


def test_a_ratio_is_compared_with_one() -> None:
    ratio = known(0.5, low=-0.1, high=0.6)
    assert (
        at_most("", ratio, 0.7).outcome == "inconclusive"
    )  # no sign was asked for, and it may be more
    assert at_most("", known(0.5, low=-0.1, high=0.1), 0.7).outcome == "supported"
    assert at_most("", ratio, 0.7, versus=1.0).outcome == "inconclusive"
    assert at_most("", known(0.5, low=-0.1, high=0.4), 0.7, versus=1.0).outcome == "supported"
    assert at_least("", known(1.6, low=-0.7, high=0.1), 1.5, versus=1.0).outcome == "inconclusive"


def test_equality_is_enough_for_a_bound_and_not_for_a_sign() -> None:
    for zero in (Quantity.exactly(0.0), known(0.0, 0.0, 0.0, low=0.0, high=0.0)):
        outcomes = [
            part("", zero, 0.0).outcome for part in (at_least, at_most, more, less, no_less)
        ]
        assert outcomes == ["supported", "supported", "refuted", "refuted", "supported"]
    assert at_most("", Quantity.exactly(1.0), 0.0).outcome == "refuted"
    assert (
        less("", Quantity.exactly(-1e-9)).outcome
        == more("", Quantity.exactly(1e-9)).outcome
        == "supported"
    )
    assert less("", known(-1.0, low=-1.0, high=1.0)).outcome == "inconclusive"  # may be equal


def test_what_is_noted_decides_nothing() -> None:
    part = noted("", known(1.0, low=-0.5, high=0.5), paper=3.0)
    assert (part.outcome, part.effect, part.low, part.high, part.paper) == (
        None,
        1.0,
        0.5,
        1.5,
        3.0,
    )


def entered(check: Check, **about: Any) -> Claim:
    book = Book(PAPER)
    book.claim("ABC-01", "A sentence.", place="Fig. 1", reported="nothing", study="zoo", **about)(
        check
    )
    return next(iter(book))


def verdict(check: Check, *items: EvidenceItem, **about: Any) -> Verdict:
    (found,) = judge(Evidence(items), [entered(check, **about)])
    return found


def better(models: Query) -> Iterator[Effect]:
    vit, resnet = models("vit"), models("resnet")
    yield at_least("points", readings.accuracy(vit) - readings.accuracy(resnet), 1.0)
    yield noted("accuracy of a Mixer", readings.accuracy(models("mixer")))


VIT, RESNET, MIXER = (
    item(model, accuracy(90.0 - i)) for i, model in enumerate(("vit", "resnet", "mixer"))
)


def test_what_was_not_measured_is_named_once_with_the_command_that_would() -> None:
    found = verdict(better, VIT)
    assert found.outcome == "inconclusive"
    assert [str(each) for each in found.missing] == ["accuracy of resnet", "accuracy of mixer"]
    assert found.command == "vitreous study zoo"
    assert [str(each) for each in entered(better).needs()] == [
        f"accuracy of {m}" for m in ("vit", "resnet", "mixer")
    ]


def test_a_verdict_does_not_wait_for_what_is_only_noted() -> None:
    found = verdict(better, VIT, RESNET)
    assert (found.outcome, found.seeds) == ("supported", 1)
    assert [str(each) for each in found.missing] == ["accuracy of mixer"]
    assert verdict(better, VIT, RESNET, MIXER).missing == ()


def test_trainings_below_which_nothing_is_decided() -> None:
    def trainings(count: int) -> list[EvidenceItem]:
        return [
            item(m, accuracy(p + s), seed=s)
            for m, p in (("vit", 90), ("resnet", 80))
            for s in range(count)
        ]

    found = verdict(better, *trainings(2), MIXER, seeds=3)
    assert found.outcome == "inconclusive"
    assert found.notes == ("3 trainings of each model are needed, and there are 2.",)
    found = verdict(better, *trainings(3), MIXER, seeds=3)  # what is noted may rest on fewer
    assert (found.outcome, found.notes) == ("supported", ())


@pytest.mark.parametrize(
    ("percents", "wanted"),
    [
        ((99.1, 100.0), "inconclusive"),
        ((100.0, 99.0), "inconclusive"),
        ((98.9, 100.0), "refuted"),
        ((100, 98), "supported"),
    ],
)
def test_models_that_have_nothing_left_to_learn_decide_nothing(
    percents: tuple[float, float], wanted: Outcome
) -> None:
    found = verdict(
        better,
        *(item(model, accuracy(p)) for model, p in zip(("vit", "resnet"), percents, strict=True)),
    )
    assert found.outcome == wanted
    assert any("no room to differ" in note for note in found.notes) == (wanted == "inconclusive")


def test_one_refuted_part_refutes_and_is_the_one_to_show() -> None:
    good, bad, open_ = (
        Quantity.exactly(1.0),
        Quantity.exactly(-1.0),
        known(0.5, low=-1.0, high=1.0),
    )

    def parts(*measures: Quantity) -> Verdict:
        return verdict(
            lambda models: [at_least(f"part {i}", each, 0.5) for i, each in enumerate(measures)]
        )

    assert parts(good, good).outcome == "supported"
    assert parts(good, open_).outcome == "inconclusive"
    assert parts(good, open_, bad).outcome == "refuted"
    assert (
        parts(bad, Quantity({})).outcome == "inconclusive"
    )  # not before all of it has been measured
    shown = [parts(*each).deciding for each in ((good, bad, open_), (good, open_), (good, good))]
    assert [each and each.says for each in shown] == ["part 1", "part 1", "part 0"]


@pytest.mark.parametrize("value", [nan, inf])
def test_what_is_no_finite_number_decides_nothing_and_says_so(value: float) -> None:
    found = verdict(lambda models: [at_least("ratio", Quantity.exactly(value), 0.5)])
    assert found.outcome == "inconclusive"
    assert found.notes == ("An effect is not a finite number.",)


def test_nothing_to_judge_is_no_support() -> None:
    assert verdict(lambda models: []).outcome == "inconclusive"
    assert (
        verdict(lambda models: [noted("a number", Quantity.exactly(1.0))]).outcome == "inconclusive"
    )


def test_a_claim_is_found_however_its_id_is_written() -> None:
    only = entered(better)
    assert find([only], "abc-01") is only
    with pytest.raises(UnknownName, match="ABC-01"):
        find([only], "ABC-1")
