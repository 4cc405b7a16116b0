"""Every outcome of a single effect, at intervals that are known."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, log, nan

import numpy as np
import pytest

from vitreous.claims.effects import (
    Effect,
    Outcome,
    at_least,
    at_most,
    less,
    more,
    noted,
    within,
)
from vitreous.claims.quantity import NORMAL_95, REPLICATES, Quantity
from vitreous.claims.statistics import estimate_effect


def known(value: float, reach: float = 0.0, trainings: int = 3) -> Quantity:
    """Trainings that agree, with a 95 % interval over images of about `value` ± `reach`."""
    noise = np.tile([-1.0, 1.0], REPLICATES // 2) * reach / NORMAL_95
    rows = np.concatenate([[value], value + noise])
    return Quantity(dict.fromkeys(range(trainings), rows))


def ratio(value: float, factor: float = 1.0) -> Quantity:
    """A ratio with a 95 % interval of about `value` / `factor` to `value` * `factor`."""
    return known(log(value), log(factor)).map(np.exp)


@pytest.mark.parametrize(
    ("value", "reach", "wanted"),
    [
        (5.0, 1.0, "reproduced"),  # half of the paper's 10
        (5.0, 4.5, "reproduced"),  # certainly above zero, and the value counts
        (4.9, 1.0, "weaker"),
        (0.2, 0.1, "weaker"),
        (0.5, 1.0, "no effect"),  # zero is possible, half of the paper's is not
        (-0.5, 1.0, "no effect"),
        (-0.5, 0.1, "opposite"),
        (-5.0, 1.0, "opposite"),
        (4.0, 4.5, "undecided"),  # both zero and half of the paper's are possible
        (0.0, 6.0, "undecided"),
        (nan, 0.0, "undecided"),
        (inf, 0.0, "undecided"),
    ],
)
def test_outcomes_beside_the_value_of_the_paper(
    value: float, reach: float, wanted: Outcome
) -> None:
    assert more("", known(value, reach), paper=10.0).outcome == wanted
    assert less("", known(-value, reach), paper=-10.0).outcome == wanted
    assert more("", known(3.0 + value, reach), 3.0, paper=13.0).outcome == wanted
    assert more("", known(value, reach), matters=5.0).outcome == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(0.2, "reproduced"), (0.05, "undecided"), (-0.05, "undecided"), (-0.2, "opposite")],
)
def test_without_a_size_the_direction_decides_and_nothing_is_no_effect(
    value: float, wanted: Outcome
) -> None:
    assert more("", known(value, 0.1)).outcome == wanted
    assert less("", known(-value, 0.1)).outcome == wanted


def test_if_the_papers_value_contradicts_its_sentence_the_direction_decides() -> None:
    """As in a claim whose sentence and whose figure do not agree."""
    effect = more("", known(0.2, 0.1), paper=-4.0)
    assert effect.required_distance == 0.0
    assert (effect.outcome, effect.share_of_paper) == ("reproduced", None)


@pytest.mark.parametrize(
    ("value", "factor", "wanted"),
    [
        (2.0, 1.1, "reproduced"),  # half of a fourfold, in logarithms
        (1.9, 1.1, "weaker"),
        (1.05, 1.2, "no effect"),
        (0.8, 1.1, "opposite"),
        (1.5, 2.0, "undecided"),
    ],
)
def test_ratios_are_judged_by_their_logarithms(
    value: float, factor: float, wanted: Outcome
) -> None:
    """So that a ratio and its inverse have the same outcome."""
    effect = more("", ratio(value, factor), 1.0, paper=4.0)
    inverse = less("", ratio(1 / value, factor), 1.0, paper=0.25)
    assert effect.ratio
    assert effect.outcome == inverse.outcome == wanted
    assert effect.threshold == pytest.approx(2.0)
    assert inverse.threshold == pytest.approx(0.5)
    assert more("", ratio(value, factor), 1.0, matters=log(2.0)).outcome == wanted


def test_a_negative_number_is_not_judged_as_a_ratio() -> None:
    effect = more("", known(-0.5, 0.1), 1.0)
    assert not effect.ratio
    assert effect.outcome == "opposite"


@pytest.mark.parametrize(
    ("value", "reach", "wanted"),
    [
        (2.0, 0.0, "reproduced"),  # at the bound
        (2.5, 0.4, "reproduced"),
        (2.1, 0.4, "undecided"),
        (1.9, 0.4, "undecided"),
        (1.5, 0.4, "opposite"),
    ],
)
def test_the_whole_interval_has_to_keep_a_bound(
    value: float, reach: float, wanted: Outcome
) -> None:
    assert at_least("", known(value, reach), 2.0).outcome == wanted
    assert at_most("", known(-value, reach), -2.0).outcome == wanted


def test_a_bound_of_one_does_not_make_a_ratio() -> None:
    effect = at_most("", known(0.9, 0.05), 1.0)
    assert (effect.ratio, effect.outcome, effect.threshold) == (False, "reproduced", 1.0)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("value", "reach", "wanted"),
    [
        (0.0, 1.9, "reproduced"),
        (0.05, 1.9, "reproduced"),
        (0.15, 1.9, "undecided"),
        (3.0, 1.1, "undecided"),
        (3.0, 0.9, "opposite"),
    ],
)
def test_equivalence_is_two_one_sided_tests(
    value: float, reach: float, wanted: Outcome, sign: int
) -> None:
    assert within("", known(sign * value, reach), 2.0).outcome == wanted


def test_trainings_that_differ_make_an_effect_uncertain() -> None:
    """Student's t with two degrees of freedom: 4.30 standard errors, not 1.96."""

    def effect(*values: float) -> Effect:
        rows = {seed: np.full(1 + REPLICATES, value) for seed, value in enumerate(values)}
        return more("", Quantity(rows), paper=4.0)

    assert effect(2.0, 3.0, 4.0).measured.low == pytest.approx(3.0 - 4.302653 / 3**0.5)
    assert effect(2.0, 3.0, 4.0).outcome == "reproduced"
    assert effect(1.0, 3.0, 5.0).outcome == "undecided"


