"""A judgement: verdicts with their evidence, and sentences on all of them for page and terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vitreous.claims.evidence import EvidenceItem
from vitreous.claims.loading import RANDOM
from vitreous.claims.verdicts import ENOUGH_SEEDS, Verdict, count_outcomes
from vitreous.results.weight_origin import LOOK_UNTRAINED
from vitreous.results.words import join_words, plural


@dataclass(frozen=True)
class Judgement:
    """Verdicts, and the evidence they rest on.

    `inspected` is True for the verdicts of an inspection, to which measurements can be added.
    """

    verdicts: Sequence[Verdict]
    items: Sequence[EvidenceItem]
    inspected: bool = False

    @property
    def measured(self) -> list[Verdict]:
        """The verdicts whose main effect is known, or not needed."""
        return [verdict for verdict in self.verdicts if verdict.measured]


def summary_sentences(judgement: Judgement) -> list[str]:
    """Sentences on how many findings could be judged, and how many have each outcome."""
    measured, total = judgement.measured, len(judgement.verdicts)
    counts = count_outcomes(measured)
    untestable = counts.pop("not testable here", 0)
    which = join_words([f"{count} {outcome}" for outcome, count in counts.items()])
    sentences = [
        f"{len(measured) - untestable or 'None'} of {plural(total, 'finding')} could be judged"
        f"{': ' if which else ''}{which}."
    ]
    if once := sum(verdict.seen_once for verdict in measured):
        rest_on = "it rests" if once == 1 else "they rest"
        sentences.append(
            f"{plural(once, 'verdict')} {'is' if once == 1 else 'are'} seen once: {rest_on} on "
            f"fewer than {ENOUGH_SEEDS} trainings."
        )
    if untestable:
        sentences.append(f"{untestable} cannot be tested here, because a precondition is not met.")
    if rest := total - len(measured):
        sentences.append(
            f"The other {rest} need{'s' * (rest == 1)} models or measurements that are not here."
        )
    return sentences


def summary_text(judgement: Judgement) -> str:
    """`summary_sentences` as one paragraph, for the terminal."""
    return " ".join(summary_sentences(judgement))


def warnings(not_judged: Mapping[str, str]) -> list[str]:
    """Return a sentence for each reason why claims are not judged on some models."""
    models: dict[str, list[str]] = {}
    for name, why in not_judged.items():
        models.setdefault(why, []).append(name)
    sentences = []
    for why, names in models.items():
        sentence = f"{why[0].upper()}{why[1:]}: {join_words(names)}."
        if why.endswith(LOOK_UNTRAINED):  # begins with the name of a file, or the model itself
            sentence = f"{why}." if why.startswith(names[0]) else f"{why}: {join_words(names)}."
        if why == RANDOM:
            sentence += " What you see is the architecture before training."
        it = "it" if len(names) == 1 else "them"
        sentences.append(f"{sentence} No finding is judged on {it}.")
    return sentences
