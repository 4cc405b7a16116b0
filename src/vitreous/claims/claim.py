"""A finding of a paper as something that can be judged: a sentence, where it stands, and a check on what was measured.

A check yields parts, each an effect with its interval beside a threshold. A part is

    supported      if the effect reaches the threshold, and its sign is certain: its interval lies on that side of
                   `versus` (zero, or one for ratios), or three or more trainings all do; of a mere bound, such as "no
                   more than half a point apart", all of the interval has to keep to it
    refuted        if not even the far end of its interval reaches the threshold
    inconclusive   otherwise

(where more or less is asked for, and not at least or at most, the threshold itself is not reached; and nothing is
decided by comparing models of which each is right on almost all images),

and a claim is supported if all its parts are, refuted if one is, and inconclusive if neither, or if something that one
of them reads has not been measured. Parts without a threshold are noted and decide nothing, and neither does it if what
they read is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import isfinite, isnan, nan
from typing import Literal

from vitreous.claims.evidence import Evidence, Look, Need, Scale
from vitreous.claims.measure import FULL, Measure
from vitreous.errors import UnknownName, VitreousError

Outcome = Literal["supported", "refuted", "inconclusive"]
Side = Literal["at least", "at most"]
Study = Literal[
    "zoo", "data", "hessian-sweeps", "sweeps", "alternet", "convit", "skips", "masked", "identities"
]


@dataclass(frozen=True)
class Part:
    """One effect of a claim beside its threshold."""

    says: str
    """What the number is: `error of ViT minus error of ResNet, in points`."""
    effect: float
    low: float
    high: float
    threshold: float | None = None
    side: Side = "at least"
    versus: float | None = None
    """Where there would be no effect."""
    paper: float | None = None
    """The same number in the paper."""
    seeds: int = 0
    agreeing: bool = False
    """Whether every training by itself lies on the right side of `versus`."""
    strict: bool = False
    """Whether the threshold itself is not enough."""
    full: bool = False
    """Whether it compares models that have nothing left to learn."""
    signless: bool = False
    """Whether to reach the threshold is all that is asked, because as much is as good as more."""

    @property
    def sign(self) -> int:
        return 1 if self.side == "at least" else -1

    @property
    def asks(self) -> str:
        """On which side of the threshold it is to be, in words."""
        return {"at least": ("at least", "more than"), "at most": ("at most", "less than")}[
            self.side
        ][self.strict]

    @property
    def outcome(self) -> Outcome | None:
        """None if it is only noted."""
        if self.threshold is None:
            return None
        if isnan(self.effect) or self.full:
            return "inconclusive"
        if self._reaches(self.effect, self.threshold):
            return "supported" if self.certain else "inconclusive"
        best = self.high if self.sign > 0 else self.low
        return "inconclusive" if self._reaches(best, self.threshold) else "refuted"

    def _reaches(self, value: float, threshold: float) -> bool:
        beyond = self.sign * (value - threshold)
        return beyond > 0 if self.strict else beyond >= 0

    @property
    def certain(self) -> bool:
        """Whether it is on the right side of no effect, or of a mere bound, beyond doubt."""
        worst = self.low if self.sign > 0 else self.high
        if self.versus is None:
            return (
                self.signless
                or self.threshold is None
                or isnan(worst)
                or self._reaches(worst, self.threshold)
            )
        if self.seeds >= 3 and self.agreeing:
            return True
        # an effect that may be zero and is exactly that, such as a count that may not be exceeded, is certain
        return self.sign * (worst - self.versus) > 0 or worst == self.effect == self.threshold


def _part(
    says: str,
    measure: Measure,
    threshold: float | None,
    side: Side,
    versus: float | None,
    paper: float | None,
    strict: bool = False,
) -> Part:
    if not measure.known:
        return Part(says, nan, nan, nan, threshold, side, versus, paper, strict=strict)
    value, low, high = measure.interval()
    sign = 1 if side == "at least" else -1
    agreeing = versus is not None and bool((sign * (measure.each - versus) > 0).all())
    seeds, full = len(measure.seeds), measure.full
    return Part(
        says, value, low, high, threshold, side, versus, paper, seeds, agreeing, strict, full
    )


def at_least(
    says: str,
    measure: Measure,
    threshold: float,
    paper: float | None = None,
    versus: float | None = None,
) -> Part:
    """The effect is to be `threshold` or more; `versus` is where there is no effect, zero if that lies below."""
    none = 0.0 if versus is None and threshold >= 0 else versus
    return _part(says, measure, threshold, "at least", none, paper)


def at_most(
    says: str,
    measure: Measure,
    threshold: float,
    paper: float | None = None,
    versus: float | None = None,
) -> Part:
    """The effect is to be `threshold` or less; `versus` is where there is no effect, zero if that lies above."""
    none = 0.0 if versus is None and threshold <= 0 else versus
    return _part(says, measure, threshold, "at most", none, paper)


def more(says: str, measure: Measure, than: float = 0.0, paper: float | None = None) -> Part:
    """The effect is to lie above `than`, which is where there is none."""
    return _part(says, measure, than, "at least", than, paper, strict=True)


def less(says: str, measure: Measure, than: float = 0.0, paper: float | None = None) -> Part:
    """The effect is to lie below `than`, which is where there is none."""
    return _part(says, measure, than, "at most", than, paper, strict=True)


def no_less(says: str, measure: Measure, than: float = 0.0, paper: float | None = None) -> Part:
    """The effect is to be `than` or more, and as much is as good as more: there is no sign to be certain of."""
    return replace(_part(says, measure, than, "at least", None, paper), signless=True)


def near(says: str, measure: Measure, bound: float, paper: float | None = None) -> Iterator[Part]:
    """The effect is to lie no farther from zero than `bound`: two parts, one for each side."""
    yield at_least(says, measure, -bound, paper)
    yield at_most(says, measure, bound, paper)


def noted(says: str, measure: Measure, paper: float | None = None) -> Part:
    """Worth knowing; decides nothing."""
    return _part(says, measure, None, "at least", None, paper)


Check = Callable[[Look], Iterable[Part]]


@dataclass(frozen=True)
class Paper:
    """Where claims come from."""

    key: str
    """The beginning of its ids."""
    title: str
    authors: str
    year: int
    arxiv: str


@dataclass(frozen=True)
class Claim:
    """A finding."""

    id: str
    sentence: str
    paper: Paper
    place: str
    """Figure, table or section."""
    reported: str
    """What the paper measured, in a few words and numbers."""
    study: Study
    check: Check
    task: str = ""
    """The task of the embedded world on which a small version runs: `SYN-B`; empty if there is none."""
    sanity: bool = False
    """Whether there is a small version for two cores."""
    seeds: int = 1
    """Trainings below which nothing is decided."""
    large: bool = False
    """Whether the paper speaks of ImageNet or more, so that a small data set has an analogue of it only."""
    withdrawn: str = ""
    """Who withdrew or disputes it, and where."""

    def needs(self, scale: Scale = "ten") -> list[Need]:
        """All that it reads, once each; found by letting it look at nothing."""
        look = Look(scale=scale)
        for _ in self.check(look):
            pass
        return list({str(need): need for need in look.asked}.values())


@dataclass(frozen=True)
class Verdict:
    """What became of a claim."""

    claim: Claim
    outcome: Outcome
    parts: tuple[Part, ...]
    data: str
    scale: Scale
    missing: tuple[Need, ...] = ()
    notes: tuple[str, ...] = ()
    failed: str = ""
    """What went wrong where the check itself did."""

    @property
    def lacking(self) -> bool:
        """Whether it is inconclusive because something was not measured, or not so that it could be read."""
        deciding = [part for part in self.parts if part.threshold is not None]
        unread = not deciding or any(isnan(part.effect) for part in deciding)
        return self.outcome == "inconclusive" and (bool(self.missing) or unread)

    @property
    def deciding(self) -> Part | None:
        """The part to show: the one that decided, or the first."""
        judged = [part for part in self.parts if part.outcome is not None]
        return next(
            (part for part in judged if part.outcome == self.outcome), next(iter(judged), None)
        )

    @property
    def seeds(self) -> int:
        """Trainings it rests on."""
        return min((part.seeds for part in self.parts if part.seeds), default=0)

    @property
    def command(self) -> str:
        """What would supply what is missing."""
        return f"vitreous study {self.claim.study}" if self.missing else ""


def judge(evidence: Evidence, claims: Iterable[Claim]) -> list[Verdict]:
    """A verdict on every claim, from what was measured."""
    return [_guarded(evidence, claim) for claim in claims]


def _guarded(evidence: Evidence, claim: Claim) -> Verdict:
    """One check that fails takes no other verdict with it."""
    try:
        return _judged(evidence, claim)
    except VitreousError:  # a damaged file, which its owner can mend
        raise
    except Exception as error:  # whatever an odd model makes of a check that was written for others
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        data, look = evidence.look(claim.task)
        return Verdict(
            claim,
            "inconclusive",
            (),
            data,
            look.scale,
            (),
            (f"It could not be judged: {why}",),
            why,
        )


def _judged(evidence: Evidence, claim: Claim) -> Verdict:
    data, look = evidence.look(claim.task)
    parts = tuple(claim.check(look))
    missing = tuple({str(need): need for need in look.missing}.values())
    judged = [part for part in parts if part.outcome is not None]
    trainings = min((part.seeds for part in judged), default=0)
    notes = list(dict.fromkeys(look.notes))
    found: Outcome = "inconclusive"
    if trainings:
        if any(part.outcome == "refuted" for part in judged):
            found = "refuted"
        elif all(part.outcome == "supported" for part in judged):
            found = "supported"
    if found != "inconclusive" and trainings < claim.seeds:
        notes.append(
            f"{claim.seeds} trainings of each model are needed, and there are {trainings}."
        )
        found = "inconclusive"
    if found == "inconclusive" and any(part.full for part in judged):
        notes.append(
            f"Models that are compared are right on {FULL:g} % of the images or more: there is no room to differ."
        )
    if any(not isfinite(part.effect) for part in judged) and not missing and not notes:
        notes.append("An effect is not a finite number.")
    return Verdict(claim, found, parts, data, look.scale, missing, tuple(notes))


class Book:
    """The claims of one paper, in the order of their ids, whatever file they stand in."""

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self.claims: dict[str, Claim] = {}

    def claim(
        self,
        id: str,
        sentence: str,
        *,
        place: str,
        reported: str,
        study: Study,
        task: str = "",
        sanity: bool = False,
        seeds: int = 1,
        large: bool = False,
        withdrawn: str = "",
    ) -> Callable[[Check], Check]:
        """Enter a claim; what follows is its check."""

        def enter(check: Check) -> Check:
            self.claims[id] = Claim(
                id, sentence, self.paper, place, reported, study, check, task, sanity or bool(task), seeds, large,
                withdrawn,
            )  # fmt: skip
            return check

        return enter

    def __iter__(self) -> Iterator[Claim]:
        return iter(sorted(self.claims.values(), key=lambda claim: claim.id))


def find(claims: Iterable[Claim], id: str) -> Claim:
    """By id, however it is written."""
    known = {claim.id: claim for claim in claims}
    if (wanted := id.upper()) not in known:
        raise UnknownName("claim", id, known, "`vitreous claims list` shows them all.")
    return known[wanted]
