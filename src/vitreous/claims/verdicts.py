"""Derive the verdict on a claim from its effects, and summarise many verdicts.

    identity            an exact property, computed without images
    reproduced          the main effect certainly has the paper's direction, is at least half of the
                        paper's size (or at least the size that matters), and untrained networks do
                        not show it
    weaker              its direction is certain, and it is smaller than that
    no effect           its interval contains the null and excludes half of the paper's effect
    opposite            the other direction is certain
    mixed               the main effect is reproduced or weaker, and a supporting one is opposite
    holds untrained     untrained networks show it as well; training does not certainly add to it,
                        and adds less than half of the paper's size
    not testable here   a precondition is not met
    undecided           too few images or trainings to tell, or not measured

With fewer than three trainings a verdict is "seen once". Withdrawn findings are judged and counted
separately."""

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
"""All outcomes, in the order in which they are shown."""
ENOUGH_SEEDS = 3
"""Number of trainings below which a verdict is "seen once"."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, with the effects it rests on.

    Parameters
    ----------
    effects
        The main effect first, then those that support it or are noted.
    data, scale
        The images it was judged on.
    missing
        Results that the claim needs and the evidence lacks.
    notes
        Sentences that explain the verdict.
    failed
        The error, if the check itself failed; else empty.
    survives
        Whether the main effect stays certain when those of all claims are judged together (Holm);
        None if it is not certain by itself.
    options
        Options of the study that the evidence is from.
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
        """The effects with a direction, without those that are only noted."""
        return [effect for effect in self.effects if effect.direction is not None]

    @property
    def main(self) -> Effect | None:
        return next(iter(self.judged), None)

    @property
    def supporting(self) -> list[Effect]:
        return self.judged[1:]

    @property
    def agreeing(self) -> int:
        """Number of supporting effects that certainly have the paper's direction."""
        return sum(effect.outcome in ("reproduced", "weaker") for effect in self.supporting)

    @property
    def measured(self) -> bool:
        """Whether its main effect is known, or is not needed because a precondition is not met."""
        known = self.main is not None and isfinite(self.main.measured.value)
        return known or self.outcome == "not testable here"

    @property
    def seeds(self) -> int:
        """Number of trainings that its main effect rests on."""
        return self.main.seeds if self.main is not None else 0

    @property
    def tested(self) -> bool:
        """Whether its main effect was tested, so that it could be certain by chance."""
        exempt = self.outcome in ("identity", "not testable here")
        return not exempt and self.main is not None and self.main.measured.spread > 0

    @property
    def p_value(self) -> float:
        """The p-value of the main effect; NaN if it was not tested.

        If the effect counts only because training adds to it, this is the larger of two p-values:
        against no effect, and against untrained networks.
        """
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
        """The command that measures what is missing; empty if nothing is."""
        if self.measured and not self.missing:
            return ""
        return f"{self.claim.command} {self.options}".rstrip()


def judge(evidence: Evidence, claims: Iterable[Claim]) -> list[Verdict]:
    """Judge every claim on the evidence.

    If a check raises, its verdict is "undecided" with the error as a note; the others are judged.

    Examples
    --------
    >>> from vitreous.claims import every_claim, loading
    >>> inspection = vitreous.inspect("nano:vit", probes=["skip_ratio"], limit=8)
    >>> verdicts = judge(loading.load_evidence(inspection.save("numbers")), every_claim())
    >>> len(verdicts) == len(every_claim())
    True
    """
    verdicts = [_judge_or_explain(evidence, claim) for claim in claims]
    return _apply_holm([replace(verdict, options=evidence.options) for verdict in verdicts])


def _judge_or_explain(evidence: Evidence, claim: Claim) -> Verdict:
    try:
        return _judge_one(evidence, claim)
    except NoReplicates as error:
        raise error.with_command(claim.command) from None
    except Exception as error:  # an unusual model can break a check
        if isinstance(error, VitreousError) and not isinstance(error, CheckFailed):
            raise  # a damaged file, which the user has to repair
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
    """The effects, the main one with the same effect of untrained networks as its control."""
    _, untrained = evidence.query(claim.task, untrained=True)
    control = next((e for e in claim.evaluate(untrained) if e.direction is not None), None)
    main = next((n for n, effect in enumerate(effects) if effect.direction is not None), None)
    if control is None or main is None:
        return effects
    return [*effects[:main], effects[main].with_control(control), *effects[main + 1 :]]


def _decide(verdict: Verdict, unmet: Sequence[str], query: Query) -> tuple[Outcome, list[str]]:
    """The outcome, and sentences that explain it."""
    main = verdict.main
    if unmet:
        return "not testable here", list(unmet)
    if main is None:
        return "undecided", ["Its check yields no effect that could decide."]
    if main.outcome is None or not isfinite(main.measured.value):
        read = main.quantity is not None and main.quantity.known
        silent = read or not (verdict.missing or query.notes)
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
    """The outcome of a main effect that is reproduced or weaker, given the untrained control and
    the supporting effects."""
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


def _apply_holm(verdicts: list[Verdict]) -> list[Verdict]:
    """Set `survives` of the verdicts with a certain main effect, by Holm's procedure over all."""
    tested = [number for number, verdict in enumerate(verdicts) if isfinite(verdict.p_value)]
    p_values = [verdicts[number].p_value for number in tested]
    for number, p_value, survives in zip(tested, p_values, holm(p_values), strict=True):
        if p_value < LEVEL:
            verdicts[number] = replace(verdicts[number], survives=survives)
    return verdicts


def count_outcomes(verdicts: Iterable[Verdict]) -> dict[Outcome, int]:
    """Number of verdicts with each outcome that occurs, in the order of `OUTCOMES`."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    return {outcome: counts[outcome] for outcome in OUTCOMES if counts[outcome]}


def by_paper(verdicts: Iterable[Verdict]) -> dict[Paper, list[Verdict]]:
    """Group verdicts by paper, in their order."""
    papers: dict[Paper, list[Verdict]] = {}
    for verdict in verdicts:
        papers.setdefault(verdict.claim.paper, []).append(verdict)
    return papers


def summarise(verdicts: Sequence[Verdict]) -> str:
    """A paragraph that summarises all verdicts."""
    measured = [verdict for verdict in verdicts if verdict.measured]
    counts = count_outcomes(measured)
    untestable = counts.pop("not testable here", 0)
    sentences = [f"{_claims(len(verdicts))}, {len(measured) - untestable} of them measured."]
    if counts:
        sentences.append(f"{_listed(counts)}.")
    if untestable:
        sentences.append(f"{untestable} not testable here: a precondition is not met.")
    return " ".join([*sentences, *sentences_on_chance(measured)])


def _claims(count: int) -> str:
    return f"{count} claim{'s' * (count != 1)}"


def _listed(counts: dict[Outcome, int]) -> str:
    words = [f"{count} {outcome}" for outcome, count in counts.items()]
    text = ", ".join(words)
    return text[:1].upper() + text[1:]


def sentences_on_chance(verdicts: Sequence[Verdict]) -> list[str]:
    """Sentences on how many effects chance alone would make certain, and on Holm's correction."""
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
        among = f", {kept} of the {len(reproduced)} reproduced among them" if reproduced else ""
        sentences.append(
            f"{len(certain) - len(lost)} stay certain when all are judged together (Holm){among}; "
            f"not {', '.join(lost)}."
        )
    if once:
        seen = "is seen once: it rests" if once == 1 else "are seen once: they rest"
        sentences.append(f"{once} {seen} on fewer than {ENOUGH_SEEDS} trainings.")
    return sentences
