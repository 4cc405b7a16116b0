"""What probes and analyses have in common: a name, and their section of the report.

The file of a measurement holds everything that a report says about it. The report finds the file
by the name of the result; a result whose measurement is not in our folders gets a default section.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

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
    """Place in the summary at the top of the report; 0 leaves it out."""


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
    """The class of a probe or analysis: from our folders, or else any that this process defined."""
    for registry in (probes.REGISTRY, analyses.REGISTRY):
        if name in registry.names():
            return registry.named(name)
    return next((each for each in _subclasses(Measurement) if _name(each) == name), None)


def _subclasses(parent: type[Measurement]) -> Iterator[type[Measurement]]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)


def _name(measurement: type[Measurement]) -> str:
    return getattr(measurement, "name", "")  # abstract classes have none


def section_of(name: str) -> Section:
    """The section of a measurement; the name as title in the last group if it declares none."""
    measurement = find_measurement(name)
    declared = measurement.section if measurement else None
    return declared or Section("more", name.replace("_", " ").capitalize())


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
        missing = escape(error.args[0])
        return [
            f"This result of {escape(result.name)} is from another version of Vitreous, without "
            f"the column {missing}; measure it again for a summary."
        ]


def arrange(names: Iterable[str]) -> dict[str, list[str]]:
    """Names of measurements by group, in the order of the report; empty groups are left out."""
    arranged: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in sorted(names, key=lambda name: (section_of(name).order, name)):
        arranged[section_of(name).group].append(name)
    return {group: inside for group, inside in arranged.items() if inside}
