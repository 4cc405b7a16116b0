"""What a study has to do: for every claim what it reads, and so which models to train and what to measure on each.

No list of runs is kept anywhere. A claim is read with nothing at hand, which says what it would have read; facts become
trainings, and what is asked of one training, at whatever moment and by whichever claim, is one cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from vitreous import claims
from vitreous.claims.book import Claim
from vitreous.claims.facts import Facts, check_facts, describe_facts, parse_facts
from vitreous.errors import VitreousError
from vitreous.studies.realise import realise
from vitreous.studies.scales import Scale
from vitreous.studies.training import Training

MOMENTS = {"start": "initial", "warmup": "warmup", "33": "33", "66": "66", None: "final"}
"""What claims call a moment, and what a run does."""
EARLY = {"start", "warmup"}
"""Moments for which a training need not go on after its warm-up."""
NO_CONTROL = frozenset(
    {"training", "trajectory", "hessian", "landscape", "corruption", "adversarial", "similarity_to"}
)
"""Results without an untrained control: those that describe the course of training, and those about
the loss or the robustness of a classifier, which a network at chance does not have."""
CHANCE = frozenset({"accuracy", "calibration"})
"""Results that an untrained network has at chance level. They need no control of their own, but are
measured along with other controls."""


@dataclass(frozen=True)
class Sitting:
    """One model at one moment, and what is measured on it."""

    facts: Facts
    results: tuple[str, ...]
    training: Training | None
    """None where nothing is trained: exact properties."""
    beside: Sitting | None = None
    """The second model, where two are looked at together."""

    @property
    def moment(self) -> str:
        return MOMENTS[self.facts.get("moment")]

    @property
    def name(self) -> str:
        """What its results call it."""
        return describe_facts(
            {
                key: value
                for key, value in self.facts.items()
                if key not in ("data", "seed", "beside")
            }
        )


@dataclass(frozen=True)
class Cell:
    """What one worker does: a training and all that is measured on it, or what is measured on two together."""

    key: str
    training: Training | None
    sittings: tuple[Sitting, ...] = ()
    serves: tuple[str, ...] = ()
    """Ids of the claims that need it."""

    @property
    def follows(self) -> tuple[str, ...]:
        """Keys of the cells that have to be finished before."""
        rests = [*(self.training.follows if self.training else ())]
        for sitting in self.sittings if self.training is None else ():
            rests += [
                each.training
                for each in (sitting, sitting.beside)
                if each is not None and each.training
            ]
        return tuple(dict.fromkeys(each.key for each in rests))


def plan(
    about: Iterable[Claim], scale: Scale, data: str, seeds: Sequence[int], image: int | None = None
) -> list[Cell]:
    """The cells of these claims, those that others wait for first."""
    wanted: dict[str, dict[str, Any]] = {}
    for claim in about:
        for need in claim.needs(scale.thresholds(data)):
            for seed in seeds if need.facts["model"] != "identities" else (0,):
                facts = {**need.facts, "data": _data(need.facts, claim, scale, data), "seed": seed}
                entry = wanted.setdefault(
                    describe_facts(facts), {"facts": facts, "results": {}, "claims": {}}
                )
                entry["results"][need.result] = entry["claims"][claim.id] = None
    _add_controls(wanted)
    early = _early([entry["facts"] for entry in wanted.values()])
    cells: dict[str, Cell] = {}
    for entry in wanted.values():
        sitting = _sitting(
            entry["facts"], tuple(sorted(entry["results"])), scale, data, image, early
        )
        _enter(cells, sitting, tuple(entry["claims"]))
    return _ordered(cells)


def _add_controls(wanted: dict[str, dict[str, Any]]) -> None:
    """Add the untrained control of every network that is measured at the end of its training: the
    same results at its start. What a network shows before training is no effect of training."""
    for entry in list(wanted.values()):
        facts, results = entry["facts"], set(entry["results"]) - NO_CONTROL
        trained_twice = "pretrained" in facts or "tuned" in facts
        if "moment" in facts or "beside" in facts or trained_twice or not results - CHANCE:
            continue
        if facts["model"] == "identities" or "measured" in facts:
            continue
        start = check_facts(
            facts["model"],
            {name: value for name, value in facts.items() if name != "model"} | {"moment": "start"},
        )
        control = wanted.setdefault(
            describe_facts(start), {"facts": start, "results": {}, "claims": {}}
        )
        control["results"] |= dict.fromkeys(sorted(results))
        control["claims"] |= entry["claims"]


def _data(facts: Facts, claim: Claim, scale: Scale, data: str) -> str:
    """Small versions run on the task that a claim names, everything else on the study's images."""
    return str(facts.get("data") or (claim.task if scale.name == "sanity" and claim.task else data))


