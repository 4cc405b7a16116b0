"""What probes and analyses have in common: a name, and their section of the report.

The file of a measurement holds everything that a report says about it. The report finds the file
by the name of the result. A result of a plugin also keeps its section, for readers who do not have
the plugin; without either it gets a default section.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from vitreous.errors import UnknownName, VitreousError
from vitreous.measure import analyses, probes
from vitreous.results import Result
from vitreous.results.words import escape

GROUPS = {
    "overview": "At a glance",
    "representation": "What each unit does to the representation",
    "attention": "Where heads attend",
    "frequency": "Which frequencies pass",
    "output": "Predictions",
    "lesions": "Which units matter",
    "robustness": "Robustness",
    "curvature": "Loss landscape",
    "weights": "Weights",
    "more": "More",
}
"""Groups of sections in the order of the report, and their headings."""


@dataclass(frozen=True)
class Section:
    """A section of the report, as the file of a measurement declares it."""

    group: str
    """One of `GROUPS`."""
    title: str
    explains: str = ""
    """What is measured, and why one would want to know."""
    paper: str = ""
    """What the papers found, and where."""
    order: int = 100
    """Place within the group; sections with the same number are sorted by name."""
    headline: int = 0
    """Place among the sentences at the top of the report; 0 leaves it out."""
    key: int = 0
    """Place among the charts of the first screen, of which there are three; 0 leaves it out."""

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            hint = f"Groups are {', '.join(GROUPS)}."
            raise UnknownName("group of sections", self.group, GROUPS, hint)


class Measurement:
    """What the classes `Probe` and `Analysis` declare alike."""

    name: ClassVar[str]
    """Name of the file, the result, the command line option and the docs page."""
    category: ClassVar[str] = "measurement"
    """"probe" or "analysis"."""
    ids: ClassVar[tuple[str, ...]] = ()
    """Rows of the catalogue."""
    fleeting: ClassVar[tuple[str, ...]] = ()
    """Columns that depend on the clock, so that no two runs agree on them."""
    section: ClassVar[Section | None] = None
    """Its section of the report (default: the name as title, in the last group)."""

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        """Yield sentences that sum up a result, as HTML; empty ones are dropped."""
        yield from ()


def find_measurement(name: str) -> type[Measurement] | None:
    """The class of a probe or analysis: ours or a plugin, or else any that this process defined.

    None for a plugin that cannot be loaded: its results are shown all the same.
    """
    for registry in (probes.REGISTRY, analyses.REGISTRY):
        if name in registry.own_names():
            return registry.named(name)
        with suppress(VitreousError):
            if name in registry.plugins():
                return registry.named(name)
    defined = [each for each in _subclasses(Measurement) if _name(each) == name]
    return defined[-1] if defined else None  # in a notebook a cell may have run twice


def _subclasses(parent: type[Measurement]) -> Iterator[type[Measurement]]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)


def _name(measurement: type[Measurement]) -> str:
    return getattr(measurement, "name", "")  # abstract classes have none


def section_of(name: str, result: Result | None = None) -> Section:
    """The section of a measurement, as its class declares it, or else as its result keeps it.

    Without either the name is the title, in the last group.
    """
    measurement = find_measurement(name)
    if measurement is not None:
        return _declared(measurement)
    if result is not None and "section" in result.about:
        with suppress(TypeError, VitreousError):  # written by another version
            return Section(**result.about["section"])
    return _plain(name)


def _declared(measurement: type[Measurement]) -> Section:
    """The section of a class; one that declares none is explained by its docstring."""
    if isinstance(measurement.section, Section):
        return measurement.section
    says = (vars(measurement).get("__doc__") or "").strip().partition("\n")[0]
    generated = says.startswith(f"{measurement.__name__}(")  # by @dataclass
    return _plain(measurement.name, "" if generated else says)


def _plain(name: str, explains: str = "") -> Section:
    return Section("more", name.replace("_", " ").capitalize(), explains)


def kept_section(measurement: Measurement) -> dict[str, Any]:
    """The section of a measurement that is not one of ours, as its result keeps it; else empty."""
    ours = {*probes.own_names(), *analyses.own_names()}
    if measurement.name in ours:
        return {}
    return {"section": asdict(_declared(type(measurement)))}


def sentences_of(result: Result) -> list[str]:
    """Sentences that sum up a result, as HTML; none for an empty table.

    A result stored by an older version may lack a column that they need; then one sentence says so.
    """
    measurement = find_measurement(result.name)
    if measurement is None or result.table.empty:
        return []
    try:
        return [sentence for sentence in measurement.sentences(result) if sentence]
    except KeyError as error:
        lacks = error.args[0]  # pandas names one column, or a list of them
        missing = escape(lacks if isinstance(lacks, str) else ", ".join(map(str, lacks)))
        return [
            f"This result of {escape(result.name)} is from another version of Vitreous, without "
            f"the column {missing}; measure it again for a summary."
        ]


def sections_of(names: Iterable[str], results: Mapping[str, Result]) -> dict[str, Section]:
    """The section of every measurement, also of those without a result."""
    there = dict(results)  # an inspection raises for what was left out
    return {name: section_of(name, there.get(name)) for name in names}


def arrange(names: Iterable[str], results: Mapping[str, Result]) -> dict[str, list[str]]:
    """Names of measurements by group, in the order of the report; empty groups are left out.

    Measurements without a result are the last of their group.
    """
    sections, there = sections_of(names, results), set(dict(results))
    arranged: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in sorted(sections, key=lambda name: (name not in there, sections[name].order, name)):
        arranged[sections[name].group].append(name)
    return {group: inside for group, inside in arranged.items() if inside}
