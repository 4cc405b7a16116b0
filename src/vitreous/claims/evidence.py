"""What claims are judged on: trained models, what is known of each, and the results that were measured on it.

A claim asks for a model by facts and reads numbers off it. What was not there to be read is written down rather than
raised, so that one reading of a claim says all it lacks; and reading it with nothing at hand says all it needs, which
is where studies get their plans from.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec

import numpy as np

from vitreous.claims.facts import Facts, checked, same, told
from vitreous.claims.measure import Array, Measure, draw
from vitreous.errors import VitreousError
from vitreous.results import Result

if TYPE_CHECKING:
    import pandas as pd

Scale = Literal["sanity", "ten", "hundred"]
"""The embedded world; real images of few classes, as CIFAR-10; of many, as CIFAR-100."""
EMBEDDED = ("world:", "SYN-")
"""How data begin that are generated, and no real images."""
SHARES = ("data", "fraction", "held_out", "resolution", "measured")
"""Facts on which it depends which images a question is asked on."""
MANY = 50
"""Classes from which on there are many."""
P = ParamSpec("P")


@dataclass(frozen=True)
class Exhibit:
    """One trained model at one moment, and its results."""

    facts: Facts
    results: Mapping[str, Result]
    name: str
    """What the results call it."""
    other: str = ""
    """What they call the model that was looked at together with it."""
    classes: int = 0
    """Of the images; 0 where only the results say it."""
    known: Mapping[str, tuple[str, str]] | None = None
    """`marks`, where they are known without reading the results."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Questions that the model could not be asked, and why."""

    @property
    def seed(self) -> int:
        return int(self.facts.get("seed", 0))

    def marks(self) -> Mapping[str, tuple[str, str]]:
        """By question: the version that answered, and the fingerprint of the images."""
        if self.known is not None:
            return self.known
        return {name: marks(result) for name, result in self.results.items()}

    def count(self) -> int:
        """Classes of its images."""
        found = (result.about.get("data", {}).get("classes", 0) for result in self.results.values())
        return self.classes or max(found, default=0)

    @cached_property
    def readings(self) -> dict[Any, Array]:
        """What has been read off it: many claims begin with the same number."""
        return {}

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The rows of its own model, by result."""
        return {}

    def rows(self, question: str) -> Rows:
        """A result, as far as it is about this model."""
        whole = self.results[question]
        if question not in self.tables:
            table = whole.table
            if (
                "model" in table
                and self.name
                and not (own := table["model"].to_numpy() == self.name).all()
            ):
                table = table[own]
            self.tables[question] = table
        return Rows(self, whole, self.tables[question])


def marks(result: Result) -> tuple[str, str]:
    """What results must have in common to be compared: the version that measured, and on which images."""
    about = result.about
    return str(about.get("versions", {}).get("vitreous", "")), str(
        about.get("data", {}).get("fingerprint", "")
    )


@dataclass(frozen=True)
class Need:
    """A result of a model, by facts."""

    facts: Facts
    result: str

    def __str__(self) -> str:
        return f"{self.result} of {told(self.facts)}"


@dataclass(frozen=True)
class Rows:
    """One result of one exhibit, as a claim reads it."""

    exhibit: Exhibit
    result: Result
    table: pd.DataFrame
    """Of the exhibit's own model, where the result has several."""

    def where(self, **wanted: Any) -> Rows:
        """The rows with these entries, or one of several where a tuple is given."""
        chosen = np.ones(len(self.table), bool)
        for column, value in wanted.items():
            entries = self.table[column]
            if isinstance(value, (tuple, list)):
                chosen &= entries.isin(value).to_numpy(dtype=bool)
            else:
                chosen &= (
                    entries.to_numpy() == value
                )  # three times as quick as a comparison by pandas
        return Rows(self.exhibit, self.result, self.table[chosen])

    def replicates(self, column: str = "value") -> Array | None:
        """(1 + replicates, rows) of a column, as measured and on each resample of the images; None if not kept."""
        if column not in self.result.replicates:
            return None
        places = self.result.table.index.get_indexer(self.table.index)
        found = self.result.draws(column)[:, places]
        return found if np.isfinite(found[1:]).any() else None

    def draws(self, column: str = "value") -> Array:
        """(1 + DRAWS, rows) readings of a column and its interval."""
        if self.table.empty:
            raise Unreadable(f"{self.result.name} of {told(self.exhibit.facts)} has no such rows")
        ends = ("low", "high") if column == "value" else (f"{column}_low", f"{column}_high")
        values = self.table[column].to_numpy(dtype=np.float64)
        low, high = (
            self.table[end].to_numpy(dtype=np.float64) if end in self.table else values
            for end in ends
        )
        name = f"{told(self.exhibit.facts)}/{self.result.name}/{column}/{len(values)}/{self.table.index[0]}"
        return draw(name, values, low, high)

    def one(self, column: str = "value") -> Array:
        """(1 + DRAWS,) of the only row."""
        if len(self.table) != 1:
            raise Unreadable(
                f"{self.result.name} of {told(self.exhibit.facts)} has {len(self.table)} rows where one is read"
            )
        return self.draws(column)[:, 0]


class Unreadable(Exception):
    """A result that does not hold what a claim reads."""


