"""Evidence: trained models, facts about each, and the results measured on them.

A claim queries models by facts and reads numbers off their results. A missing result is recorded
and does not raise, so evaluating a claim once finds everything that is missing. A study is planned
in the same way: evaluated on empty evidence, a claim records every result that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, Concatenate, Literal, ParamSpec

import numpy as np

from vitreous.claims.evidence_item import EvidenceItem as EvidenceItem
from vitreous.claims.evidence_item import Rows as Rows
from vitreous.claims.evidence_item import Unreadable as Unreadable
from vitreous.claims.facts import Facts, check_facts, describe_facts, same_facts
from vitreous.claims.quantity import Array, Quantity
from vitreous.errors import VitreousError

Scale = Literal["sanity", "ten", "hundred"]
"""`sanity`: generated images; `ten`: real images of few classes, as CIFAR-10; `hundred`: real
images of many classes, as CIFAR-100."""
EMBEDDED = ("world:", "SYN-")
"""Prefixes of datasets that are generated."""
TASKS = ("SYN-A", "SYN-B", "SYN-C", "SYN-D", "SYN-E")
"""The generated tasks that small versions of claims run on."""
IMAGE_FACTS = ("data", "fraction", "held_out", "resolution", "measured")
"""Facts that decide which images a model is measured on."""
MANY_CLASSES = 50
"""Smallest number of classes of a dataset with many classes."""
P = ParamSpec("P")


@dataclass(frozen=True)
class Need:
    """A result of a model that a claim reads."""

    facts: Facts
    result: str

    def __str__(self) -> str:
        return f"{self.result} of {describe_facts(self.facts)}"


@dataclass(frozen=True)
class Trainings:
    """All trainings of one configuration, one evidence item per seed; empty if there are none."""

    facts: Facts
    items: Sequence[EvidenceItem]
    query: Query

    def read(
        self, measurement: str, reading: Callable[[Rows], Any], name: Hashable = None
    ) -> Quantity:
        """Read a number, or a row of numbers, off a result of every training.

        Parameters
        ----------
        measurement
            Name of the result.
        reading
            Function of its rows that returns (1 + replicates,) or (1 + replicates, k).
        name
            Key under which the number is cached (default: the function itself).
        """
        name = reading if name is None else name
        values: dict[int, Array] = {}
        reason = ""
        for item in self.items:
            if measurement not in item.results:
                reason = item.left_out.get(measurement, reason)
                continue
            try:
                if name not in item.readings:
                    item.readings[name] = np.asarray(reading(item.rows(measurement)), np.float64)
                values[item.seed] = item.readings[name]
            except Unreadable as error:
                reason = str(error)
        self.query.needs.append(Need(self.facts, measurement))
        if reason and not values:
            self.query.notes.append(reason)
        elif not values:
            self.query.missing.append(Need(self.facts, measurement))
        return Quantity(values)


def reads(
    measurement: str,
) -> Callable[[Callable[Concatenate[Rows, P], Any]], Callable[Concatenate[Trainings, P], Quantity]]:
    """Decorator: turn a function of a result's rows into one of `Trainings` that returns a
    `Quantity`.

    Examples
    --------
    >>> @reads("hessian")
    ... def mean_positive_eigenvalue(rows):
    ...     return rows.where(measure="APE").one()
    """

    def wrap(
        function: Callable[Concatenate[Rows, P], Any],
    ) -> Callable[Concatenate[Trainings, P], Quantity]:
        @wraps(function)
        def reading(trainings: Trainings, /, *args: P.args, **options: P.kwargs) -> Quantity:
            name = (measurement, function, args, tuple(options.items()))
            return trainings.read(measurement, lambda rows: function(rows, *args, **options), name)

        return reading

    return wrap


@dataclass
class Query:
    """Selects models by facts, `models("vit", pool="gap")`, and records what a claim needs.

    Parameters
    ----------
    items
        Evidence on the images that the claim is judged on.
    scale
        Decides which required sizes of effects apply.
    others
        All evidence, on any images, for claims that name a dataset and for exact properties.
    untrained
        Select the networks before training where a claim selects trained ones.
    paper
        The paper's value of the main effect, from the claim's table in its book; None if it does
        not apply to these images.
    """

    items: Sequence[EvidenceItem] = ()
    scale: Scale = "ten"
    others: Sequence[EvidenceItem] = ()
    untrained: bool = False
    paper: float | None = None
    needs: list[Need] = field(default_factory=list)
    missing: list[Need] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __call__(self, model: str, **facts: Any) -> Trainings:
        if self.untrained and model != "identities":
            facts = {"checkpoint": "start", **{k: v for k, v in facts.items() if v is not None}}
        wanted = check_facts(model, facts)
        anywhere = "data" in wanted or model == "identities"
        by_model = self._others_by_model if anywhere else self._items_by_model
        chosen = [item for item in by_model.get(model, ()) if same_facts(item.facts, wanted)]
        return Trainings(wanted, chosen, self)

    @cached_property
    def _items_by_model(self) -> dict[str, list[EvidenceItem]]:
        return _by_model(self.items)

    @cached_property
    def _others_by_model(self) -> dict[str, list[EvidenceItem]]:
        return _by_model(self.others)

    def at(self, hundred: float, ten: float | None = None, sanity: float | None = None) -> float:
        """The size for the query's scale; a missing one is that for many classes."""
        size = {"hundred": hundred, "ten": ten, "sanity": sanity}[self.scale]
        return hundred if size is None else size

    def reported(self, value: float) -> float | None:
        """A number that the paper reports for many classes; None on other data."""
        return value if self.scale == "hundred" else None

    @property
    def sanity(self) -> bool:
        return self.scale == "sanity"