def test_saturated_models_decide_nothing() -> None:
    full = Quantity(known(5.0, 1.0).seeds, saturated=True)
    for effect in (more("", full), at_least("", full, 1.0), within("", full, 9.0)):
        assert effect.saturated
        assert effect.outcome == "undecided"


def test_what_is_noted_has_no_outcome() -> None:
    effect = noted("", known(5.0, 1.0), paper=3.0)
    assert (effect.outcome, effect.direction, effect.criterion) == (None, None, "noted")
    assert effect.measured.value == 5.0


def test_what_was_not_measured_is_undecided() -> None:
    for effect in (more("", Quantity({})), within("", Quantity({}), 1.0)):
        assert effect.outcome == "undecided"
        assert effect.seeds == 0


@pytest.mark.parametrize(
    ("effect", "share"),
    [
        (more("", known(5.0), paper=10.0), 0.5),
        (less("", known(-15.0), paper=-10.0), 1.5),
        (more("", known(-5.0), paper=10.0), -0.5),
        (more("", known(4.0), 3.0, paper=7.0), 0.25),
        (more("", ratio(2.0), 1.0, paper=4.0), 0.5),
        (more("", known(5.0)), None),
        (more("", known(5.0), paper=0.0), None),
        (within("", known(0.5), 1.0, paper=0.2), None),
        (at_most("", known(0.3), 0.35, paper=0.25), None),
        (at_least("", known(0.9), 0.5, paper=0.7), None),
    ],
)
def test_share_of_the_paper(effect: Effect, share: float | None) -> None:
    assert effect.share_of_paper == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("effect", "threshold", "criterion"),
    [
        (more("", known(1.0)), 0.0, "more than 0 for certain"),
        (less("", known(1.0), 0.5), 0.5, "less than 0.5 for certain"),
        (
            more("", known(1.0), paper=10.0),
            5.0,
            "more than 0 for certain, at least 5 (half of the paper's effect)",
        ),
        (
            less("", known(1.0), 0.5, paper=0.1),
            0.3,
            "less than 0.5 for certain, at most 0.3 (half of the paper's effect)",
        ),
        (less("", known(1.0), matters=2.0), -2.0, "less than 0 for certain, at most -2"),
        (
            more("", ratio(2.0), 1.0, matters=log(3.0)),
            3.0,
            "more than 1 for certain, at least 3",
        ),
        (at_least("", known(1.0), 0.9), 0.9, "at least 0.9"),
        (at_most("", known(1.0), 2.0), 2.0, "at most 2"),
        (within("", known(1.0), 0.5), 0.0, "within 0.5 of 0"),
    ],
)
def test_thresholds_and_criteria(effect: Effect, threshold: float, criterion: str) -> None:
    assert effect.threshold == pytest.approx(threshold)
    assert effect.criterion == criterion


def with_control(trained: Quantity, untrained: Quantity, **size: float) -> Effect:
    return more("", trained, **size).with_control(more("", untrained, **size))


