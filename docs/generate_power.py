"""Write the page on power: how likely each claim is reproduced, if it is true.

    python docs/generate_power.py

The rule of a claim is read off its check. What trainings and images do to its main effect is read
off the evidence kept in `results/*.zip`; where no evidence has several trainings, their spread is
not known, and the page says up to which spread the power is 80 %."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite, isnan
from pathlib import Path
from typing import NamedTuple

import numpy as np
from generate_verdicts import HOW, verdicts

from vitreous import claims
from vitreous.claims.book import Claim
from vitreous.claims.effects import Effect
from vitreous.claims.evidence import EMBEDDED, Query, Scale
from vitreous.claims.power import (
    assumed_truth,
    detectable_effect,
    largest_spread,
    power,
    power_of_few,
)
from vitreous.claims.quantity import FewUnits
from vitreous.claims.statistics import variances_of_mean
from vitreous.claims.verdicts import ENOUGH_SEEDS, Verdict
from vitreous.commands.claim_tables import short_number

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "power.md"
TRAININGS = 3
MORE_TRAININGS = 5
WARM_UP = ("HDV-07", "HDV-08", "HDV-16", "HDV-20", "HDV-23", "HDV-24")
ALTERNET = ("HDV-43", "HDV-44", "HDV-45", "HDV-46", "HDV-57", "HDV-58")
"""Claims whose networks are trained five times."""
MANY_CLASSES = ("HDV-27", *ALTERNET, "SLC-10", "SLC-13", *(f"SLC-{n}" for n in range(19, 25)))
"""Claims that are tested on images of many classes."""
HEAD = """# Power

If a claim is true, how likely is the verdict *reproduced*? This is the power of the study that
tests it, here of the reproduction: three trainings of every network, five where the table says so.
The truth is assumed to be the paper's own value or, where the paper has none, the smallest effect
that matters. `vitreous.claims.power` computes it; [claims](claims.md) explains the rules.

This is the power of one claim alone. Three things make it smaller: the comparison with untrained
networks, Holm's correction, and the uncertainty of the spread itself, which comes from few
trainings.

- **trainings** is how many there are of every network.
- **images** is the standard error over images, **spread of trainings** the standard deviation
  between trainings, both of the main effect (of ratios, of the logarithm) in the evidence in
  `results/`. The brackets contain the number of trainings, and
  *world* for the synthetic datasets, whose small networks need not differ as much as those on real
  images.
- **certain** is the probability that the direction is certain (reproduced or weaker),
  **reproduced** that it is also as large as it has to be. An effect that is exactly of the size
  that matters is found larger in half of the studies, so at most 50 % are reproduced.
- Where no evidence has several trainings, the spread is unknown. **80 % up to** is the largest
  standard deviation between trainings at which the direction is still certain in 80 % of the
  studies (an equivalence reproduced). "never" means that images alone are too uncertain;
  synthetic images are not counted here. Where all trainings gave the same number, there is no
  spread to compute with, and the other cells are empty.
- Where a claim has only a direction, no truth can be assumed. **80 % from** is the effect whose
  direction is certain in 80 % of the studies, as a multiple of the standard deviation between
  trainings where that is unknown; it is negative for a negative correlation.
- The variance of shares of layers and of rank correlations is known from their number, so no
  spread has to be.

