"""A judgement: verdicts with their evidence, and sentences on all of them for page and terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite

from vitreous.claims.claim import Paper, Part, Verdict
from vitreous.claims.evidence import Exhibit
from vitreous.claims.reading import RANDOM
from vitreous.claims.together import OUTCOMES
from vitreous.results.words import join_words, plural

CLEAREST = 3
"""Number of verdicts that count as the clearest."""


@dataclass(frozen=True)
class Judgement:
    """Verdicts, and the evidence they rest on."""

    verdicts: Sequence[Verdict]
    exhibits: Sequence[Exhibit]
    inspected: bool = False
    """Whether they are of an inspection, which can run more analyses on its models."""

    @property
    def measured(self) -> list[Verdict]:
        """The verdicts whose evidence is complete."""
        return [verdict for verdict in self.verdicts if not verdict.lacking]


def verdicts_by_paper(judgement: Judgement) -> dict[Paper, list[Verdict]]:
    """Return the verdicts of each paper, in order."""
    return {
        paper: list(group)
        for paper, group in groupby(judgement.verdicts, key=lambda verdict: verdict.claim.paper)
    }


def tally_sentences(judgement: Judgement) -> Iterator[str]:
    """Yield sentences on how many claims could be judged, and with which outcome."""
    measured, total = judgement.measured, len(judgement.verdicts)
    count = {
        outcome: sum(verdict.outcome == outcome for verdict in measured) for outcome in OUTCOMES
    }
    which = join_words(
        [f"{n} {'is' if n == 1 else 'are'} {outcome}" for outcome, n in count.items() if n]
    )
    findings = f"{'the ' if total > 1 else ''}{plural(total, 'finding')}"
    yield (
        f"{len(measured) or 'None'} of {findings} could be judged on what was measured"
        f"{': ' if which else ''}{which}."
    )
    if rest := total - len(measured):
        yield f"The other {rest} need{'s' * (rest == 1)} models or measurements that are not here."


def summary_text(judgement: Judgement) -> str:
    """Return the sentences on all verdicts and the clearest of them, for the terminal."""
    clearest = [
        f"{verdict.claim.id} {verdict.outcome}"
        for verdict, _ in clearest_verdicts(judgement.measured)
    ]
    sentences = list(tally_sentences(judgement))
    if clearest:
        sentences.append(f"The clearest: {', '.join(clearest)}.")
    return " ".join(sentences)


def clearest_verdicts(verdicts: Sequence[Verdict]) -> list[tuple[Verdict, Part]]:
    """Return the verdicts whose effect is farthest from its threshold, in widths of its interval.

    There is at least one of each outcome, and none on a withdrawn claim.
    """
    ranked: list[tuple[float, Verdict, Part]] = []
    for verdict in verdicts:
        part = verdict.deciding
        if verdict.claim.withdrawn or verdict.outcome == "inconclusive":
            continue
        if part is None or part.threshold is None:
            continue
        width = part.high - part.low
        if isfinite(width) and width > 0:
            ranked.append((abs(part.effect - part.threshold) / width, verdict, part))
    ranked.sort(key=lambda each: -each[0])
    firsts = [
        next((each for each in ranked if each[1].outcome == outcome), None) for outcome in OUTCOMES
    ]
    chosen = [each for each in firsts if each is not None]
    chosen += [each for each in ranked if each not in chosen][: CLEAREST - len(chosen)]
    return [(verdict, part) for _, verdict, part in chosen]


def warnings(not_judged: Mapping[str, str]) -> list[str]:
    """Return a sentence for each reason why claims are not judged on some models."""
    models: dict[str, list[str]] = {}
    for name, why in not_judged.items():
        models.setdefault(why, []).append(name)
    sentences = []
    for why, names in models.items():
        sentence = f"{why[0].upper()}{why[1:]}: {join_words(names)}."
        if why == RANDOM:
            sentence += " What you see is the architecture before training."
        it = "it" if len(names) == 1 else "them"
        sentences.append(f"{sentence} No finding is judged on {it}.")
    return sentences
