"""From effects to a verdict on a claim, and what can be said of many verdicts together.

    identity            exact and computed; no images have a part in it
    reproduced          the main effect has the paper's direction for certain, is at least half of
                        the paper's size (or of the size that matters), and is not there untrained
    weaker              its direction is certain, and it is smaller than that
    no effect           its interval holds the null and excludes half of the paper's value
    opposite            the other direction is certain
    mixed               the main effect is reproduced or weaker, and a supporting one is opposite
    holds untrained     untrained networks show it, too, and training adds nothing certain to it,
                        and less than half of the paper's size
    not testable here   a precondition is not met
    undecided           too few images or trainings to tell, or not measured

With fewer than three trainings a verdict is "seen once". Withdrawn findings are judged and counted
apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import Literal

from vitreous.claims.book import CheckFailed, Claim, Paper
from vitreous.claims.effects import Effect
from vitreous.claims.evidence import Evidence, Need, Query, Scale
from vitreous.claims.no_replicates import NoReplicates
from vitreous.claims.quantity import SATURATED
from vitreous.claims.statistics import holm
from vitreous.claims.student_t import LEVEL
from vitreous.errors import VitreousError, reason

Outcome = Literal[
    "reproduced",
    "weaker",
    "mixed",
    "no effect",
    "opposite",
    "holds untrained",
    "undecided",
    "not testable here",
    "identity",
]
OUTCOMES: tuple[Outcome, ...] = (
    "reproduced",
    "weaker",
    "mixed",
    "no effect",
    "opposite",
    "holds untrained",
    "undecided",
    "not testable here",
    "identity",
)
"""In the order in which they are shown."""
ENOUGH_SEEDS = 3
"""Trainings below which a verdict is "seen once"."""


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Parameters
    ----------
    effects
        The main effect first, then those that support it or are noted.
    data, scale
        The images it was judged on.
    missing
        Results that were not there.
    notes
        Sentences on how the verdict came about.
    failed
        The error, where the check itself failed.
    survives
        Whether the main effect stays certain when those of all claims are judged together (Holm);
        None if it is not certain by itself.
    options
        Those of the study that the evidence is from.
    """

    claim: Claim
    outcome: Outcome
    effects: tuple[Effect, ...]
    data: str
    scale: Scale
    missing: tuple[Need, ...] = ()
    notes: tuple[str, ...] = ()
    failed: str = ""
    survives: bool | None = None
    options: str = ""

    @property
    def judged(self) -> list[Effect]:
        """The effects that are more than noted."""
        return [effect for effect in self.effects if effect.direction is not None]

    @property
    def main(self) -> Effect | None:
        return next(iter(self.judged), None)

    @property
    def supporting(self) -> list[Effect]:
        return self.judged[1:]

    @property
    def agreeing(self) -> int:
        """How many supporting effects go the paper's way."""
        return sum(effect.outcome in ("reproduced", "weaker") for effect in self.supporting)

    @property
    def measured(self) -> bool:
        """Whether its main effect could be computed, or a precondition tells that it need not
        be."""
        known = self.main is not None and isfinite(self.main.measured.value)
        return known or self.outcome == "not testable here"

    @property
    def seeds(self) -> int:
        """Trainings that its main effect rests on."""
        return self.main.seeds if self.main is not None else 0

    @property
    def tested(self) -> bool:
        """Whether its main effect has an interval, and could thus be certain by chance."""
        exempt = self.outcome in ("identity", "not testable here")
        return not exempt and self.main is not None and self.main.measured.spread > 0

    @property
    def p_value(self) -> float:
        """Of the main effect: the larger of two where it counts only if training adds to it, that
        against no effect and that against untrained networks. NaN if it was not tested."""
        main = self.main
        if main is None or not self.tested:
            return nan
        if main.learned is None or main.judge_learned() is None or main.bound is not None:
            return main.p_value
        if main.outcome not in ("reproduced", "weaker") or self.outcome == "holds untrained":
            return main.p_value
        return max(main.p_value, main.learned.p_value(1.0 if main.ratio else 0.0))

    @property
    def seen_once(self) -> bool:
        """Whether it rests on fewer trainings than a verdict should."""
        decided = self.outcome not in ("identity", "undecided", "not testable here")
        return decided and self.seeds < ENOUGH_SEEDS

    @property
    def command(self) -> str:
        """The command that would supply what is missing."""
        if self.measured and not self.missing:
            return ""
        return f"{self.claim.command} {self.options}".rstrip()


