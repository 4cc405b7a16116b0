"""Which networks a study trains, and what it measures on each.

A study is planned from its claims: each claim is evaluated on empty evidence, which records the
results it needs. Facts become trainings. Everything that is measured on one training, at whatever
checkpoint and for whichever claim, is one cell.
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
from vitreous.studies.facts_to_training import realise
from vitreous.studies.scales import Scale
from vitreous.studies.training import Training

EARLY = {"start", "warmup"}
"""Checkpoints for which a training can end after its warm-up."""
NO_CONTROL = frozenset(
    {"training", "trajectory", "hessian", "landscape", "corruption", "adversarial", "similarity_to"}
)
"""Results without an untrained control: those that describe the course of training, and those about
the loss or the robustness of a classifier, which a network at chance does not have."""
CHANCE = frozenset({"accuracy", "calibration"})
"""Results that an untrained network has at chance level. They need no control of their own, but are
measured along with other controls."""
ANY_NUMBER = 10
"""Classes of images that are not counted: fewer than many."""


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
    """Its name in results, where that is not its facts."""

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
    """The work of one process: a training and all that is measured on it, or what is measured on
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
    classes: int = ANY_NUMBER,
) -> list[Cell]:
    """Plan the cells of these claims, each after those that it follows.

    `classes` is the number of classes of `data`, on which it depends what claims read.
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
    early = _early([entry["facts"] for entry in wanted.values()])

    def item(facts: Facts, results: Iterable[str] = ()) -> PlannedItem:
        if facts["model"] == "identities":
            return PlannedItem(facts, tuple(sorted(results)), None)
        training = realise(facts, scale, data, image, short=_network(facts) in early)
        standard = {**facts, "data": "" if facts["data"] == data else facts["data"], "seed": 0}
        if scale.keep_epochs and _network(standard) in _with_trajectory(thresholds, books):
            training = replace(training, recipe=training.recipe.but(keep="epochs"))
        beside = item(_other(facts)) if "beside" in facts else None
        return PlannedItem(facts, tuple(sorted(results)), training, beside)

    cells: dict[str, Cell] = {}
    for entry in wanted.values():
        _enter(cells, item(entry["facts"], entry["results"]), tuple(entry["claims"]))
    return _ordered(cells)


def _add_controls(wanted: dict[str, dict[str, Any]]) -> None:
    """Add the untrained control of every network that is measured at the end of its training: the
    same results at its start. What a network shows before training is no effect of training."""
    for entry in list(wanted.values()):
        facts, results = entry["facts"], set(entry["results"]) - NO_CONTROL
        trained_twice = "pretrained" in facts or "tuned" in facts
        other_weights = facts["model"] == "identities" or any(each in facts for each in MEASURING)
        if trained_twice or other_weights or not results - CHANCE:
            continue
        more = {name: value for name, value in facts.items() if name != "model"}
        start = check_facts(facts["model"], more | {"checkpoint": "start"})
        control = wanted.setdefault(
            describe_facts(start), {"facts": start, "results": {}, "claims": {}}
        )
        control["results"] |= dict.fromkeys(sorted(results))
        control["claims"] |= entry["claims"]


def _data(facts: Facts, claim: Claim, scale: Scale, data: str) -> str:
    """Small versions run on the task that a claim names, everything else on the study's images."""
    return str(facts.get("data") or (claim.task if scale.name == "sanity" and claim.task else data))


def _early(every: Sequence[Facts]) -> set[str]:
    """The networks of which nothing after the warm-up is measured."""
    late = {_network(facts) for facts in every if facts.get("checkpoint") not in EARLY}
    for facts in every:
        if "beside" in facts:
            late |= {_network(facts), _network(_other(facts))}
    return {_network(facts) for facts in every} - late


def _network(facts: Facts) -> str:
    """The facts that do not belong to measuring, as text."""
    return describe_facts({name: value for name, value in facts.items() if name not in MEASURING})


def _other(facts: Facts) -> dict[str, Any]:
    """The facts of the network beside it: on the same images; its seed counts from this one's."""
    given = parse_facts(str(facts["beside"]))
    seed = int(facts["seed"]) + int(given.pop("seed", 0))
    return {**check_facts(given.pop("model"), given), "data": facts["data"], "seed": seed}


@cache
def _with_trajectory(thresholds: Thresholds, books: tuple[str, ...]) -> frozenset[str]:
    """The networks whose trajectory any claim reads, also one outside of the study, so that a
    training is the same one in all studies. `books` are the keys of those in use, on which the
    answer depends."""
    networks = set()
    for claim in claims.every_claim():
        with suppress(CheckFailed):  # a study of that claim says so; others go on without it
            for need in claim.needs(thresholds):
                if need.result == "trajectory":
                    facts = [{**need.facts, "data": task, "seed": 0} for task in ("", claim.task)]
                    networks |= {_network(each) for each in facts}
    return frozenset(networks)


def _enter(cells: dict[str, Cell], item: PlannedItem, ids: tuple[str, ...]) -> None:
    """Add an item to the cell of its training, or of its pair, with the cells that it follows."""
    training, other = item.training, item.beside
    if other is not None:
        assert training is not None
        assert other.training is not None
        for each in (replace(item, results=(), beside=None), other):
            _enter(cells, each, ids)
        _add(cells, Cell(f"{training.key}+{other.training.key}", None, (item,), ids))
        return
    for before in training.follows if training else ():
        _enter(cells, PlannedItem(item.facts, (), before), ids)
    key = training.key if training else "identities"
    _add(cells, Cell(key, training, (item,) if item.results else (), ids))


def _add(cells: dict[str, Cell], cell: Cell) -> None:
    had = cells.get(cell.key, Cell(cell.key, cell.training))
    serves = tuple(dict.fromkeys((*had.serves, *cell.serves)))
    cells[cell.key] = replace(had, items=(*had.items, *cell.items), serves=serves)


def _ordered(cells: dict[str, Cell]) -> list[Cell]:
    """Sort cells so that each comes after those it follows, otherwise as they came."""
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
