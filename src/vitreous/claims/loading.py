"""Evidence from disk: the items of a study's folder, or the models of an inspection.

A study writes `exhibits/KEY/exhibit.json` for each model and checkpoint, with its results beside
it. Tables are read when a claim needs them, so judging a study reads a fraction of its files. A
model of an inspection is judged if its role is known, from its run or from `--role`. Roles are not
guessed from the units of a model: a ConvNeXt is no ResNet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from shlex import quote
from typing import Any

from vitreous.claims.book_sources import every_book
from vitreous.claims.evidence import Evidence, EvidenceItem
from vitreous.claims.evidence_item import marks
from vitreous.claims.facts import (
    Facts,
    check_facts,
    describe_facts,
    parse_facts,
    read_older_facts,
    role_of_build,
)
from vitreous.errors import NoSuchPath, UnknownName, VitreousError
from vitreous.results import Result
from vitreous.results.files import CONTROL_FOLDER, INDEX_NAME, REMEDY, read_index
from vitreous.results.stored import StoredResult
from vitreous.results.weight_origin import model_records, untrained_words
from vitreous.storage.atomic_files import Damaged, read_json

RANDOM = "random weights"
ONE_IMAGE = "measured on a single image, which has no interval"
NO_ROLE = "nothing says what it is; tell with --role, as in --role NAME='vit pool=gap'"
SAME_ROLE = "it has the role of {first} ({role!r}); tell them apart with --role, as in 'vit size=s'"
EXHIBITS, INDEX, STUDY = "exhibits", "exhibit.json", "study.json"
REMEASURE = "the same study measures it again"
CHECKPOINTS = {"initial": "start", "final": ""}
"""Names of checkpoints in runs, and in claims."""


class StoredResults(Mapping[str, Result]):
    """Results by name, each read when it is first used."""

    def __init__(self, readers: Mapping[str, Callable[[], Result]]) -> None:
        self.readers = readers
        self._read: dict[str, Result] = {}

    def __getitem__(self, name: str) -> Result:
        if name not in self._read:
            self._read[name] = self.readers[name]()
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self.readers  # without reading it

    def __iter__(self) -> Iterator[str]:
        return iter(self.readers)

    def __len__(self) -> int:
        return len(self.readers)


def load_evidence(
    path: Path | str, roles: Mapping[str, str] | None = None, *, approximate: bool = False
) -> Evidence:
    """Load the evidence in the folder of a study or of an inspection.

    Parameters
    ----------
    path
        The folder.
    roles
        For an inspection: the roles of its models by name, as "vit pool=gap" (default: those that
        were saved with it).
    approximate
        Accept results of version 0.1, which have intervals but no replicates. Models are then
        compared as if they had been measured on different images.

    Examples
    --------
    >>> models = {"mine": "nano:vit_gap"}
    >>> inspection = vitreous.inspect(models, probes=["skip_ratio"], limit=8)
    >>> evidence = load_evidence(inspection.save("numbers"), {"mine": "vit pool=gap"})
    """
    every_book()  # books may add words to the facts
    home = Path(path).expanduser()
    if not home.exists():
        raise NoSuchPath("folder", str(path), "of saved results or of a study")
    if not home.is_dir():
        raise VitreousError(
            f"{str(home)!r} is a file. Name the folder of a study or of saved results; an archive "
            "of one has to be unpacked first."
        )
    if (home / EXHIBITS).is_dir():
        folders = sorted(index.parent for index in (home / EXHIBITS).glob(f"*/{INDEX}"))
        items = [load_item(folder, approximate=approximate) for folder in folders]
        return Evidence(items, options=_study_options(home, items))
    if not (home / INDEX_NAME).is_file():
        raise VitreousError(
            f"There is nothing to judge in {str(home)!r}: it has neither a folder {EXHIBITS!r}, as "
            f"studies have, nor an {INDEX_NAME}, as `vitreous inspect --results` and "
            "`Inspection.save` write it."
        )
    results = _stored_results(home)
    evidence = evidence_of(results, {**_stored_roles(home, results), **(roles or {})})
    models = dict.fromkeys(item.name for item in evidence.items)
    if (home / CONTROL_FOLDER / INDEX_NAME).is_file():
        evidence = add_control(evidence, _stored_results(home / CONTROL_FOLDER))
    if approximate:
        return evidence
    remedy = partial(_inspection_remedy, home, models, "".join(evidence.data[:1]))
    return Evidence([replace(each, remedy=remedy) for each in evidence.items], evidence.not_judged)


def _stored_results(home: Path) -> StoredResults:
    """The results of an inspection, each read when it is first used."""
    try:
        headers = read_index(home)["results"]
        return StoredResults({
            name: partial(_open_indexed, home, name, header) for name, header in headers.items()
        })  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise Damaged(home / INDEX_NAME, f"{type(error).__name__}: {error}", REMEDY) from None


def _stored_roles(home: Path, results: StoredResults) -> dict[str, str]:
    """The roles that were given when the inspection was made, of the models that were measured."""
    roles = read_index(home).get("roles", {})
    if not isinstance(roles, dict):
        raise Damaged(home / INDEX_NAME, "its roles are not an object", REMEDY)
    known = _described_models(results)
    return {name: str(role) for name, role in roles.items() if name in known}


def _open_indexed(home: Path, name: str, header: dict[str, Any] | None) -> StoredResult:
    """One of the results of an inspection; the index of Vitreous 0.1 has no headers."""
    if header is None:
        return StoredResult.open(home / f"{name}.json")
    return StoredResult.of_header(header, home / INDEX_NAME)


def load_item(folder: Path, *, approximate: bool = False) -> EvidenceItem:
    """Load one item of a study; results whose files were deleted are left out."""
    try:
        index = read_exhibit(folder)
        facts = {str(name): value for name, value in index["facts"].items()}
        provenance = {name: (str(each[0]), str(each[1])) for name, each in index["results"].items()}
        checksums = index.get("checksums", {})
        readers = {
            name: partial(StoredResult.open, folder / f"{name}.json", checksums.get(name))
            for name in provenance
            if (folder / f"{name}.json").is_file()
        }
        return EvidenceItem(
            check_facts(facts.pop("model"), facts),
            StoredResults(readers),
            index["name"],
            index["other"],
            index["classes"],
            provenance,
            index["left_out"],
            None if approximate else partial(_study_remedy, folder, index.get("study") or {}),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise Damaged(folder / INDEX, f"{type(error).__name__}: {error}", REMEASURE) from None


def _study_options(home: Path, items: Iterable[EvidenceItem]) -> str:
    """Options of the command that adds to this study; "" if its settings cannot be read."""
    try:
        settings = json.loads((home / STUDY).read_text(encoding="utf-8"))
        options = {name: settings.get(name) for name in ("data", "scale", "image")}
    except (OSError, ValueError, AttributeError):
        return ""  # the study reports the problem when it is run
    seeds = 1 + max((item.seed for item in items), default=0)
    options |= {"seeds": seeds if seeds > 1 else None, "out": home}
    return " ".join(f"--{name} {quote(str(value))}" for name, value in options.items() if value)


def _study_remedy(folder: Path, settings: Mapping[str, Any], measurement: str, command: str) -> str:
    """How to measure a result of a study again, as part of a sentence."""
    given = [f"--{name} {settings[name]}" for name in ("data", "scale") if settings.get(name)]
    options = " ".join([*given, f"--out {folder.parents[1]}"])
    file = folder / f"{measurement}.json"
    return f"delete {str(file)!r} and measure it again with `{command} {options}`"


def _inspection_remedy(
    home: Path, models: Iterable[str], data: str, measurement: str, command: str
) -> str:
    """How to measure the results of an inspection again; the two last arguments are not used."""
    options = f"--data {data} --results {home}"
    again = f"vitreous inspect {' '.join(models)} {options}"
    return f"{str(home / INDEX_NAME)!r} is written anew by `{again}`"


def read_exhibit(folder: Path) -> dict[str, Any]:
    """The index of an evidence item, if it is intact and belongs to this folder."""
    try:
        index = read_json(folder / INDEX)
    except Damaged as error:
        raise Damaged(error.path, error.why, REMEASURE) from None
    if index.get("key", folder.name) != folder.name:
        raise Damaged(folder / INDEX, "it belongs to another folder", REMEASURE)
    if isinstance(index.get("facts"), dict):
        index["facts"] = read_older_facts(index["facts"])
    return index


def evidence_of(results: Mapping[str, Result], roles: Mapping[str, str] | None = None) -> Evidence:
    """Convert the results of an inspection to evidence.

    Every model on every dataset is an item; `NAME@warmup` is a model at that checkpoint. If two
    models have the same role, the first is judged and the other is listed in `not_judged`."""
    known = _described_models(results)
    roles = roles or {}
    for name in roles:
        if name not in known:
            models = ", ".join(known)
            raise UnknownName("model of the inspection", name, known, f"They are {models}.")
    not_judged = unjudged(results)
    items: dict[str, EvidenceItem] = {}
    for name, described in known.items():
        role = roles.get(name) or role_of_build(described.get("build") or {})
        if name not in not_judged and not role:
            not_judged[name] = NO_ROLE
        if name in not_judged:
            continue
        of_model = {each: result for each, result in results.items() if _is_about(result, name)}
        facts = parse_facts(role)
        suffix = name.partition("@")[2]
        checkpoint = CHECKPOINTS.get(suffix, suffix) or None
        facts = check_facts(facts.pop("model"), {"checkpoint": checkpoint, **facts})
        for data in dict.fromkeys(map(_data_name, of_model.values())):
            on_data = {each: r for each, r in of_model.items() if _data_name(r) == data}
            item = EvidenceItem({**facts, "data": data}, on_data, name)
            first = items.setdefault(describe_facts(item.facts), item)
            if first.name != name:
                not_judged[name] = SAME_ROLE.format(first=first.name, role=role)
    return Evidence([*items.values(), *_pairs([*items.values()])], not_judged)


def _pairs(items: Sequence[EvidenceItem]) -> Iterator[EvidenceItem]:
    """Every model beside every other one that was measured with it on the same images."""
    for item, other in permutations(items, 2):
        later = other.seed - item.seed  # claims name the seed of the second relative to the first
        if other.facts.get("data") != item.facts.get("data") or later < 0:
            continue
        both = {n: result for n, result in item.results.items() if _is_beside(result, other.name)}
        facts = {name: other.facts[name] for name in other.facts if name not in ("data", "seed")}
        beside = describe_facts({**facts, "seed": later} if later else facts)
        if both:
            yield EvidenceItem(_added(item.facts, beside=beside), both, item.name, other.name)


def _added(facts: Facts, **more: str) -> Facts:
    """The facts with some more, in the order of the vocabulary."""
    known = {name: value for name, value in facts.items() if name != "model"}
    return check_facts(str(facts["model"]), {**known, **more})


def add_control(evidence: Evidence, control: Mapping[str, Result]) -> Evidence:
    """Add the same networks before training to the evidence of an inspection.

    `control` has the results of `NAME@initial`, which is what NAME is, apart from its training;
    beside another model, that one is trained. It was measured by the same command on the same
    images; where another model of the inspection takes them in another size, the fingerprint is
    that of the other size."""
    untrained = []
    given = [item.facts for item in evidence.items]
    for item in evidence.items:
        name, data = f"{item.name}@initial", item.facts.get("data")
        own = {
            each: result
            for each, result in control.items()
            if _is_about(result, name) and _data_name(result) == data
            if not item.other or _is_beside(result, item.other)
        }
        facts = _added(item.facts, checkpoint="start")
        if own and not item.facts.get("checkpoint") and facts not in given:
            known = {each: _marks_beside(item, result) for each, result in own.items()}
            untrained.append(EvidenceItem(facts, own, name, item.other, known=known))
    return Evidence([*evidence.items, *untrained], evidence.not_judged)


def _marks_beside(item: EvidenceItem, control: Result) -> tuple[str, str]:
    """The marks of a control, on the images of the model that it is the control of."""
    version, own = marks(control)
    trained = item.results.get(control.name)
    if trained is None:
        return version, own
    chosen = ("name", "split", "images", "of")
    one, other = (result.about.get("data", {}) for result in (trained, control))
    same = all(one.get(each) == other.get(each) for each in chosen)
    return version, marks(trained)[1] if same else own


def _described_models(results: Mapping[str, Result]) -> dict[str, dict[str, Any]]:
    """What the results record about each of their models, by the model's name."""
    described: dict[str, dict[str, Any]] = {}
    for result in results.values():
        for name, record in result.about.get("models", {}).items():
            described.setdefault(str(name), {}).update(record)
    return described


