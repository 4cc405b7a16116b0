"""Claims, and books of claims.

The text of a claim is data: a TOML file with a table for the paper and one for every finding
(sentence, place in the paper, what the paper reports, study, preconditions). Its check is a
function, registered under the finding's id:

    BOOK = Book.read(Path(__file__).with_name("registers.toml"))

    @BOOK.check("REG-01")
    def some_tokens_have_a_large_norm(models: Query) -> Iterator[Effect]:
        yield more("largest norm over the median", norm_ratio(models("vit")), 1.0, paper=4.0)
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from vitreous.claims.book_extensions import TABLES, Extensions, extend_vocabulary, read_extensions
from vitreous.claims.effects import Effect
from vitreous.claims.evidence import TASKS, Need, Query, Scale
from vitreous.claims.preconditions import KINDS, Condition, Precondition, read_preconditions
from vitreous.claims.toml_tables import Entries, check_entries, read_toml
from vitreous.errors import HOME, UnknownName, VitreousError, reason
from vitreous.storage.atomic_files import Damaged

Study = Literal[
    "zoo",
    "data",
    "hessian-sweeps",
    "sweeps",
    "alternet",
    "convit",
    "skips",
    "masked",
    "identities",
]
"""Studies of this package's own papers; other books may have others."""
Check = Callable[[Query], Iterable[Effect]]

WITHOUT_CONTROL = frozenset(
    (
        "accuracy",
        "adversarial",
        "attention_maps",
        "band_noise",
        "calibration",
        "corruption",
        "cost",
        "cue_conflict",
        "ensemble",
        "frequency_pass",
        "gates",
        "hessian",
        "identities",
        "landscape",
        "lesion",
        "linear_probe",
        "mc_dropout",
        "occlusion",
        "training",
        "trajectory",
    )
)
"""Measurements of a network's performance or training. All others are of its representations, those
that plugins bring as well. An untrained network has representations, too, so claims about trained
networks are compared with an untrained control."""


PAPER_ENTRIES: Entries = {"key": str, "title": str, "authors": str, "year": int, "arxiv": str}
FINDING: Entries = {"sentence": str, "place": str, "reported": str, "study": str}
"""What the table of every finding has."""
FINDING_OPTIONS: Entries = {
    "value": float,
    "unit": str,
    "many_classes": bool,
    "task": str,
    "sanity": bool,
    "large": bool,
    "withdrawn": str,
    "requires": list,
    "control": bool,
}


class CheckFailed(VitreousError):
    """A check or precondition raised an error.

    `why` is the error with its place: the line in `file`, the check's, or where it was raised.
    """

    def __init__(self, id: str, error: Exception, file: str = "") -> None:
        self.why = reason(error, file).rstrip(".")
        end = "" if self.why.endswith("?") else "."
        super().__init__(f"The check of {id} failed: {self.why}{end}")


@dataclass(frozen=True)
class Paper:
    """The paper that claims are from; their ids begin with its `key`."""

    key: str
    title: str
    authors: str
    year: int
    arxiv: str


