"""What is said of many verdicts together: Holm's correction, counts and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from claims.test_verdicts import better, computed, entered, exact, known, of, verdict
from vitreous.claims.book import Claim, Paper
from vitreous.claims.effects import Effect, more
from vitreous.claims.evidence import Evidence, Query
from vitreous.claims.preconditions import Precondition
from vitreous.claims.verdicts import (
    OUTCOMES,
    Verdict,
    _apply_holm,
    by_paper,
    count_outcomes,
    judge,
    sentences_on_chance,
    summarise,
)


def _only(effect: Effect, models: Query) -> list[Effect]:
    return [effect]


def many(*p_like: tuple[float, float]) -> list[Verdict]:
    """Verdicts on effects of these values and reaches, in their order."""
    claims = [
        entered(partial(_only, more("main", known(*each))), f"ABC-{number:02d}")
        for number, each in enumerate(p_like, 1)
    ]
    return judge(Evidence([]), claims)


def test_holm_marks_what_is_certain_only_by_itself() -> None:
    """An effect of 1.1 half-widths has p = 0.03: certain alone, not as the weakest but one of
    four."""
    strong, weak, none = (1.0, 0.1), (1.1, 1.0), (0.1, 1.0)
    (alone,) = many(weak)
    assert (alone.outcome, alone.survives) == ("reproduced", True)
    found = many(strong, weak, none, none)
    assert [each.survives for each in found] == [True, False, None, None]
    assert [each.outcome for each in found] == [
        "reproduced",
        "reproduced",
        "undecided",
        "undecided",
    ]


def test_what_counts_only_if_learned_has_the_larger_p_value() -> None:
    """The effect is far from zero; what training adds has an interval that just leaves out zero.
    Alone it is certain, and beside others it is not."""
    trained, untrained = known(3.0, 0.1), known(1.9, 1.0)
    effect = more("main", trained).with_control(more("main", untrained))
    assert effect.learned is not None
    verdicts = many((1.0, 0.1), (0.1, 1.0), (0.1, 1.0))
    alone, *_ = [replace(each, effects=(effect,)) for each in verdicts]
    assert effect.p_value < 1e-6
    assert 0.01 < alone.p_value == effect.learned.p_value(0.0) < 0.05
    shown = replace(alone, outcome="holds untrained")  # which is about both networks alike
    assert shown.p_value == effect.p_value
    assert _apply_holm([alone])[0].survives
    assert _apply_holm([alone, *verdicts[1:]])[0].survives is False


def test_effects_that_are_not_tested_do_not_count_in_holm() -> None:
    weak = entered(lambda models: [more("main", known(1.1, 1.0))], "ABC-01")
    uncertain = [more("main", known(0.1, 1.0))]
    requires = (Precondition("note", "Never here."),)
    others = [
        entered(lambda models: uncertain, f"ABC-{number:02d}", requires=requires)
        for number in range(2, 9)
    ]
    assert judge(Evidence([]), [weak, *others])[0].survives


def test_sentences_on_chance() -> None:
    found = many((1.0, 0.1), (1.1, 1.0), (0.1, 1.0), (0.1, 1.0))
    assert sentences_on_chance(found) == [
        "Of 4 main effects 2 are certain; by chance alone we would expect at most 0.2.",
        "1 stay certain when all are judged together (Holm), 1 of the 2 reproduced among them; not "
        "ABC-02.",
    ]
    once = of(more("main", known(1.0, 0.1, trainings=1)))
    assert sentences_on_chance([once]) == [
        "Of 1 main effect 1 is certain; by chance alone we would expect at most 0.1.",
        "1 is seen once: it rests on fewer than 3 trainings.",
    ]
    assert sentences_on_chance([verdict(computed, exact(one=0.0, other=0.0))]) == []


def test_the_paragraph_counts_what_was_measured() -> None:
    found = [*many((1.0, 0.1), (-1.0, 0.1), (1.0, 0.1)), verdict(better)]
    assert summarise(found).startswith(
        "4 claims, 3 of them measured. 2 reproduced, 1 opposite. Of 3 main effects 3 are certain;"
    )
    assert summarise([verdict(better)]) == "1 claim, 0 of them measured."


def test_counts_are_in_the_order_of_outcomes_without_those_of_none() -> None:
    found = many((0.1, 1.0), (-1.0, 0.1), (1.0, 0.1), (1.0, 0.1))
    counts = count_outcomes(found)
    assert list(counts.items()) == [("reproduced", 2), ("opposite", 1), ("undecided", 1)]
    assert list(counts) == [outcome for outcome in OUTCOMES if outcome in counts]


def test_verdicts_by_paper_keep_their_order() -> None:
    other = Paper("XYZ", "Another", "Somebody", 2001, "")
    claims: Sequence[Claim] = [
        entered(better, "ABC-01"),
        entered(better, "XYZ-01", paper=other),
        entered(better, "ABC-02"),
    ]
    found = by_paper(judge(Evidence([]), claims))
    assert {paper.key: [v.claim.id for v in verdicts] for paper, verdicts in found.items()} == {
        "ABC": ["ABC-01", "ABC-02"],
        "XYZ": ["XYZ-01"],
    }
