"""Which networks a study trains, and what it measures on each.

A study is planned from its claims: each claim is evaluated on empty evidence, which records the
results it needs. The facts of these results define the trainings. A training and everything that is
measured on it, at any checkpoint and for any claim, is one cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from vitreous import claims
from vitreous.claims.book import CheckFailed, Claim
from vitreous.claims.evidence import Scale as Thresholds
from vitreous.claims.facts import (
    CHECKPOINTS,
    MEASURING,
    Facts,
    check_facts,
    describe_facts,
    parse_facts,
)
from vitreous.errors import VitreousError
from vitreous.studies.facts_to_training import training_for
from vitreous.studies.scales import Scale
from vitreous.studies.training import Training

UP_TO_WARMUP = {"start", "warmup"}
"""Checkpoints that need no training beyond the warm-up."""
NO_CONTROL = frozenset(
    {"training", "trajectory", "hessian", "landscape", "corruption", "adversarial", "similarity_to"}
)
"""Results without an untrained control: those that describe the course of training, and those about
the loss or the robustness of a classifier, which a network at chance does not have."""
AT_CHANCE = frozenset({"accuracy", "calibration"})
"""Results that an untrained network has at chance level. They need no control of their own, but are
measured along with other controls."""
FEW_CLASSES = 10
"""Number of classes assumed for images whose classes are not counted."""


@dataclass(frozen=True)
class PlannedItem:
    """One network at one checkpoint, and the results to measure on it."""

    facts: Facts
    results: tuple[str, ...]
    training: Training | None
    """None for exact properties, which need no training."""
    beside: PlannedItem | None = None
    """The second network, where two are measured together."""
    called: str = ""
    """Its name in results (default: its facts as text)."""

    @property
    def checkpoint(self) -> str:
        return CHECKPOINTS[self.facts.get("checkpoint")]

    @property
    def name(self) -> str:
        """The name of the network in its results."""
        if self.called:
            return self.called
        left_out = ("data", "seed", "beside")
        return describe_facts(
            {name: value for name, value in self.facts.items() if name not in left_out}
        )


@dataclass(frozen=True)
class Cell:
    """The unit of work of a process: a training and all measurements on it, or the measurements on
    two trainings together."""

    key: str
    training: Training | None
    items: tuple[PlannedItem, ...] = ()
    serves: tuple[str, ...] = ()
    """Ids of the claims that need it."""

    @property
    def follows(self) -> tuple[str, ...]:
        """Keys of the cells that have to be finished before."""
        if self.training is not None:
            before = list(self.training.follows)
        else:
            both = [each for item in self.items for each in (item, item.beside)]
            before = [each.training for each in both if each and each.training]
        return tuple(dict.fromkeys(each.key for each in before))


def plan(
    about: Iterable[Claim],
    scale: Scale,
    data: str,
    seeds: Sequence[int],
    image: int | None = None,
    classes: int = FEW_CLASSES,
) -> list[Cell]:
    """Plan the cells of these claims, each after those that it follows.

    `classes` is the number of classes of `data`; what claims read depends on it.
    """
    thresholds = scale.thresholds(data, classes)
    books = tuple(book.paper.key for book in claims.every_book())
    wanted: dict[str, dict[str, Any]] = {}
    for claim in about:
        for need in claim.needs(thresholds):
            exact = need.facts["model"] == "identities"
            for seed in (0,) if exact else seeds:
                facts = {**need.facts, "data": _data(need.facts, claim, scale, data), "seed": seed}
                entry = wanted.setdefault(
                    describe_facts(facts), {"facts": facts, "results": {}, "claims": {}}
                )
                entry["results"][need.result] = entry["claims"][claim.id] = None
    _add_controls(wanted)
    early = _end_after_warmup([entry["facts"] for entry in wanted.values()])

    def item(facts: Facts, results: Iterable[str] = ()) -> PlannedItem:
        if facts["model"] == "identities":
            return PlannedItem(facts, tuple(sorted(results)), None)
        training = training_for(facts, scale, data, image, short=_network_text(facts) in early)
        standard = {**facts, "data": "" if facts["data"] == data else facts["data"], "seed": 0}
        if scale.keep_epochs and _network_text(standard) in _with_trajectory(thresholds, books):
            training = replace(training, recipe=training.recipe.but(keep="epochs"))
        beside = item(_second_network(facts)) if "beside" in facts else None
        return PlannedItem(facts, tuple(sorted(results)), training, beside)

    cells: dict[str, Cell] = {}
    for entry in wanted.values():
        _add_item(cells, item(entry["facts"], entry["results"]), tuple(entry["claims"]))
    return _ordered(cells)


def _add_controls(wanted: dict[str, dict[str, Any]]) -> None:
    """Add the untrained control of every network that is measured at the end of its training.

    The control is the same results before training: what they show as well is no effect of
    training.
    """
    for entry in list(wanted.values()):
        facts, results = entry["facts"], set(entry["results"]) - NO_CONTROL
        trained_twice = "pretrained" in facts or "tuned" in facts
        other_weights = facts["model"] == "identities" or any(each in facts for each in MEASURING)
        if trained_twice or other_weights or not results - AT_CHANCE:
            continue
        more = {name: value for name, value in facts.items() if name != "model"}
        start = check_facts(facts["model"], more | {"checkpoint": "start"})
        control = wanted.setdefault(
            describe_facts(start), {"facts": start, "results": {}, "claims": {}}
        )
        control["results"] |= dict.fromkeys(sorted(results))
        control["claims"] |= entry["claims"]


def _data(facts: Facts, claim: Claim, scale: Scale, data: str) -> str:
    """The data of a result: a small version runs on the task of its claim, others on `data`."""
    return str(facts.get("data") or (claim.task if scale.name == "sanity" and claim.task else data))


def _end_after_warmup(every: Sequence[Facts]) -> set[str]:
    """The networks that are measured up to the warm-up only, so their training can end there."""
    late = {_network_text(facts) for facts in every if facts.get("checkpoint") not in UP_TO_WARMUP}
    for facts in every:
        if "beside" in facts:
            late |= {_network_text(facts), _network_text(_second_network(facts))}
    return {_network_text(facts) for facts in every} - late


def _network_text(facts: Facts) -> str:
    """The facts that identify a network, without those of measuring it, as text."""
    return describe_facts({name: value for name, value in facts.items() if name not in MEASURING})


def _second_network(facts: Facts) -> dict[str, Any]:
    """The facts of the second network: the same images, and a seed relative to the first's."""
    given = parse_facts(str(facts["beside"]))
    seed = int(facts["seed"]) + int(given.pop("seed", 0))
    return {**check_facts(given.pop("model"), given), "data": facts["data"], "seed": seed}