def judge(evidence: Evidence, claims: Iterable[Claim]) -> list[Verdict]:
    """Judge every claim on the evidence.

    A check that fails costs its own verdict only, which then says why.

    Examples
    --------
    >>> from vitreous.claims import every_claim, loading
    >>> inspection = vitreous.inspect("nano:vit", probes=["skip_ratio"], limit=8)
    >>> verdicts = judge(loading.load_evidence(inspection.save("numbers")), every_claim())
    >>> len(verdicts) == len(every_claim())
    True
    """
    verdicts = [_guarded(evidence, claim) for claim in claims]
    return _correct([replace(verdict, options=evidence.options) for verdict in verdicts])


def _guarded(evidence: Evidence, claim: Claim) -> Verdict:
    try:
        return _judge_one(evidence, claim)
    except NoReplicates as error:
        raise error.with_command(claim.command) from None
    except Exception as error:  # whatever an odd model makes of a check written for others
        if isinstance(error, VitreousError) and not isinstance(error, CheckFailed):
            raise  # a damaged file, which its owner can mend
        why = error.why if isinstance(error, CheckFailed) else reason(error)
        data, query = evidence.query(claim.task)
        note = f"It could not be judged: {why}"
        return Verdict(claim, "undecided", (), data, query.scale, (), (note,), why)


def _judge_one(evidence: Evidence, claim: Claim) -> Verdict:
    data, query = evidence.query(claim.task)
    effects = list(claim.evaluate(query))
    if claim.has_control(query.scale):
        effects = _with_control(evidence, claim, effects)
    _, required = evidence.query(claim.task)
    unmet = claim.unmet(required)
    missing = tuple({str(need): need for need in query.missing}.values())
    verdict = Verdict(claim, "undecided", tuple(effects), data, query.scale, missing)
    outcome, notes = _decide(verdict, unmet, query)
    return replace(verdict, outcome=outcome, notes=tuple(dict.fromkeys([*query.notes, *notes])))


def _with_control(evidence: Evidence, claim: Claim, effects: list[Effect]) -> list[Effect]:
    """The main effect beside that of the same networks before training."""
    _, untrained = evidence.query(claim.task, untrained=True)
    control = next((e for e in claim.evaluate(untrained) if e.direction is not None), None)
    if control is None:
        return effects
    return [
        effect.with_control(control)
        if effect.direction and number == _main_place(effects)
        else effect
        for number, effect in enumerate(effects)
    ]


def _main_place(effects: Sequence[Effect]) -> int:
    return next(number for number, effect in enumerate(effects) if effect.direction is not None)


def _decide(verdict: Verdict, unmet: Sequence[str], query: Query) -> tuple[Outcome, list[str]]:
    """The outcome, and sentences on how it came about."""
    main = verdict.main
    if unmet:
        return "not testable here", list(unmet)
    if main is None or main.outcome is None or not isfinite(main.measured.value):
        silent = main is not None and not verdict.missing and not query.notes
        return "undecided", ["The effect is not a finite number."] if silent else []
    if main.saturated:
        return "undecided", [
            f"The models compared are right on {SATURATED:g} % of the images or more: there is no "
            "room to differ."
        ]
    if query.needs and all(need.result == "identities" for need in query.needs):
        exact = all(effect.outcome == "reproduced" for effect in verdict.judged)
        return ("identity" if exact else "opposite"), []
    notes = []
    if main.measured.spread == 0:
        if main.seeds < ENOUGH_SEEDS:
            return "undecided", [
                "It is read off the record of a training, which has no interval: it needs "
                f"{ENOUGH_SEEDS} trainings, and there {'is' if main.seeds == 1 else 'are'} "
                f"{main.seeds}."
            ]
        notes.append(
            f"All {main.seeds} trainings have exactly this number, which tells nothing of how much "
            "others would differ."
        )
    if main.outcome not in ("reproduced", "weaker"):
        return main.outcome, notes
    outcome, more = _decide_present(verdict, main, main.outcome)
    return outcome, [*notes, *more]


