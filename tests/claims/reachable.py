"""Evidence for every verdict that a claim can reach, made from the evidence on which it holds.

A check reads numbers off results, and `EvidenceItem.readings` keeps what it has read. Moving these
readings makes other evidence: on the way from where a claim is reproduced to where it is opposite
lie all other verdicts. The check, the statistics and the verdict are the real ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np

from claims.synthetic import Case, result
from vitreous.claims.book import Claim
from vitreous.claims.evidence import Evidence, EvidenceItem, Query, Trainings
from vitreous.claims.facts import describe_facts, parse_facts
from vitreous.claims.preconditions import Precondition
from vitreous.claims.quantity import Array, Quantity
from vitreous.claims.readings import accuracy, recorded, warmup_steps
from vitreous.claims.verdicts import Outcome, Verdict, judge

FARTHEST = 4.0
"""How far readings are moved, in their own size."""
LARGE = 1e3
"""In place of what is not finite, which cannot be moved."""
HALVINGS = 18
"""How often the way there is halved in search of a verdict that lies between two others."""
COMBINATIONS = 60
"""Of readings that are moved together, where moving single ones does not do."""
SHUFFLES = 4
"""Of each kind of reading."""
REPLICATES = 20
"""Fewer than results keep: the search has to be fast."""
MANY = 12
"""Trainings that are enough for a verdict that three are too few for."""
Place = tuple[str, Any]
"""The facts of a model, without its seed, and the name of a reading."""
Move = Mapping[Place, Array]


IMPOSSIBLE: Mapping[str, Outcome] = {
    "HDV-43": "mixed",  # the best of several is ahead by at least as much as one of them
    "CVT-05": "mixed",  # if the first of four gains is above the last, their order cannot rise
}
"""Verdicts that the structure allows, and arithmetic does not: main and supporting effect are
computed from the same numbers."""
OWN_CONTROL = ("CVT-11",)
"""Claims whose check compares with untrained networks itself."""
BOTH_SIDES = 0.25
"""How far trainings are apart that lie on both sides of an edge."""


def verdicts_by_structure(claim: Claim, verdict: Verdict) -> set[Outcome]:
    """Which verdicts a claim can reach, from what its effects and its entry in the book say."""
    if any(requirement.kind == "note" for requirement in claim.requires):
        return {"not testable here"}
    if verdict.outcome == "identity":
        return {"identity", "opposite"}
    main = verdict.main
    assert main is not None
    reachable: set[Outcome] = {"reproduced", "opposite", "undecided"}
    if main.bound is None and main.required_distance > 0:
        reachable |= {"weaker", "no effect"}
    if verdict.supporting:
        reachable.add("mixed")
    if claim.has_control(verdict.scale) or claim.id in OWN_CONTROL:
        reachable.add("holds untrained")
    if claim.requires:
        reachable.add("not testable here")
    return reachable - {IMPOSSIBLE.get(claim.id)}


@dataclass
class Evidences:
    """Evidence on which a claim holds, and whatever is made of it by moving readings."""

    claim: Claim
    case: Case
    holds: dict[Place, Array] = field(init=False)
    towards: dict[Place, Array] = field(init=False)
    """The way to evidence on which it does not hold."""
    smaller: dict[Place, Array] = field(init=False)
    """The way to evidence of a smaller effect."""
    places: defaultdict[str, list[Place]] = field(init=False)
    """The readings of each model."""
    begin: dict[int, Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.holds = self._read(self.case.holds)
        self.places = defaultdict(list)
        for place in self.holds:
            self.places[place[0]].append(place)
        self.towards, self.smaller = map(self._way_to, (self.case.fails, self.case.weaker))

    def _way_to(self, items: Sequence[EvidenceItem]) -> dict[Place, Array]:
        there = self._read(items)
        return {
            place: _finite(there[place] - values)
            for place, values in self.holds.items()
            if place in there and there[place].shape == values.shape
        }

    def _read(self, items: Sequence[EvidenceItem]) -> dict[Place, Array]:
        """Everything that the claim reads, as measured."""
        fresh = [replace(item, known={}) for item in items]
        judge(Evidence(fresh), [self.claim])
        return {
            (_model(item), name): np.nan_to_num(values[0], nan=np.nan, posinf=LARGE, neginf=-LARGE)
            for item in reversed(fresh)
            for name, values in item.readings.items()
        }

    def judge(
        self,
        move: Move | None = None,
        *,
        apart: float = 0.0,
        trainings: int = 3,
        untrained: bool = False,
        failed: Precondition | None = None,
    ) -> Verdict:
        """The verdict if readings are moved.

        Parameters
        ----------
        move
            What is added to readings.
        apart
            Add a multiple of this move that differs between trainings: −apart … apart.
        untrained
            Whether networks before their training are measured, and show the same.
        failed
            A precondition that is not to be met.
        """
        step = 1 + max(item.seed for item in self.case.holds)
        items = []
        for number in range(trainings):
            more = apart * (2 * number / (trainings - 1) - 1)
            for item in self.case.holds:
                seed = item.seed + step * number
                items.append(self._moved(item, {"seed": seed}, move or {}, 1 + more))
                if untrained and "checkpoint" not in item.facts and not self._has_start(item):
                    start = {"checkpoint": "start", "seed": seed}
                    items.append(self._moved(item, start, move or {}, 1 + more))
        if failed is not None:
            items = [_fail(item, failed) for item in items] + _failing(items, failed)
        (verdict,) = judge(Evidence(items), [self.claim])
        return verdict

    def _has_start(self, item: EvidenceItem) -> bool:
        """Whether the claim itself reads this network before its training."""
        start = {**item.facts, "checkpoint": "start", "seed": item.seed}
        return any({**each.facts, "seed": each.seed} == start for each in self.case.holds)

    def _moved(
        self, item: EvidenceItem, facts: Mapping[str, Any], move: Move, times: float
    ) -> EvidenceItem:
        made = replace(item, facts={**item.facts, **facts}, known={})
        for place in self.places[_model(item)]:
            moved = self.holds[place] + times * move.get(place, 0.0)
            made.readings[place[1]] = _with_replicates(moved, place)
        return made

    def unmoved(self, trainings: int) -> Verdict:
        """The verdict where every way begins, which is looked up after the first."""
        if trainings not in self.begin:
            self.begin[trainings] = self.judge(trainings=trainings)
        return self.begin[trainings]

    def moves(self, few: bool) -> Iterator[Move]:
        """Ways to go: to where it fails; all readings of a kind mirrored, so that their order is
        reversed; single readings; and, unless only `few` are wanted, several together."""
        yield {place: FARTHEST * way for place, way in self.towards.items()}
        yield from self._mirrored()
        yield from self._singly()
        if not few:
            yield from self._shuffled()
            yield from self._together()

    def _sizes(self) -> dict[Place, float]:
        return {
            place: FARTHEST * max(float(np.abs(_finite(values)).max(initial=0)), 1e-3)
            for place, values in self.holds.items()
        }

    def _singly(self) -> Iterator[Move]:
        """One reading up or down: all its numbers alike, the later ones by more, or at random."""
        rng = np.random.default_rng(0)
        for place, size in self._sizes().items():
            shape = self.holds[place].shape
            ways = [np.ones(shape)]
            if shape:
                ways += [np.linspace(0, 1, shape[-1]) * np.ones(shape), rng.random(shape)]
            for way in ways:
                yield {place: size * way}
                yield {place: -size * way}

    def _together(self) -> Iterator[Move]:
        rng = np.random.default_rng(0)
        sizes = self._sizes()
        for _ in range(COMBINATIONS):
            yield {
                place: size * rng.uniform(-1, 1) * rng.random(self.holds[place].shape)
                for place, size in sizes.items()
                if rng.random() < 0.7
            }

    def _mirrored(self) -> Iterator[Move]:
        """Of each kind of reading: every model at the other end, and every row upside down."""
        for name in dict.fromkeys(name for _, name in self.holds):
            same = {place: _finite(v) for place, v in self.holds.items() if place[1] == name}
            middle = np.mean([values.mean() for values in same.values() if values.size])
            yield {place: 2.0 * (middle - values) for place, values in same.items()}
            yield {place: 2.0 * (values.mean() - values) for place, values in same.items()}
            yield {
                place: np.full(values.shape, 2.0 * (middle - values.mean()))
                for place, values in same.items()
            }

    def _shuffled(self) -> Iterator[Move]:
        """Of each kind of reading: models, or the numbers of a row, in another order."""
        rng = np.random.default_rng(0)
        for name in dict.fromkeys(name for _, name in self.holds):
            same = {place: _finite(v) for place, v in self.holds.items() if place[1] == name}
            for _ in range(SHUFFLES):
                others = dict(zip(same, rng.permutation(len(same)), strict=True))
                values = list(same.values())
                if len({each.shape for each in values}) == 1:
                    yield {place: values[others[place]] - own for place, own in same.items()}
                yield {place: rng.permutation(own) - own for place, own in same.items() if own.ndim}


def _model(item: EvidenceItem) -> str:
    return describe_facts({name: value for name, value in item.facts.items() if name != "seed"})


def _finite(values: Array) -> Array:
    return np.nan_to_num(values, posinf=0.0, neginf=0.0)


@cache
def _noise(text: str) -> Array:
    """What images do to a reading: a thousandth of its size."""
    return 1e-3 * np.random.default_rng(crc32(text.encode())).standard_normal(REPLICATES)


def _with_replicates(values: Array, place: Place) -> Array:
    """Exact properties have none."""
    model, (measurement, function, *given) = place
    if measurement == "identities":
        return np.broadcast_to(values, (1 + REPLICATES, *values.shape))
    noise = _noise(f"{model} {function.__name__} {given}").reshape(-1, *(1,) * values.ndim)
    return np.concatenate([values[None], values * (1 + noise)])


def reach(evidences: Evidences, wanted: set[Outcome]) -> set[Outcome]:
    """The verdicts that come out on evidence of all kinds, until all that are wanted have."""
    found: set[Outcome] = set()
    for verdict in _attempts(evidences):
        found.add(verdict.outcome)
        if found >= wanted:
            break
    return found


def _attempts(evidences: Evidences) -> Iterator[Verdict]:
    yield evidences.judge()
    yield evidences.judge(untrained=True)
    if evidences.smaller:
        yield evidences.judge(evidences.smaller, trainings=MANY)
    for requirement in evidences.claim.requires:
        yield evidences.judge(failed=requirement)
    for trainings in (3, MANY):
        ways = [Way(evidences, move, trainings) for move in evidences.moves(few=trainings == 3)]
        for way in ways:
            yield from way.ends()
        for way in ways:
            yield from way.between()
        if trainings == 3:
            for way in ways:
                yield from way.on_both_sides()


@dataclass
class Way:
    """From evidence on which a claim holds to evidence that is moved."""

    evidences: Evidences
    move: Move
    trainings: int
    seen: dict[float, Verdict] = field(default_factory=dict)

    def at(self, part: float, apart: float = 0.0, trainings: int | None = None) -> Verdict:
        """The verdict after a part of the way; of trainings that differ by as much as `apart`."""
        moved = {place: part * way for place, way in self.move.items()}
        return self.evidences.judge(moved, apart=apart, trainings=trainings or self.trainings)

    def ends(self) -> Iterator[Verdict]:
        """Verdicts at the end, half way, and there with trainings that differ."""
        self.seen[0.0] = self.evidences.unmoved(self.trainings)
        yield self.seen[0.0]
        for part in (1.0, 0.5):
            self.seen[part] = self.at(part)
            yield self.seen[part]
        if self.changes:
            yield self.at(0.5, apart=2.0)
        if self.changes and self.trainings == MANY:
            yield from (self.at(part, apart=1.0) for part in (0.1, 0.2, 0.3, 0.4, 0.6, 0.8))

    @property
    def changes(self) -> bool:
        return len({verdict.outcome for verdict in self.seen.values()}) > 1

    def between(self) -> Iterator[Verdict]:
        """Verdicts that lie between two others, found by halving."""
        main = self.seen[0.0].main
        coarse = main is not None and main.measured.score is not None
        for _ in range(HALVINGS // 3 if coarse else HALVINGS):
            for before, after in list(pairwise(sorted(self.seen))):
                if self.seen[before].outcome != self.seen[after].outcome:
                    middle = (before + after) / 2
                    self.seen[middle] = self.at(middle)
                    yield self.seen[middle]

    def on_both_sides(self) -> Iterator[Verdict]:
        """Verdicts on trainings of which some lie before a place where the verdict changes, and
        some behind it: a number of layers jumps there, and only their mean lies between."""
        for before, after in pairwise(sorted(self.seen)):
            if self.seen[before].outcome != self.seen[after].outcome:
                edge = (before + after) / 2
                for behind in (MANY // 2 - 1, MANY // 2 + 1):
                    place = 1 - 2 * (behind - 0.5) / (MANY - 1)
                    yield self.at(edge / (1 + BOTH_SIDES * place), BOTH_SIDES, MANY)


# Preconditions that are not met.


def _fail(item: EvidenceItem, requirement: Precondition) -> EvidenceItem:
    """The same item, with what its results say of images and recipe changed."""
    if requirement.kind == "transfer":
        same = {name: value for name, value in item.facts.items() if name != "source"}
        return replace(item, facts=same)
    if requirement.kind not in ("image", "decay"):
        return item
    small = {"data": {"image": (8, 8)}, "recipe": {"decay": "all"}}
    results = {
        name: replace(each, about={**each.about, **small}) for name, each in item.results.items()
    }
    changed = replace(item, results=results)
    changed.readings.update(item.readings)
    return changed


def _failing(items: Sequence[EvidenceItem], requirement: Precondition) -> list[EvidenceItem]:
    """The models that a precondition is about, which are bad, far apart, or hardly trained."""
    name = _name_of_reading(requirement.kind)
    if name is None:
        return []
    made = []
    for number, model in enumerate(requirement.of):
        for seed in sorted({item.seed for item in items}):
            facts = {**parse_facts(model), "data": items[0].facts["data"], "seed": seed}
            known = [item for item in items if item.facts == facts]
            empty = EvidenceItem(facts, {}, "", known={})
            item = known[0] if known else empty
            results = {name[0]: result(name[0], [{"value": 0.0}]), **item.results}
            made.append(replace(item, results=results))
            made[-1].readings.update(item.readings)
            made[-1].readings[name] = np.full(1 + REPLICATES, 90.0 * number)
    return made


@cache
def _name_of_reading(kind: str) -> Any:
    """Under which name the number that a precondition asks for is kept, if it asks for one."""
    names: list[Any] = []

    class Recorder(Trainings):
        def read(self, measurement: str, reading: Any, name: Any = None) -> Quantity:
            names.append(name)
            return super().read(measurement, reading, name)

    trainings = Recorder({"model": "vit"}, (), Query())
    if kind in ("accuracy", "matched"):
        accuracy(trainings)
    elif kind == "warmup_steps":
        warmup_steps(trainings)
    elif kind in ("steps", "rate_sum"):
        recorded(trainings, kind)
    return names[0] if names else None
