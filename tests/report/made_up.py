"""Verdicts on claims of a paper that does not exist."""

from __future__ import annotations

from report.conftest import EVIL
from vitreous.claims.book import Claim, Paper
from vitreous.claims.effects import Effect
from vitreous.claims.evidence import Need
from vitreous.claims.statistics import Interval95
from vitreous.claims.verdicts import Outcome, Verdict

PAPER = Paper("TST", f"A title {EVIL}", "Somebody & others", 2021, "2101.00001")


def measured(value: float, low: float, high: float, seeds: int = 3) -> Interval95:
    """A number with its interval, from so many trainings."""
    return Interval95(value, low, high, spread=(high - low) / 4, freedom=9.0, seeds=seeds)


GAP = Effect("error of ViT minus error of ResNet", measured(4.2, 3.1, 5.4), "more", 0.0, paper=16.2)
BELOW = Effect("gain", measured(-1.0, -1.5, -0.5), "more", 0.0)
WIDE = Effect("wide", measured(1.0, -1.0, 3.0), "more", 0.0, matters=2.0)


def made_up(
    id: str,
    outcome: Outcome,
    *effects: Effect,
    withdrawn: str = "",
    missing: tuple[Need, ...] = (),
    notes: tuple[str, ...] = (),
    survives: bool = True,
) -> Verdict:
    """A verdict on a claim whose sentence would do harm if it could."""
    sentence = f"A sentence {EVIL}."
    claim = Claim(id, sentence, PAPER, "Fig. 1", "much", "zoo", lambda _: [], withdrawn=withdrawn)
    return Verdict(claim, outcome, effects, "cifar10", "ten", missing, notes, survives=survives)