@dataclass(frozen=True)
class Claim:
    """A finding of a paper, and the check that judges it.

    Parameters
    ----------
    place
        Figure, table or section.
    reported
        What the paper measured, in a few words and numbers.
    study
        The study that trains and measures the models it needs.
    value
        The paper's number for the main effect; None if it has none that can be compared.
    unit
        The unit of that number: points, share, ratio.
    many_classes
        Whether the number only applies to data of many classes.
    task
        The task of the embedded world on which a small version runs; empty if there is none.
    sanity
        Whether there is a small version for two cores.
    large
        Whether the paper's claim is about ImageNet or larger data, so that small data can only test
        an analogue.
    withdrawn
        Who withdrew or disputes it, and where.
    requires
        Preconditions of testing the claim.
    control
        False if it is about representations, but untrained networks are no control for it.
    analyses
        The analyses that its book adds; they need no untrained control.
    source
        The reference by which its book was given, if the book is not installed.
    """

    id: str
    sentence: str
    paper: Paper
    place: str
    reported: str
    study: str
    check: Check
    value: float | None = None
    unit: str = ""
    many_classes: bool = False
    task: str = ""
    sanity: bool = False
    large: bool = False
    withdrawn: str = ""
    requires: tuple[Precondition, ...] = ()
    control: bool = True
    analyses: frozenset[str] = frozenset()
    source: str = ""

    @property
    def command(self) -> str:
        """The command that measures what it needs."""
        book = f" --book {quote(self.source)}" if self.source else ""
        return f"vitreous study {self.study}{book}"

    def evaluate(self, query: Query) -> Iterator[Effect]:
        """The effects of its check on this evidence; an error names the claim."""
        applies = query.scale == "hundred" or not self.many_classes
        with self._named_in_errors():
            effects = self.check(replace(query, paper=self.value if applies else None))
            if not isinstance(effects, Iterable):
                raise TypeError(f"it returns {effects!r}, and a check yields effects")
            for effect in effects:
                if not isinstance(effect, Effect):
                    raise TypeError(f"it yields {effect!r}, which is no Effect")
                yield effect

    def unmet(self, query: Query) -> list[str]:
        """Why it cannot be tested on this evidence: a sentence for each unmet precondition."""
        with self._named_in_errors():
            return [why for each in self.requires if (why := each.unmet(query))]

    @contextmanager
    def _named_in_errors(self) -> Iterator[None]:
        """Name the claim in errors that its check or a precondition raises."""
        try:
            yield
        except Exception as error:
            if _is_about_a_file(error):
                raise  # the user has to repair the file; the check is not at fault
            raise CheckFailed(self.id, error, _source_of(self.check)) from error

    def needs(self, scale: Scale = "ten") -> list[Need]:
        """Every result it reads, its untrained control included.

        Found by evaluating the claim on empty evidence, which records what it reads.
        """
        query = Query(scale=scale)
        for _ in self.evaluate(query):
            pass
        self.unmet(query)
        needs = query.needs + (self.control_needs(scale) if self.has_control(scale) else [])
        return list({str(need): need for need in needs}.values())

    def has_control(self, scale: Scale = "ten") -> bool:
        """Whether its main effect has to be compared with that of untrained networks.

        It does if it is read off trained networks, and only from measurements of representations.
        """
        if not self.control:
            return False
        query = Query(scale=scale)
        _main_effect(self.evaluate(query))
        trained = [need for need in query.needs if "checkpoint" not in need.facts]
        exempt = WITHOUT_CONTROL | self.analyses
        return bool(trained) and exempt.isdisjoint(need.result for need in query.needs)

    def control_needs(self, scale: Scale) -> list[Need]:
        query = Query(scale=scale, untrained=True)
        _main_effect(self.evaluate(query))
        return query.needs


def _is_about_a_file(error: Exception) -> bool:
    """Whether an error is about a file of results, and not a fault of the check."""
    if isinstance(error, Damaged):
        return True
    if isinstance(error, UnknownName) or not isinstance(error, VitreousError):
        return False
    return traceback.extract_tb(error.__traceback__)[-1].filename.startswith(HOME)


def _source_of(check: Check) -> str:
    code = getattr(check, "__code__", None)
    return "" if code is None else str(code.co_filename)


def _main_effect(effects: Iterable[Effect]) -> Effect | None:
    """The main effect, which is the first that is not merely noted."""
    return next((effect for effect in effects if effect.direction is not None), None)