def unjudged(results: Mapping[str, Result]) -> dict[str, str]:
    """Models of an inspection that are not judged, and why: those that have learned nothing.

    They have random weights, a checkpoint that is still as initialised, or an accuracy at chance.
    What was measured on a single image is not judged, either, because it has no interval.
    Checkpoints early in a training (`NAME@initial`, `NAME@warmup`) are exempt, because claims use
    them as what they are.
    """
    reasons = {**_of_one_image(results), **_at_chance(results)}
    for name, record in model_records(results):
        if "@" in name:
            continue
        if record.get("weights") == "untrained":
            reasons[name] = untrained_words(name, record)
        elif record.get("weights") == "random":
            reasons[name] = RANDOM
    return reasons


def _of_one_image(results: Mapping[str, Result]) -> dict[str, str]:
    """A sentence for each model whose results are all of one image."""
    images: dict[str, int] = {}
    for result in results.values():
        count = int(result.about.get("data", {}).get("images", 2))
        for name in result.about.get("models", {}):
            images[name] = max(count, images.get(name, 0))
    return {name: ONE_IMAGE for name, count in images.items() if count < 2}


def _at_chance(results: Mapping[str, Result]) -> dict[str, str]:
    """A sentence for each model whose 95 % interval of accuracy contains chance."""
    if "accuracy" not in results:
        return {}
    table = results["accuracy"].table
    classes = results["accuracy"].about.get("data", {}).get("classes", 0)
    if not classes or not {"model", "measure", "overall", "value", "low"} <= set(table.columns):
        return {}
    reasons = {}
    for row in table[table["overall"] & (table["measure"] == "top-1")].to_dict("records"):
        name = str(row["model"])
        if not row["low"] > 1 / classes and "@" not in name:
            reasons[name] = (
                f"at chance ({row['value']:.1%} of the images right, and guessing gives "
                f"{1 / classes:.1%})"
            )
    return reasons


def _data_name(result: Result) -> str:
    return str(result.about.get("data", {}).get("name", ""))


def _is_beside(result: Result, model: str) -> bool:
    """Whether a model was measured together with those of the result."""
    return model in result.about.get("beside", ())


def _is_about(result: Result, model: str) -> bool:
    return "model" not in result.column_names or bool((result.entries("model") == model).any())
