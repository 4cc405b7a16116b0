"""The search by which AlterNet is built (Park and Kim 2022): each network depends on the last one.

Beginning at the end of a ResNet, one convolution block after the other is replaced by attention. A
change that does not improve the accuracy is undone, and the search moves on to the stage before.
Networks are compared on images held out of training; test images are only reported. A candidate is
one ordinary cell per seed, so the whole state of the search is in the study's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from vitreous.claims.evidence import Query
from vitreous.claims.facts import check_facts
from vitreous.claims.loading import load_item
from vitreous.claims.quantity import Quantity
from vitreous.claims.readings import accuracy
from vitreous.claims.statistics import estimate_effect
from vitreous.errors import VitreousError
from vitreous.models.alternet import build_up
from vitreous.results import Column, Result, View
from vitreous.storage.atomic_files import explain_write_errors
from vitreous.studies.facts_to_training import training_for
from vitreous.studies.measuring import evidence_folder, missing_results
from vitreous.studies.plan import Cell, PlannedItem
from vitreous.studies.run_cells import Report
from vitreous.studies.scales import Scale

NAME = "build-up"
HELD_OUT = 0.1
"""Share of the training images by which candidates are compared."""
MEASURED_ON = ("held_out", None)
"""Values of the fact `measured`: the images held out, which decide, and the test images."""
Placement = tuple[int, ...]
"""Attention blocks of each stage."""


@dataclass(frozen=True)
class Tried:
    """A candidate that was measured, with its score."""

    placement: Placement
    score: float
    kept: bool
    against: Placement | None
    """The candidate it was compared with; None for the first."""


@dataclass(frozen=True)
class Search:
    """The state of the search: it depends only on the scores known so far."""

    tried: tuple[Tried, ...]
    best: Placement | None
    next: Placement | None
    """The candidate to measure next; None when the search has ended."""


def search(lengths: Sequence[int], scores: Mapping[Placement, float]) -> Search:
    """The state of the search in a network with stages of these lengths, given the known scores."""
    steps = build_up(lengths)
    candidate: Placement | None = next(steps)
    tried: list[Tried] = []
    best: Placement | None = None
    while candidate is not None and candidate in scores:
        kept = best is None or scores[candidate] > scores[best]
        tried.append(Tried(candidate, scores[candidate], kept, best))
        best = candidate if kept else best
        try:
            candidate = steps.send(scores[candidate])
        except StopIteration:
            candidate = None
    return Search(tuple(tried), best, candidate)


def max_candidates(lengths: Sequence[int]) -> int:
    """The largest number of candidates: those of a search in which nothing is undone."""
    return 1 + sum(length // 2 for length in lengths)


@dataclass(frozen=True)
class BuildUp:
    """The search at one scale, on some images, in one folder."""

    scale: Scale
    data: str
    seeds: Sequence[int]
    root: Path
    image: int | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """Blocks of each stage."""
        return tuple(self.scale.build("alternet").options["stages"])

    def cells(self, placement: Placement) -> list[Cell]:
        """A training for each seed, measured on the images held out and on the test images."""
        cells = []
        for seed in self.seeds:
            items = []
            for where in reversed(MEASURED_ON):
                more = {"measured": where, "data": self.data, "seed": seed}
                facts = check_facts("alternet", {**self.facts(placement), **more})
                training = training_for(facts, self.scale, self.data, self.image)
                items.append(PlannedItem(facts, ("accuracy",), training))
            cells.append(Cell(training.key, training, tuple(items), ("A1.16",)))
        return cells

    def facts(self, placement: Placement) -> dict[str, Any]:
        return {"msas": _placement_text(placement), "held_out": HELD_OUT}

    def accuracy(self, placement: Placement, where: str | None) -> Quantity:
        """The accuracy in percent, by seed; empty if that of a seed is missing."""
        items = [
            item
            for cell in self.cells(placement)
            for item in cell.items
            if item.facts.get("measured") == where
        ]
        if any(missing_results(item, self.root) for item in items):
            return Quantity({})
        models = Query([load_item(evidence_folder(item, self.root)) for item in items])
        return accuracy(models("alternet", **self.facts(placement), measured=where))

    def state(self) -> Search:
        """The state of the search, from the results in the folder."""
        scores: dict[Placement, float] = {}
        state = search(self.lengths, scores)
        while state.next is not None and (score := self.accuracy(state.next, "held_out")).known:
            scores[state.next] = estimate_effect(score).value
            state = search(self.lengths, scores)
        return state

    def upcoming(self) -> list[Cell]:
        """The cells of every candidate that was tried, and of the next."""
        state = self.state()
        known = [tried.placement for tried in state.tried] + ([state.next] if state.next else [])
        return [cell for placement in known for cell in self.cells(placement)]

    def remaining_text(self) -> str:
        """A sentence on how many networks may follow."""
        state = self.state()
        if state.best is not None and state.next is None:
            return f"The search has ended with attention {_placement_text(state.best)}."
        times = f"{len(self.seeds)} time{'s' * (len(self.seeds) != 1)}"
        return (
            "Which networks follow depends on how good these are: at most "
            f"{max_candidates(self.lengths)} in all, each trained {times}."
        )

    def follow(self, work: Callable[[Sequence[Cell]], Report]) -> Search:
        """Search to the end; `work` runs cells."""
        state = self.state()
        while state.next is not None:
            candidate = state.next
            report = work(self.cells(candidate))
            for why in report.failed.values():
                raise VitreousError(
                    "The search cannot go on without attention "
                    f"{_placement_text(candidate)}, which failed: {why}"
                )
            state = self.state()
            if state.next == candidate:
                raise VitreousError(
                    f"The accuracy of attention {_placement_text(candidate)} is not in "
                    f"{str(self.root)!r}: run it again."
                )
        return state

    def outcome(self, state: Search) -> Result:
        """A row for each candidate and each set of images."""
        rows = []
        for number, tried in enumerate(state.tried):
            name, so = _placement_text(tried.placement), "kept" if tried.kept else "undone"
            for where in MEASURED_ON:
                score = self.accuracy(tried.placement, where)
                gain = Quantity({})
                if tried.against:
                    gain = score - self.accuracy(tried.against, where)
                intervals = []
                for interval in map(estimate_effect, (gain, score)):
                    intervals += [interval.value, interval.low, interval.high]
                rows.append((number, name, so, IMAGE_TITLES[where], *intervals, len(score.seeds)))
        table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS])
        about = {
            "data": {"name": self.data},
            "options": {"scale": self.scale.name, "held_out": HELD_OUT},
        }
        return Result("build_up", table, COLUMNS, (PICTURE,), about=about)

    def report(self, state: Search, console: Console) -> None:
        """Print the outcome, and write it to files."""
        outcome = self.outcome(state)
        console.print(_step_table(outcome))
        if state.best is not None:
            console.print(f"Best: attention {_placement_text(state.best)}.", highlight=False)
        console.print(
            f"Wrote {', '.join(map(str, self.write(outcome)))}", highlight=False, soft_wrap=True
        )

    def write(self, outcome: Result) -> list[Path]:
        """Write the outcome as a table and as a picture, and return the files."""
        files = [self.root / f"build_up{suffix}" for suffix in (".csv", ".svg")]
        with explain_write_errors(self.root):
            outcome.table.to_csv(files[0], index=False)
            outcome.figure(files[1])
        return files


IMAGE_TITLES = {"held_out": "held out", None: "test"}
COLUMNS = (
    Column("step", "quantity", "Number of the candidate, in the order in which they were tried."),
    Column(
        "attention", "order", "Attention blocks of each stage.", label="attention blocks by stage"
    ),
    Column("so", "category", "Whether the last block was kept or undone.", label="last block"),
    Column(
        "images",
        "category",
        "Held out of training, which decides; or the test images, which do not.",
    ),
    Column("gain", "quantity", "Accuracy minus that of the best before.", "points"),
    Column("gain_low", "quantity", "Lower end of its 95 % interval.", "points"),
    Column("gain_high", "quantity", "Upper end of its 95 % interval.", "points"),
    Column("value", "quantity", "Mean accuracy of the trainings.", "%", "accuracy"),
    Column("low", "quantity", "Lower end of the 95 % interval.", "%", "accuracy, low"),
    Column("high", "quantity", "Upper end of the 95 % interval.", "%", "accuracy, high"),
    Column("n", "quantity", "Number of trainings."),
)
PICTURE = View(
    "scatter", x="attention", y="value", colour="so", facet="images", low="low", high="high",
    title="AlterNet, built up from the end",
    how_to_read="From left to right every network that was tried, each with one attention block "
    "more than the last one that was kept. The images held out of training decide; the test "
    "images have no say.",
)  # fmt: skip


def _placement_text(placement: Placement) -> str:
    """A placement as in facts: `0,1,2`."""
    return ",".join(map(str, placement))


def _step_table(outcome: Result) -> Table:
    """The steps of the search as a table for the terminal."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("attention", "held out", "against the best before", "", "test"):
        table.add_column(name, justify="left" if name in ("attention", "") else "right")
    rows = outcome.table.set_index(["step", "images"])
    for step in outcome.table["step"].unique():
        own, test = rows.loc[step, "held out"], rows.loc[step, "test"]
        gain = (
            f"{own['gain']:+.1f} ({own['gain_low']:+.1f} to {own['gain_high']:+.1f})"
            if step
            else ""
        )
        shown = [
            f"{each['value']:.1f} % ({each['low']:.1f} to {each['high']:.1f})"
            for each in (own, test)
        ]
        table.add_row(str(own["attention"]), shown[0], gain, str(own["so"]), shown[1])
    return table