def _by_model(items: Iterable[EvidenceItem]) -> dict[str, list[EvidenceItem]]:
    """Group items by their model, which speeds up queries: a study has hundreds of items."""
    groups: dict[str, list[EvidenceItem]] = {}
    for item in items:
        groups.setdefault(str(item.facts["model"]), []).append(item)
    return groups


class Evidence:
    """Evidence items that can be judged together.

    Parameters
    ----------
    items
        One per model and checkpoint. If two have the same facts, the results that both have must be
        equal.
    not_judged
        Why a measured model is not used as evidence, by its name.
    options
        Options of the `vitreous study` command that adds to this evidence.
    """

    def __init__(
        self,
        items: Iterable[EvidenceItem],
        not_judged: Mapping[str, str] | None = None,
        options: str = "",
    ) -> None:
        self.items = list(items)
        self.not_judged = dict(not_judged or {})
        self.options = options
        self._by_data: dict[str, tuple[list[EvidenceItem], Scale]] = {}
        _check_unambiguous(self.items)
        _check_comparable(self.items)

    @cached_property
    def data(self) -> list[str]:
        """Names of the datasets, the one with the most items first."""
        names = [str(item.facts.get("data", "")) for item in self.items]
        return sorted(set(names), key=lambda name: (-names.count(name), name))

    def on(self, data: str) -> list[EvidenceItem]:
        return [item for item in self.items if str(item.facts.get("data", "")) == data]

    def query(self, task: str = "", *, untrained: bool = False) -> tuple[str, Query]:
        """A query, and the name of its data: real images if there are any, else the task, else the
        synthetic world."""
        names = [name for name in self.data if name]  # exact properties have no data
        real = [name for name in names if not name.startswith(EMBEDDED)]
        world = [name for name in names if name.startswith("world:")]
        name = (real or [each for each in names if each == task] or world or names or [""])[0]
        if name not in self._by_data:
            items = self.on(name)
            self._by_data[name] = items, scale_of(name, items)
        return name, Query(*self._by_data[name], self.items, untrained)


def scale_of(data: str, items: Sequence[EvidenceItem]) -> Scale:
    """The scale whose required sizes of effects apply to the dataset of these items."""
    return scale_for(data, max((item.count_classes() for item in items), default=0))


def scale_for(data: str, classes: int) -> Scale:
    """The scale whose required sizes of effects apply to a dataset with `classes` classes."""
    if data.startswith(EMBEDDED):
        return "sanity"
    return "hundred" if classes >= MANY_CLASSES else "ten"


def _check_unambiguous(items: Iterable[EvidenceItem]) -> None:
    """Raise if two items with the same facts have different rows of a result.

    A claim reads one of them, and nothing says which.
    """
    known: dict[frozenset[tuple[str, Any]], list[EvidenceItem]] = {}
    for item in items:
        alike = known.setdefault(frozenset({**item.facts, "seed": item.seed}.items()), [])
        for other in alike:
            for measurement in sorted(set(item.results) & set(other.results)):
                if not item.rows(measurement).same_numbers(other.rows(measurement)):
                    names = " and ".join(dict.fromkeys(filter(None, (other.name, item.name))))
                    raise VitreousError(
                        f"Two items with the facts {describe_facts(item.facts)!r} ({names}) have "
                        f"different results of {measurement}; leave one out, or tell them apart "
                        "by a fact such as seed."
                    )
        alike.append(item)


def _check_comparable(items: Sequence[EvidenceItem]) -> None:
    """Raise unless results of a measurement on the same data are of one version and one image set.

    They have the same data if the facts in `IMAGE_FACTS` agree.
    """
    known: dict[tuple[str, ...], tuple[EvidenceItem, tuple[str, str]]] = {}
    for item in items:
        for measurement, provenance in item.marks().items():
            key = (*(str(item.facts.get(fact, "")) for fact in IMAGE_FACTS), measurement)
            first, expected = known.setdefault(key, (item, provenance))
            names = ("version", "fingerprint of the images")
            for what, one, other in zip(names, expected, provenance, strict=True):
                if one != other:
                    raise VitreousError(
                        f"{measurement} of {describe_facts(item.facts)} has {what} {other!r}, that "
                        f"of {describe_facts(first.facts)} has {one!r}; such results cannot be "
                        "judged together. Leave one out, or measure it again."
                    )