@dataclass(frozen=True)
class Seen:
    """A model that a claim has asked for: as many exhibits as there were trainings, none if it is not there."""

    facts: Facts
    exhibits: Sequence[Exhibit]
    look: Look

    def read(self, result: str, reading: Callable[[Rows], Any], name: Hashable = None) -> Measure:
        """A reading of every training, by seed; what has a name is read once. What lacks is noted."""
        name = reading if name is None else name
        found: dict[int, Array] = {}
        unreadable = ""
        for exhibit in self.exhibits:
            if result not in exhibit.results:
                unreadable = exhibit.left_out.get(result, unreadable)
                continue
            try:
                if name not in exhibit.readings:
                    exhibit.readings[name] = np.asarray(
                        reading(exhibit.rows(result)), dtype=np.float64
                    )
                found[exhibit.seed] = exhibit.readings[name]
            except Unreadable as error:
                unreadable = str(error)
        self.look.asked.append(Need(self.facts, result))
        if unreadable and not found:
            self.look.notes.append(unreadable)
        elif not found:
            self.look.missing.append(Need(self.facts, result))
        return Measure(found)


def reads(
    result: str,
) -> Callable[[Callable[Concatenate[Rows, P], Any]], Callable[Concatenate[Seen, P], Measure]]:
    """Make a function of a result's rows into one of a model that was asked for."""

    def wrap(
        function: Callable[Concatenate[Rows, P], Any],
    ) -> Callable[Concatenate[Seen, P], Measure]:
        @wraps(function)
        def reading(seen: Seen, /, *args: P.args, **options: P.kwargs) -> Measure:
            name = (result, function, args, tuple(options.items()))
            return seen.read(result, lambda rows: function(rows, *args, **options), name)

        return reading

    return wrap


@dataclass
class Look:
    """What a claim sees of the evidence: ask it for a model."""

    exhibits: Sequence[Exhibit] = ()
    scale: Scale = "ten"
    others: Sequence[Exhibit] = ()
    """All there are, on whatever data: for claims that name a task, and for what holds without images."""
    asked: list[Need] = field(default_factory=list)
    missing: list[Need] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __call__(self, model: str, **facts: Any) -> Seen:
        wanted = checked(model, facts)
        where = self.others if "data" in wanted or model == "identities" else self.exhibits
        return Seen(
            wanted,
            [each for each in where if each.facts["model"] == model and same(each.facts, wanted)],
            self,
        )

    def at(self, hundred: float, ten: float | None = None, sanity: float | None = None) -> float:
        """A threshold by scale; what is not given is as for many classes."""
        given = {"hundred": hundred, "ten": ten, "sanity": sanity}[self.scale]
        return hundred if given is None else given

    @property
    def sanity(self) -> bool:
        return self.scale == "sanity"


class Evidence:
    """Exhibits that may be judged together."""

    def __init__(
        self, exhibits: Iterable[Exhibit], not_judged: Mapping[str, str] | None = None
    ) -> None:
        self.exhibits = list(exhibits)
        self.not_judged = dict(not_judged or {})
        """Models that were measured and are no evidence, and why."""
        self.seen: dict[str, tuple[list[Exhibit], Scale]] = {}
        """By data, for every claim looks at the same."""
        _check_comparable(self.exhibits)

    @cached_property
    def data(self) -> list[str]:
        """Names of the image sets, the one with the most exhibits first."""
        names = [str(each.facts.get("data", "")) for each in self.exhibits]
        return sorted(set(names), key=lambda name: (-names.count(name), name))

    def on(self, data: str) -> list[Exhibit]:
        return [each for each in self.exhibits if str(each.facts.get("data", "")) == data]

    def look(self, task: str = "") -> tuple[str, Look]:
        """At the exhibits on real images, if there are any, and otherwise at those of the task, or of the world."""
        names = [name for name in self.data if name]  # exact properties have none
        real = [name for name in names if not name.startswith(EMBEDDED)]
        world = [name for name in names if name.startswith("world:")]
        name = (real or [each for each in names if each == task] or world or names or [""])[0]
        if name not in self.seen:
            self.seen[name] = (found := self.on(name)), scale_of(name, found)
        return name, Look(*self.seen[name], self.exhibits)


def scale_of(data: str, exhibits: Sequence[Exhibit]) -> Scale:
    """Which thresholds apply."""
    return scale_for(data, max((each.count() for each in exhibits), default=0))


def scale_for(data: str, classes: int) -> Scale:
    """Which thresholds apply to images of so many classes."""
    if data.startswith(EMBEDDED):
        return "sanity"
    return "hundred" if classes >= MANY else "ten"


def _check_comparable(exhibits: Sequence[Exhibit]) -> None:
    """One version, and one set of images for each question asked about one data set, or the same share of it."""
    known: dict[tuple[str, ...], tuple[Exhibit, tuple[str, str]]] = {}
    for exhibit in exhibits:
        for question, found in exhibit.marks().items():
            place = (*(str(exhibit.facts.get(fact, "")) for fact in SHARES), question)
            first, mark = known.setdefault(place, (exhibit, found))
            for what, one, other in zip(
                ("version", "fingerprint of the images"), mark, found, strict=True
            ):
                if one != other:
                    raise VitreousError(
                        f"{question} of {told(exhibit.facts)} has {what} {other!r}, that of {told(first.facts)} "
                        f"has {one!r}; such results cannot be judged together. Leave one out, or measure it again."
                    )
