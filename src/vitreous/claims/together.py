"""What can be said of many verdicts together: how many there are of each kind, and how many chance alone would give.

An effect counts as certain if its 95 % interval lies on one side of no effect. Asked of many effects, some seem certain
although nothing is there: each of them with a chance of 2.5 %, and where three or more trainings that agree are enough,
with that of heads three times in a row on top. Holm's procedure says which signs stay certain if all of them together
may go wrong once in twenty times. Its p-values are those of a normal distribution that has the interval's width: two
hundred resamplings are too few to tell a chance of one in a thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import erfc, isfinite, sqrt

from vitreous.claims.claim import Outcome, Paper, Part, Verdict
from vitreous.claims.measure import REACH

OUTCOMES: tuple[Outcome, ...] = ("supported", "refuted", "inconclusive")
LEVEL = 0.05


def counts(verdicts: Iterable[Verdict]) -> dict[Paper, dict[Outcome, int]]:
    """By paper: how many claims have which verdict."""
    found: dict[Paper, Counter[Outcome]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.claim.paper, Counter())[verdict.outcome] += 1
    return {
        paper: {outcome: count[outcome] for outcome in OUTCOMES} for paper, count in found.items()
    }


def doubt(part: Part) -> float | None:
    """Two-sided p-value of the sign of an effect; None where no sign is asked for, or chance has no part in it."""
    if part.threshold is None or part.versus is None or not isfinite(part.effect):
        return None
    end = part.low if part.effect > part.versus else part.high
    width = abs(part.effect - end)
    if not isfinite(width) or width == 0:
        return None
    return erfc(REACH * abs(part.effect - part.versus) / width / sqrt(2))


def holm(doubts: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which of them can be believed together: the smallest at level / n, the next at level / (n - 1), and so on up to
    the first that cannot."""
    believed = [False] * len(doubts)
    for rank, number in enumerate(sorted(range(len(doubts)), key=doubts.__getitem__)):
        if doubts[number] > level / (len(doubts) - rank):
            break
        believed[number] = True
    return believed


def by_chance(parts: Iterable[Part]) -> float:
    """How many of these effects would seem certain, and in the direction that is claimed, at most, were there none."""
    asked = [part for part in parts if doubt(part) is not None]
    return sum(LEVEL / 2 + (0.5**part.seeds if part.seeds >= 3 else 0.0) for part in asked)


def summary(verdicts: Sequence[Verdict]) -> str:
    """A paragraph in plain words."""
    total = counts(verdicts)
    every = {outcome: sum(count[outcome] for count in total.values()) for outcome in OUTCOMES}
    said = [f"{len(verdicts)} claim{'s' * (len(verdicts) != 1)}: {_told(every)}."]
    lacking = sum(verdict.lacking for verdict in verdicts)
    if lacking:
        said.append(f"{lacking} of the inconclusive ones lack measurements.")
    if len(total) > 1:
        said += [
            f"{paper.authors} ({paper.year}): {_told(count)}." for paper, count in total.items()
        ]
    return " ".join([*said, *of_chance(verdicts)])


def _told(count: dict[Outcome, int]) -> str:
    return f"{count['supported']} supported, {count['refuted']} refuted, {count['inconclusive']} inconclusive"


def of_chance(verdicts: Sequence[Verdict]) -> list[str]:
    """Sentences on how much of it may be chance; none where chance has no part in it."""
    measured = [verdict for verdict in verdicts if not verdict.lacking]
    asked = [(verdict.claim.id, part, p) for verdict in measured for part in verdict.parts
             if (p := doubt(part)) is not None]  # fmt: skip
    if not asked:
        return []
    believed = holm([p for _, _, p in asked])
    certain = [number for number, (_, part, _) in enumerate(asked) if part.outcome == "supported"]
    lost = list(dict.fromkeys(asked[number][0] for number in certain if not believed[number]))
    expected = by_chance(part for _, part, _ in asked)
    one = len(asked) == 1
    said = [
        f"Behind them {'is' if one else 'are'} {len(asked)} effect{'s' * (not one)} whose sign was judged at 95 %; "
        f"were there no effect at all, up to {expected:.1f} would seem certain by chance."
    ]
    if certain:
        kept = sum(believed[number] for number in certain)
        but = f"; not so for {', '.join(lost)}" if lost else ""
        said.append(
            f"Of {len(certain)} that support a claim {kept} stay certain if all are judged together (Holm){but}."
        )
    return said