def _decide_present(verdict: Verdict, main: Effect, outcome: Outcome) -> tuple[Outcome, list[str]]:
    """The outcome of a main effect that is there, given untrained networks and what supports it."""
    if main.holds_untrained:
        return "holds untrained", [_what_training_adds(main)]
    notes = []
    if not main.controlled and verdict.claim.has_control(verdict.scale):
        notes.append(
            "Untrained networks were not measured, so it may be a property of the architecture."
            if main.control is None
            else "Untrained networks have no such number to compare with."
        )
    elif main.control is not None and not main.is_learned:
        return "undecided", [
            "It is there, in untrained networks, too; how much training adds to it is not certain."
            if main.shown_untrained
            else "It is there, but whether training adds to what untrained networks have is not "
            "certain."
        ]
    learned = main.judge_learned()
    if main.shown_untrained and learned in ("reproduced", "weaker"):
        outcome = learned
        notes.append("Untrained networks show a part of it; judged is what training adds.")
    against = [effect.label for effect in verdict.supporting if effect.outcome == "opposite"]
    if against:
        return "mixed", [*notes, f"The opposite holds of: {'; '.join(against)}."]
    return outcome, notes


def _what_training_adds(main: Effect) -> str:
    learned = main.judge_learned()
    if learned == "opposite":
        return "Untrained networks show more of it than trained ones."
    if learned == "no effect":
        return "Untrained networks show it, and training adds less than the size that counts."
    return "Untrained networks show it, and training adds nothing certain."


def _correct(verdicts: list[Verdict]) -> list[Verdict]:
    """Mark the verdicts whose main effect is no longer certain when all are judged together."""
    tested = [number for number, verdict in enumerate(verdicts) if isfinite(verdict.p_value)]
    p_values = [verdicts[number].p_value for number in tested]
    for number, p_value, survives in zip(tested, p_values, holm(p_values), strict=True):
        if p_value < LEVEL:
            verdicts[number] = replace(verdicts[number], survives=survives)
    return verdicts


def count_outcomes(verdicts: Iterable[Verdict]) -> dict[Outcome, int]:
    """How many claims have which verdict, in the order of `OUTCOMES`; those that nobody has are
    left out."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    return {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]}


def by_paper(verdicts: Iterable[Verdict]) -> dict[Paper, list[Verdict]]:
    """Verdicts by paper, in their order."""
    papers: dict[Paper, list[Verdict]] = {}
    for verdict in verdicts:
        papers.setdefault(verdict.claim.paper, []).append(verdict)
    return papers


def summarise(verdicts: Sequence[Verdict]) -> str:
    """A paragraph on all verdicts."""
    measured = [verdict for verdict in verdicts if verdict.measured]
    sentences = [f"{_claims(len(verdicts))}, {len(measured)} of them measured."]
    counts = count_outcomes(measured)
    if counts:
        sentences.append(f"{_listed(counts)}.")
    return " ".join([*sentences, *sentences_on_chance(measured)])


def _claims(count: int) -> str:
    return f"{count} claim{'s' * (count != 1)}"


def _listed(counts: dict[Outcome, int]) -> str:
    words = [f"{count} {outcome}" for outcome, count in counts.items()]
    text = ", ".join(words)
    return text[:1].upper() + text[1:]


def sentences_on_chance(verdicts: Sequence[Verdict]) -> list[str]:
    """How many effects would seem certain by chance, and which stay certain after correction."""
    tested = [verdict for verdict in verdicts if isfinite(verdict.p_value)]
    if not tested:
        return []
    certain = [verdict for verdict in tested if verdict.p_value < LEVEL]
    lost = [verdict.claim.id for verdict in certain if not verdict.survives]
    once = sum(verdict.seen_once for verdict in tested)
    sentences = [
        f"Of {len(tested)} main effect{'s' * (len(tested) != 1)} {len(certain)} "
        f"{'is' if len(certain) == 1 else 'are'} certain; by chance alone we would expect at most "
        f"{LEVEL * len(tested):.1f}."
    ]
    if lost:
        reproduced = [verdict for verdict in certain if verdict.outcome == "reproduced"]
        kept = sum(bool(verdict.survives) for verdict in reproduced)
        sentences.append(
            f"{len(certain) - len(lost)} stay certain when all are judged together (Holm), {kept} "
            f"of the {len(reproduced)} reproduced among them; not {', '.join(lost)}."
        )
    if once:
        seen = "is seen once: it rests" if once == 1 else "are seen once: they rest"
        sentences.append(f"{once} {seen} on fewer than {ENOUGH_SEEDS} trainings.")
    return sentences