"""
COLUMNS = (
    "claim", "trainings", "truth", "images", "spread of trainings", "certain", "reproduced",
    "80 % up to", "80 % from",
)  # fmt: skip


class Spread(NamedTuple):
    """What is known of a main effect: NaN where it is not."""

    images: float = float("nan")
    between: float = float("nan")
    trainings: int = 0
    embedded: bool = False
    few: FewUnits | None = None


def kept_verdicts() -> Iterator[Verdict]:
    """On all evidence that is kept."""
    for name in HOW:
        yield from verdicts(name)[0]


def spreads(verdicts: Iterable[Verdict]) -> dict[str, Spread]:
    """By claim: of several evidences that with most trainings, and real images first."""
    found: dict[str, Spread] = {}
    for verdict in verdicts:
        if verdict.main is None or verdict.outcome == "identity":
            continue
        new = read_spread(verdict.main, verdict.data.startswith(EMBEDDED))
        old = found.get(verdict.claim.id, Spread())
        if _rank(new) > _rank(old):
            found[verdict.claim.id] = new
    return found


def _rank(spread: Spread) -> tuple[bool, bool, int]:
    several = spread.trainings >= ENOUGH_SEEDS
    return several, not spread.embedded and spread.trainings > 0, spread.trainings


def read_spread(effect: Effect, embedded: bool) -> Spread:
    """Of an effect that was measured."""
    if effect.quantity is None or not isfinite(effect.measured.value):
        return Spread()
    rows = np.stack(list(effect.quantity.seeds.values()))
    if effect.ratio:
        rows = np.log(np.maximum(rows, np.finfo(float).tiny))
    rows = rows[:, np.isfinite(rows).all(0)]
    _, images = variances_of_mean(rows)
    several = len(rows) >= ENOUGH_SEEDS
    between = float(rows[:, 0].std(ddof=1)) if several else float("nan")
    few = effect.quantity.few
    return Spread(float(np.sqrt(images)), between, len(rows), embedded, few)


def scale_of_campaign(claim: Claim) -> Scale:
    return "hundred" if claim.id in MANY_CLASSES else "ten"


def row(claim: Claim, spread: Spread) -> list[str]:
    """One row of the table."""
    rule = next(e for e in claim.evaluate(Query(scale=scale_of_campaign(claim))) if e.direction)
    if claim.study == "identities" or all(need.result == "identities" for need in claim.needs()):
        return [claim.id, "", "exact: computed, without images", *[""] * 6]
    if any(requirement.kind == "note" for requirement in claim.requires):
        return [claim.id, "", "not testable here", *[""] * 6]
    seeds = MORE_TRAININGS if claim.id in (*WARM_UP, *ALTERNET) else TRAININGS
    truth = assumed_truth(rule)
    cells = [
        claim.id,
        str(seeds),
        "direction only" if truth is None else short_number(truth) or "0",
    ]
    few = rule.quantity.few if rule.quantity is not None else None
    if few is not None:
        return cells + list(_few_cells(rule, truth, seeds, few if few.count else spread.few))
    return cells + list(_cells(rule, truth, seeds, spread))


def _few_cells(
    rule: Effect, truth: float | None, seeds: int, few: FewUnits | None
) -> Iterator[str]:
    """Of a share or a correlation."""
    if few is None:
        yield from ("", "number of units unknown", "", "", "", "")
        return
    yield ""
    yield f"of {few.count} {'units' if few.kind == 'share' else 'settings'}"
    if truth is None:
        yield from ("", "", "")
        side = np.linspace(0, 1, 201)
        enough = [v for v in side if power_of_few(rule, rule.sign * v, seeds, few) >= 0.8]
        yield short_number(rule.sign * min(enough)) if enough else "never"
        return
    yield f"{power_of_few(rule, truth, seeds, few, certain=True):.2f}"
    yield f"{power_of_few(rule, truth, seeds, few):.2f}"
    yield from ("", "")


def _cells(rule: Effect, truth: float | None, seeds: int, spread: Spread) -> Iterator[str]:
    """Of a number."""
    known = not isnan(spread.between)
    where = ", world" if spread.embedded else ""
    images = 0.0 if isnan(spread.images) else spread.images
    if isnan(spread.images):
        yield "unknown"
    else:
        yield (short_number(images) or "0") + (" (world)" if spread.embedded else "")
    yield (
        f"{short_number(spread.between)} ({spread.trainings}{where})" if known else "spread unknown"
    )
    if truth is None:
        yield from ("", "", "")
        yield _detectable(seeds, spread, images, known)
        return
    if known and (spread.between > 0 or images > 0):
        yield f"{power(rule, truth, seeds, spread.between, images, certain=True):.2f}"
        yield f"{power(rule, truth, seeds, spread.between, images):.2f}"
    else:
        yield from ("", "")
    if spread.embedded:
        images = 0.0  # other images: they say nothing about these
    size = rule.bound if rule.direction == "within" else abs(rule.distance(truth))
    limit = largest_spread(
        lambda between: power(rule, truth, seeds, between, images, certain=True), size or 1.0
    )
    yield "never" if isnan(limit) else short_number(limit)
    yield ""


def _detectable(seeds: int, spread: Spread, images: float, known: bool) -> str:
    if known and (spread.between > 0 or images > 0):
        return short_number(detectable_effect(seeds, spread.between, images))
    return f"{detectable_effect(seeds, 1.0):.2g} × spread"


def page(verdicts: Iterable[Verdict]) -> str:
    """The whole page, with what these verdicts show of spreads."""
    known = spreads(verdicts)
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    every = claims.every_claim()
    rows = [row(claim, known.get(claim.id, Spread())) for claim in every]
    lines += [f"| {' | '.join(cells)} |" for cells in rows]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(kept_verdicts()), encoding="utf-8")
