"""The building of AlterNet (A1.16): which next network is trained depends on how good the last one was.

From the end of a ResNet on, one more convolution becomes attention; what does not improve accuracy is undone, and the
stage before is next. Networks are compared on images held out of training, never on the test images, which are only
noted. A candidate is as many ordinary cells as there are seeds, so what is trained is found again, and all that the
search has to remember is what lies in the folder.
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
from vitreous.claims.statistics import estimate
from vitreous.errors import VitreousError
from vitreous.models.alternet import build_up
from vitreous.results import Column, Result, View
from vitreous.storage.atomic_files import explain_write_errors
from vitreous.studies.measuring import folder, missing
from vitreous.studies.plan import Cell, Sitting
from vitreous.studies.realise import realise
from vitreous.studies.running import Report
from vitreous.studies.scales import Scale

NAME = "build-up"
HELD_OUT = 0.1
"""Share of the training images by which candidates are compared."""
WHERE = ("held_out", None)
"""Images on which they are measured: those decide; and the test images (A1.16, A4.01)."""
Placement = tuple[int, ...]
"""Attention blocks of each stage."""


@dataclass(frozen=True)
class Tried:
    """One candidate."""

    placement: Placement
    score: float
    kept: bool
    against: Placement | None
    """What it was compared with; the first is compared with nothing."""


@dataclass(frozen=True)
class Search:
    """How far the search is, which follows from the scores alone."""

    tried: tuple[Tried, ...]
    best: Placement | None
    next: Placement | None
    """None when it has ended."""


def search(lengths: Sequence[int], scores: Mapping[Placement, float]) -> Search:
    """From stages so long, with these scores known."""
    asking = build_up(lengths)
    candidate: Placement | None = next(asking)
    tried: list[Tried] = []
    best: Placement | None = None
    while candidate is not None and candidate in scores:
        kept = best is None or scores[candidate] > scores[best]
        tried.append(Tried(candidate, scores[candidate], kept, best))
        best = candidate if kept else best
        try:
            candidate = asking.send(scores[candidate])
        except StopIteration:
            candidate = None
    return Search(tuple(tried), best, candidate)


def most(lengths: Sequence[int]) -> int:
    """Candidates there can be, if attention is never undone."""
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
        found = []
        for seed in self.seeds:
            sittings = []
            for where in reversed(WHERE):
                facts = {
                    **self.facts(placement),
                    "measured": where,
                    "data": self.data,
                    "seed": seed,
                }
                facts = check_facts("alternet", facts)
                training = realise(facts, self.scale, self.data, self.image)
                sittings.append(Sitting(facts, ("accuracy",), training))
            found.append(Cell(training.key, training, tuple(sittings), ("A1.16",)))
        return found

    def facts(self, placement: Placement) -> dict[str, Any]:
        return {"msas": written(placement), "held_out": HELD_OUT}

    def accuracy(self, placement: Placement, where: str | None) -> Quantity:
        """In percent, as far as it has been measured: of no seed, if one is missing."""
        sittings = [
            s
            for cell in self.cells(placement)
            for s in cell.sittings
            if s.facts.get("measured") == where
        ]
        if any(missing(sitting, self.root) for sitting in sittings):
            return Quantity({})
        look = Query([load_item(folder(sitting, self.root)) for sitting in sittings])
        return accuracy(look("alternet", **self.facts(placement), measured=where))

    def so_far(self) -> Search:
        """From what lies in the folder."""
        scores: dict[Placement, float] = {}
        found = search(self.lengths, scores)
        while found.next is not None and (score := self.accuracy(found.next, "held_out")).known:
            scores[found.next] = estimate(score).value
            found = search(self.lengths, scores)
        return found

    def upcoming(self) -> list[Cell]:
        """All cells that are known of: those of every candidate that was tried, and of the next."""
        found = self.so_far()
        known = [tried.placement for tried in found.tried] + ([found.next] if found.next else [])
        return [cell for placement in known for cell in self.cells(placement)]

    def prospect(self) -> str:
        """How far it may go."""
        found = self.so_far()
        if found.best is not None and found.next is None:
            return f"The search has ended with attention {written(found.best)}."
        times = f"{len(self.seeds)} time{'s' * (len(self.seeds) != 1)}"
        return (
            f"Which networks follow depends on how good these are: at most {most(self.lengths)} in all, each trained "
            f"{times}."
        )

    def follow(self, work: Callable[[Sequence[Cell]], Report]) -> Search:
        """To the end; `work` does cells."""
        found = self.so_far()
        while found.next is not None:
            before = found.next
            report = work(self.cells(before))
            for why in report.failed.values():
                raise VitreousError(
                    f"The search cannot go on without attention {written(before)}, which failed: {why}"
                )
            found = self.so_far()
            if found.next == before:
                raise VitreousError(
                    f"The accuracy of attention {written(before)} is not in {str(self.root)!r}: run it again."
                )
        return found

    def outcome(self, found: Search) -> Result:
        """A row for each candidate and each set of images."""
        rows = []
        for number, tried in enumerate(found.tried):
            for where in WHERE:
                own = self.accuracy(tried.placement, where)
                gain = own - self.accuracy(tried.against, where) if tried.against else Quantity({})
                so = "kept" if tried.kept else "undone"
                row = (
                    number,
                    written(tried.placement),
                    so,
                    WORDS[where],
                    *_interval(gain),
                    *_interval(own),
                    len(own.seeds),
                )
                rows.append(row)
        table = pd.DataFrame(rows, columns=[column.name for column in COLUMNS])
        about = {
            "data": {"name": self.data},
            "options": {"scale": self.scale.name, "held_out": HELD_OUT},
        }
        return Result("build_up", table, COLUMNS, (PICTURE,), about=about)

    def tell(self, found: Search, console: Console) -> None:
        """To whoever waits, and into files."""
        outcome = self.outcome(found)
        console.print(listed(outcome))
        if found.best is not None:
            console.print(f"Best: attention {written(found.best)}.", highlight=False)
        console.print(
            f"Wrote {', '.join(map(str, self.write(outcome)))}", highlight=False, soft_wrap=True
        )

    def write(self, outcome: Result) -> list[Path]:
        """As a table and as a picture."""
        files = [self.root / f"build_up{suffix}" for suffix in (".csv", ".svg")]
        with explain_write_errors(self.root):
            outcome.table.to_csv(files[0], index=False)
            outcome.figure(files[1])
        return files


WORDS = {"held_out": "held out", None: "test"}
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
    how_to_read="From left to right every network that was tried, each with one attention block more than the last one "
    "that was kept. The images held out of training decide; the test images have no say.",
)  # fmt: skip


def _interval(quantity: Quantity) -> tuple[float, float, float]:
    """Value, low and high; NaN where nothing was measured."""
    found = estimate(quantity)
    return found.value, found.low, found.high


def written(placement: Placement) -> str:
    """`0,1,2`, as facts have it."""
    return ",".join(map(str, placement))


def listed(outcome: Result) -> Table:
    """The steps, for a terminal."""
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