@cache
def _with_trajectory(thresholds: Thresholds, books: tuple[str, ...]) -> frozenset[str]:
    """The networks whose trajectory any claim reads.

    Claims outside of the study count, so that a training is the same in all studies. `books` are
    the keys of the books in use; they only make the cache distinguish them.
    """
    networks = set()
    for claim in claims.every_claim():
        with suppress(CheckFailed):  # reported by studies of that claim; others ignore it
            for need in claim.needs(thresholds):
                if need.result == "trajectory":
                    facts = [{**need.facts, "data": task, "seed": 0} for task in ("", claim.task)]
                    networks |= {_network_text(each) for each in facts}
    return frozenset(networks)


def _add_item(cells: dict[str, Cell], item: PlannedItem, ids: tuple[str, ...]) -> None:
    """Add an item to the cell of its training, or of its pair, with the cells that it follows."""
    training, other = item.training, item.beside
    if other is not None:
        assert training is not None
        assert other.training is not None
        for each in (replace(item, results=(), beside=None), other):
            _add_item(cells, each, ids)
        _merge_cell(cells, Cell(f"{training.key}+{other.training.key}", None, (item,), ids))
        return
    for before in training.follows if training else ():
        _add_item(cells, PlannedItem(item.facts, (), before), ids)
    key = training.key if training else "identities"
    _merge_cell(cells, Cell(key, training, (item,) if item.results else (), ids))


def _merge_cell(cells: dict[str, Cell], cell: Cell) -> None:
    """Add the items and claims of a cell to the planned cell with the same key."""
    known = cells.get(cell.key, Cell(cell.key, cell.training))
    serves = tuple(dict.fromkeys((*known.serves, *cell.serves)))
    cells[cell.key] = replace(known, items=(*known.items, *cell.items), serves=serves)


def _ordered(cells: dict[str, Cell]) -> list[Cell]:
    """Sort cells so that each comes after those it follows, and keep their order otherwise."""
    done: dict[str, Cell] = {}

    def add(key: str, waiting: tuple[str, ...]) -> None:
        if key in waiting:
            raise VitreousError(f"Trainings {', '.join(waiting)} wait for each other.")
        if key not in done and key in cells:
            for before in cells[key].follows:
                add(before, (*waiting, key))
            done[key] = cells[key]

    for key in cells:
        add(key, ())
    return list(done.values())