@pytest.mark.parametrize(
    ("trained", "untrained", "shown", "holds", "learned"),
    [
        (5.0, 0.0, False, False, "reproduced"),
        (5.0, 5.0, True, True, "no effect"),
        (5.0, 7.0, True, True, "opposite"),
        (5.0, 1.0, True, False, "reproduced"),
        (5.0, 4.0, True, False, "weaker"),
        (5.0, -2.0, False, False, "reproduced"),
    ],
)
def test_what_untrained_networks_show(
    trained: float, untrained: float, shown: bool, holds: bool, learned: Outcome
) -> None:
    effect = with_control(known(trained, 0.2), known(untrained, 0.2), matters=2.0)
    assert effect.shown_untrained is shown
    assert effect.holds_untrained is holds
    # The images are the same, so that their noise drops out of the difference.
    assert effect.learned is not None
    assert effect.learned.value == pytest.approx(trained - untrained)
    assert effect.learned.spread == pytest.approx(0.0, abs=1e-9)
    if trained != untrained:
        assert effect.judge_learned() == learned


def test_what_training_adds_to_a_ratio_is_a_ratio() -> None:
    trained, untrained = (more("", ratio(each, 1.05), 1.0) for each in (6.0, 2.0))
    effect = trained.with_control(untrained)
    assert effect.learned is not None
    assert effect.learned.value == pytest.approx(3.0)
    assert effect.control == untrained.measured
    assert effect.judge_learned() == "reproduced"


def test_a_bound_that_untrained_networks_keep_is_shown_by_them() -> None:
    trained = at_most("", known(0.5, 0.1), 1.0)
    for value, shown in ((0.8, True), (1.5, False), (1.0, False)):
        effect = trained.with_control(at_most("", known(value, 0.1), 1.0))
        assert effect.shown_untrained is effect.holds_untrained is shown


@pytest.mark.parametrize(
    ("value", "reach", "learned"),
    [
        (1.5, 0.1, True),  # does not keep it
        (1.0, 0.3, True),  # may keep it, and certainly has more
        (0.6, 0.6, False),
    ],
)
def test_a_bound_that_untrained_networks_may_keep(
    value: float, reach: float, learned: bool
) -> None:
    """It is learned if trained networks are certainly farther on its side."""
    effect = at_most("", known(0.5, 0.1), 1.0).with_control(at_most("", known(value, reach), 1.0))
    assert (effect.is_learned, effect.holds_untrained) == (learned, False)


@pytest.mark.parametrize(
    ("untrained", "reach", "learned"),
    [(0.0, 1.0, True), (3.0, 4.0, False), (5.0, 0.2, False), (3.0, 0.2, True), (-3.0, 0.2, True)],
)
def test_what_is_learned_is_certain_of_the_difference(
    untrained: float, reach: float, learned: bool
) -> None:
    """That trained networks certainly show it and untrained ones do not is not enough."""
    effect = with_control(known(5.0, 0.2), known(untrained, reach))
    assert effect.is_learned is learned
    assert effect.holds_untrained is (effect.shown_untrained and not learned)


def test_untrained_networks_that_were_not_measured_show_nothing() -> None:
    effect = with_control(known(5.0, 0.2), Quantity({}))
    assert effect.control is None
    assert not effect.shown_untrained
    assert effect.judge_learned() is None


def test_a_ratio_whose_untrained_control_is_not_positive() -> None:
    """Zero before training has no logarithm; such a control does not show the effect."""
    for untrained in (0.0, -0.5):
        effect = more("", ratio(3.0, 1.1), 1.0).with_control(more("", known(untrained, 0.1), 1.0))
        assert not effect.shown_untrained
        assert not effect.holds_untrained


def test_p_values_are_those_of_the_interval() -> None:
    effect = more("", known(1.0, 1.0, trainings=1))
    assert effect.p_value == pytest.approx(0.05, abs=0.005)
    assert more("", ratio(exp(1.0), exp(1.0)), 1.0).p_value == pytest.approx(0.05, abs=0.005)
    assert np.isnan(more("", known(nan)).p_value)


def test_a_ratio_is_known_as_one_before_it_is_measured() -> None:
    """Half as much again is 1.5, not 1 + log 1.5."""
    effect = more("", Quantity({}), 1.0, matters=log(1.5))
    assert effect.threshold == pytest.approx(1.5)
    assert effect.criterion == "more than 1 for certain, at least 1.5"


@pytest.mark.parametrize(
    ("added", "holds"), [(0.0, True), (4.0, True), (5.0, False), (6.0, False), (-9.0, True)]
)
def test_what_may_be_learned_does_not_hold_untrained(added: float, holds: bool) -> None:
    """Training adds nothing certain: it is the architecture's only if what training seems to add is
    less than the size that counts, here half of 10. Without a size, whatever it seems to add."""
    for size, expected in (({"paper": 10.0}, holds), ({}, True)):
        effect = more("", known(20 + added, 1.0), **size)
        uncertain = estimate_effect(known(added, 8.0))
        effect = replace(effect, control=estimate_effect(known(20, 1.0)), learned=uncertain)
        assert effect.shown_untrained
        assert effect.holds_untrained is (expected or added == -9.0)