def _early(every: Sequence[Facts]) -> set[str]:
    """Of which models nothing after the warm-up is wanted."""
    late = {_whose(facts) for facts in every if facts.get("moment") not in EARLY}
    for facts in every:
        if "beside" in facts:
            late |= {_whose(facts), _whose(_other(facts))}
    return {_whose(facts) for facts in every} - late


def _whose(facts: Facts) -> str:
    """The facts that weights depend on."""
    return describe_facts(
        {key: value for key, value in facts.items() if key not in ("moment", "measured", "beside")}
    )


def _other(facts: Facts) -> dict[str, Any]:
    """The model beside it: trained on the same images; a seed is counted from its own."""
    given = parse_facts(str(facts["beside"]))
    seed = int(facts["seed"]) + int(given.pop("seed", 0))
    return {**check_facts(given.pop("model"), given), "data": facts["data"], "seed": seed}


def _sitting(
    facts: Facts,
    results: tuple[str, ...],
    scale: Scale,
    data: str,
    image: int | None,
    early: set[str],
) -> Sitting:
    if facts["model"] == "identities":
        return Sitting(facts, results, None)
    other = _sitting(_other(facts), (), scale, data, image, early) if "beside" in facts else None
    training = realise(facts, scale, data, image, short=_whose(facts) in early)
    where = "" if facts["data"] == data else facts["data"]
    kind = _whose({**facts, "data": where, "seed": 0})
    if scale.keep_epochs and kind in _watched(scale.thresholds(data)):
        training = replace(training, recipe=training.recipe.but(keep="epochs"))
    return Sitting(facts, results, training, other)


@cache
def _watched(thresholds: Any) -> frozenset[str]:
    """Models of which some claim wants to see the whole way; whether it is asked or not, so that a training is the same
    one in all studies."""
    found = set()
    for claim in claims.every_claim():
        for need in claim.needs(thresholds):
            if need.result == "trajectory":
                found |= {
                    _whose({**need.facts, "data": task, "seed": 0}) for task in ("", claim.task)
                }
    return frozenset(found)


def _enter(cells: dict[str, Cell], sitting: Sitting, ids: tuple[str, ...]) -> None:
    """A sitting into the cell of its training, or of its pair of trainings, and what it rests on into cells too."""
    training, other = sitting.training, sitting.beside
    if other is not None:
        assert training is not None
        assert other.training is not None
        for each in (replace(sitting, results=(), beside=None), other):
            _enter(cells, each, ids)
        _add(cells, Cell(f"{training.key}+{other.training.key}", None, (sitting,), ids))
        return
    for before in training.follows if training else ():
        _enter(cells, Sitting(sitting.facts, (), before), ids)
    key = training.key if training else "identities"
    _add(cells, Cell(key, training, (sitting,) if sitting.results else (), ids))


def _add(cells: dict[str, Cell], cell: Cell) -> None:
    had = cells.get(cell.key, Cell(cell.key, cell.training))
    serves = tuple(dict.fromkeys((*had.serves, *cell.serves)))
    cells[cell.key] = replace(had, sittings=(*had.sittings, *cell.sittings), serves=serves)


def _ordered(cells: dict[str, Cell]) -> list[Cell]:
    """Each after those it follows; otherwise as they came."""
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