class Book:
    """The claims of one paper, in the order of their ids, and what else the book adds."""

    def __init__(
        self,
        paper: Paper,
        entries: dict[str, dict[str, Any]],
        extensions: Extensions | None = None,
    ) -> None:
        self.paper = paper
        self.entries = entries
        self.extensions = extensions or Extensions()
        self.claims: dict[str, Claim] = {}
        self.conditions: dict[str, tuple[str, Condition]] = {}

    @classmethod
    def read(cls, path: Path) -> Book:
        """Read a TOML file with a table `paper` and one for each claim.

        `vitreous.claims.book_extensions` describes the other tables that it may have. Reading the
        file also registers the words that the book adds for models, facts and probes.

        Examples
        --------
        >>> BOOK = Book.read(Path(__file__).with_name("registers.toml"))
        """
        content = read_toml(path)
        where = path.name
        tables = {name: content.pop(name) for name in TABLES if name in content}
        if "paper" not in content:
            raise VitreousError(f"{str(path)!r} is no book of findings: it has no table [paper].")
        paper = content.pop("paper")
        check_entries(paper, f"[paper] in {where}", PAPER_ENTRIES, {})
        _check_id(paper["key"], f"The key of {where}")
        _check_findings(content, where)
        extensions = read_extensions(tables, path)
        extend_vocabulary(extensions, where)
        return cls(Paper(**paper), content, extensions)

    def check(self, id: str) -> Callable[[Check], Check]:
        """Decorator that registers the check of a claim, whose text is in the book's file."""
        if id not in self.entries:
            raise UnknownName(
                "claim", id, self.entries, "The book's file has no table of that name."
            )

        def register(check: Check) -> Check:
            if id in self.claims:
                raise VitreousError(f"The finding {id!r} has two checks; it takes one.")
            if not callable(check):
                raise VitreousError(f"The check of {id!r} has to be a function, not {check!r}.")
            entry = dict(self.entries[id])
            requires = read_preconditions(id, entry.pop("requires", ()), self.conditions)
            entry["sanity"] = bool(entry.get("sanity") or entry.get("task"))
            self.claims[id] = Claim(
                id=id,
                paper=self.paper,
                check=check,
                requires=requires,
                analyses=frozenset(self.extensions.analyses),
                **entry,
            )
            return check

        return register

    def precondition(self, kind: str, says: str) -> Callable[[Condition], Condition]:
        """Decorator that adds a kind of precondition, for the checks that come after it.

        Parameters
        ----------
        kind
            Its name in `requires = [{blocks = 12}]`.
        says
            What it requires, with `{value}`: "a ViT of at least {value} blocks".

        Examples
        --------
        >>> @BOOK.precondition("blocks", "a ViT of at least {value} blocks")
        ... def has_blocks(models, value):
        ...     found = count_blocks(models("vit"))
        ...     return "" if found >= value else f"It needs {value} blocks; this one has {found}."
        """
        if kind in (*KINDS, *self.conditions):
            raise VitreousError(f"There already is a precondition {kind!r}; choose another name.")

        def register(condition: Condition) -> Condition:
            self.conditions[kind] = (says, condition)
            return condition

        return register

    def __iter__(self) -> Iterator[Claim]:
        return iter(sorted(self.claims.values(), key=lambda claim: claim.id))


def _check_findings(tables: dict[str, Any], where: str) -> None:
    """Raise an error if a table of a book's file is not a valid finding, or if two share an id."""
    ids: dict[str, str] = {}
    for id, table in tables.items():
        if not isinstance(table, dict) or not table.keys() & FINDING.keys():
            hint = f"A finding in {where} has {', '.join(FINDING)}."
            raise UnknownName("table", id, ("paper", *TABLES), hint)
        check_entries(table, f"[{id}] in {where}", FINDING, FINDING_OPTIONS)
        _check_id(id, f"An id in {where}")
        task = table.get("task", "")
        if task not in ("", *TASKS) and not task.startswith("world:"):
            raise UnknownName(f"task of [{id}] in {where}", task, TASKS, f"{', '.join(TASKS)}.")
        if (first := ids.setdefault(id.upper(), id)) != id:
            raise VitreousError(
                f"[{first}] and [{id}] in {where} have the same id; give one of them another."
            )


def _check_id(id: str, what: str) -> None:
    """Raise an error unless an id can be typed after `--only` and linked to on a page."""
    if not re.fullmatch(r"[\w.-]+", id):
        raise VitreousError(
            f"{what} is {id!r}, and that has to be of letters, digits, hyphens, dots and "
            "underscores."
        )


def find_claim(claims: Iterable[Claim], id: str) -> Claim:
    """A claim by its id, in upper or lower case."""
    known = {claim.id.upper(): claim for claim in claims}
    if (wanted := id.upper()) not in known:
        raise UnknownName("claim", id, known, "`vitreous claims list` shows them all.")
    return known[wanted]
