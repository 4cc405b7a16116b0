"""The common base of probes and analyses: a name, and a section of the report.

The file of a measurement contains all text of the report about it. The report finds the file by the
name of the result. A result of a plugin also stores its section, for readers without the plugin. If
there is neither, it gets a default section.
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
    """What is measured, and why."""
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
    """Common base class of `Probe` and `Analysis`."""

    name: ClassVar[str]
    """Name of the file, the result, the command line option and the docs page."""
    category: ClassVar[str] = "measurement"
    """"probe" or "analysis"."""
    ids: ClassVar[tuple[str, ...]] = ()
    """Ids of the catalogue of papers' findings."""
    fleeting: ClassVar[tuple[str, ...]] = ()
    """Columns that depend on timing, so that they differ between runs."""
    section: ClassVar[Section | None] = None
    """Its section of the report (default: the name as title, in the last group)."""

    @classmethod
    def sentences(cls, result: Result) -> Iterator[str]:
        """Yield sentences that summarise a result, as HTML; empty ones are dropped."""
        yield from ()


def find_measurement(name: str) -> type[Measurement] | None:
    """The class of a probe or analysis: ours, a plugin, or else one defined in this process.

    None for a plugin that cannot be loaded; its results can still be reported.
    """
    for registry in (probes.REGISTRY, analyses.REGISTRY):
        if name in registry.own_names():
            return registry.named(name)
        with suppress(VitreousError):
            if name in registry.plugins():
                return registry.named(name)
    defined = [each for each in _subclasses(Measurement) if _name(each) == name]
    return defined[-1] if defined else None  # the last one, since a notebook cell may run twice


def _subclasses(parent: type[Measurement]) -> Iterator[type[Measurement]]:
    for child in parent.__subclasses__():
        yield child
        yield from _subclasses(child)


def _name(measurement: type[Measurement]) -> str:
    return getattr(measurement, "name", "")  # abstract classes have none


def section_of(name: str, result: Result | None = None) -> Section:
    """The section of a measurement, as declared by its class, or else as stored in its result.

    Without either the name is the title, in the last group.
    """
    measurement = find_measurement(name)
    if measurement is not None:
        return _declared(measurement)
    if result is not None and "section" in result.about:
        with suppress(TypeError, VitreousError):  # stored by another version
            return Section(**result.about["section"])
    return _default_section(name)


def _declared(measurement: type[Measurement]) -> Section:
    """The section of a class; if it declares none, a default one with its docstring."""
    if isinstance(measurement.section, Section):
        return measurement.section
    says = (vars(measurement).get("__doc__") or "").strip().partition("\n")[0]
    generated = says.startswith(f"{measurement.__name__}(")  # by @dataclass
    return _default_section(measurement.name, "" if generated else says)


def _default_section(name: str, explains: str = "") -> Section:
    return Section("more", name.replace("_", " ").capitalize(), explains)


def kept_section(measurement: Measurement) -> dict[str, Any]:
    """The section of a plugin, to store in its result; empty for our measurements."""
    ours = {*probes.own_names(), *analyses.own_names()}
    if measurement.name in ours:
        return {}
    return {"section": asdict(_declared(type(measurement)))}


def sentences_of(result: Result) -> list[str]:
    """Sentences that summarise a result, as HTML; empty for an empty table.

    If a result of an older version lacks a column that they need, one sentence says so.
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
    known = dict(results)  # an inspection raises for what was left out
    return {name: section_of(name, known.get(name)) for name in names}


def arrange(names: Iterable[str], results: Mapping[str, Result]) -> dict[str, list[str]]:
    """Names of measurements by group, in the order of the report; empty groups are left out.

    Measurements without a result are the last of their group.
    """
    sections, there = sections_of(names, results), set(dict(results))
    arranged: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in sorted(sections, key=lambda name: (name not in there, sections[name].order, name)):
        arranged[sections[name].group].append(name)
    return {group: inside for group, inside in arranged.items() if inside}
