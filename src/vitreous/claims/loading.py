"""Evidence from disk: the items of a study's folder, or the models of an inspection.

A study writes `items/KEY/exhibit.json` for each model and moment, with the results beside it; tables are read when a
claim asks for them, so that judging a whole study reads a fraction of it. Of an inspection nobody has said what its
models are: their units tell, or `roles`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from vitreous.claims.evidence import Evidence, EvidenceItem
from vitreous.claims.facts import check_facts, describe_facts, parse_facts
from vitreous.errors import UnknownName, VitreousError
from vitreous.results import Result
from vitreous.results.files import INDEX_NAME, REMEDY, load_indexed, load_result, read_index
from vitreous.storage.atomic_files import Damaged, read_json

RANDOM = "random weights"
EXHIBITS, INDEX = "items", "exhibit.json"
REMEASURE = "the same study measures it again"


class Stored(Mapping[str, Result]):
    """Results by how each is read, which happens when it is asked for."""

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


def load(path: Path | str, roles: Mapping[str, str] | None = None) -> Evidence:
    """The evidence in a study's folder or in that of an inspection (`roles`: its models' names and
    what they are, as `vit pool=gap`)."""
    home = Path(path).expanduser()
    if (home / EXHIBITS).is_dir():
        folders = sorted(index.parent for index in (home / EXHIBITS).glob(f"*/{INDEX}"))
        return Evidence([item(folder) for folder in folders])
    if (home / INDEX_NAME).is_file():
        try:
            index = read_index(home)
            readers = {
                name: partial(load_indexed, home, name, header)
                for name, header in index["results"].items()
            }
            kinds = {
                name: [unit["kind"] for unit in raw["units"]]
                for name, raw in index["anatomies"].items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise Damaged(home / INDEX_NAME, f"{type(error).__name__}: {error}", REMEDY) from None
        found = Stored(readers)
        return Evidence(_models(found, {**kinds, **_units(found)}, roles or {}), unjudged(found))
    raise VitreousError(
        f"There is nothing to judge in {str(home)!r}: it has neither a folder {EXHIBITS!r}, as studies have, nor an "
        f"{INDEX_NAME}, as `vitreous inspect --results` and `Inspection.save` write it."
    )


def item(folder: Path) -> EvidenceItem:
    """One item of a study; a result that was deleted is not there."""
    try:
        index = read_exhibit(folder)
        facts = {str(name): value for name, value in index["facts"].items()}
        model = facts.pop("model")
        own = {**check_facts(model, facts)}
        marks = {name: (str(mark[0]), str(mark[1])) for name, mark in index["results"].items()}
        said = (index["name"], index["other"], index["classes"], marks, index["left_out"])
        sums = index.get("checksums", {})
        there = [name for name in marks if (folder / f"{name}.json").is_file()]
        readers = {
            name: partial(load_result, folder / f"{name}.json", sums.get(name)) for name in there
        }
        return EvidenceItem(own, Stored(readers), *said)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise Damaged(folder / INDEX, f"{type(error).__name__}: {error}", REMEASURE) from None


def read_exhibit(folder: Path) -> dict[str, Any]:
    """The index of an item, if it is intact and belongs to this folder."""
    try:
        index = read_json(folder / INDEX)
    except Damaged as error:
        raise Damaged(error.path, error.why, REMEASURE) from None
    if index.get("key", folder.name) != folder.name:
        raise Damaged(folder / INDEX, "it belongs to another folder", REMEASURE)
    return index


def judged(results: Mapping[str, Result], roles: Mapping[str, str] | None = None) -> Evidence:
    """Evidence of an inspection that is in memory."""
    return Evidence(_models(results, _units(results), roles or {}), unjudged(results))


def _units(results: Mapping[str, Result]) -> dict[str, list[str]]:
    """The kinds of the units of every model that results speak of."""
    kinds: dict[str, list[str]] = {}
    for result in results.values():
        for name, units in result.about.get("units", {}).items():
            kinds.setdefault(str(name), [str(unit[1]) for unit in units])
    return kinds


def _models(
    results: Mapping[str, Result], kinds: Mapping[str, list[str]], roles: Mapping[str, str]
) -> list[EvidenceItem]:
    """Every model of an inspection is an item on every set of images; `NAME@moment` is a model at that moment. Of
    two that seem to be the same, the first is taken: whoever means the other says so."""
    for name in roles:
        if name not in kinds:
            raise UnknownName(
                "model among those looked at", name, kinds, f"They are {', '.join(kinds)}."
            )
    found: dict[str, EvidenceItem] = {}
    not_judged = unjudged(results)
    for name, units in kinds.items():
        if name in not_judged:
            continue
        own = {question: result for question, result in results.items() if _holds(result, name)}
        moment = name.partition("@")[2] or None
        given = parse_facts(roles[name]) if name in roles else role(units, name, own)
        facts = check_facts(given.pop("model"), {"moment": moment, **given})
        for data in dict.fromkeys(map(_images, own.values())):
            there = {**facts, "data": data}
            results_on = {
                question: result for question, result in own.items() if _images(result) == data
            }
            found.setdefault(describe_facts(there), EvidenceItem(there, results_on, name))
    return list(found.values())


def unjudged(results: Mapping[str, Result]) -> dict[str, str]:
    """Models of an inspection that no finding is judged on, and why: random weights have learned nothing, and neither
    has a model that guesses. A checkpoint early in a training (`NAME@warmup`) may guess: claims ask for it as such."""
    found: dict[str, str] = {}
    for result in results.values():
        for name, known in result.about.get("models", {}).items():
            if known.get("weights") == "random":
                found[str(name)] = RANDOM
    return {**_guessing(results), **found}


def _guessing(results: Mapping[str, Result]) -> dict[str, str]:
    """Models whose accuracy cannot be told from chance."""
    if "accuracy" not in results:
        return {}
    table, classes = (
        results["accuracy"].table,
        results["accuracy"].about.get("data", {}).get("classes", 0),
    )
    if not classes or not {"model", "measure", "overall", "value", "low"} <= set(table.columns):
        return {}
    rows = table[table["overall"] & (table["measure"] == "top-1")].to_dict("records")
    return {
        str(
            row["model"]
        ): f"at chance ({row['value']:.1%} of the images right, and guessing gives {1 / classes:.1%})"
        for row in rows
        if not row["low"] > 1 / classes and "@" not in str(row["model"])
    }


def _images(result: Result) -> str:
    return str(result.about.get("data", {}).get("name", ""))


def _holds(result: Result, model: str) -> bool:
    return "model" not in result.table or bool((result.table["model"] == model).any())


def role(kinds: list[str], name: str, results: Mapping[str, Result]) -> dict[str, Any]:
    """What a model is, as far as its units and results tell, in the words of claims."""
    own = set(kinds)
    if "attention" not in own:
        return {"model": "mixer" if "token-mlp" in own else "resnet"}
    if "conv" in own or "downsample" in own:
        return {"model": "alternet" if "conv" in own else "swin"}
    if "gates" in results:
        return {"model": "convit"}
    if "skip_ratio" not in results:
        return {"model": "vit"}
    table = results["skip_ratio"].table
    pooled = "class" not in set(table.loc[table["model"] == name, "token"])
    return {"model": "vit", "pool": "gap"} if pooled else {"model": "vit"}
