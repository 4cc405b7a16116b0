"""Extensions that a book can define: model words, facts, networks, probes and analyses.

They are further tables in the book's file:

    [models]
    small_vit = "the smallest ViT of the same family"

    [facts.registers]
    says = "number of register tokens"
    models = ["vit"]
    option = "registers"
    network = "fifth_paper.networks:with_registers"

    [scales.sanity.small_vit]
    network = "vit_nano"
    options = {patch = 4, depth = 2, width = 24, heads = 2}
    recipe = {epochs = 4}

    [probes]
    token_norm = "fifth_paper.token_norm:TokenNorm"

    [analyses]
    mirror = "mirror.py:Mirror"

A plugin in a file is looked for beside the book's file, wherever the command runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitreous.claims.facts import BOOK_FACTS, FACTS, MODELS
from vitreous.claims.toml_tables import Entries, check_entries
from vitreous.errors import UnknownName, VitreousError
from vitreous.plugins import BOOK_ANALYSES, BOOK_PROBES, absolute_name

TABLES = ("models", "facts", "scales", "probes", "analyses")
"""Tables of a book's file that are neither the paper nor a finding."""
FACT_ENTRIES: Entries = {"models": list, "option": str, "network": str}
NETWORK_ENTRIES: Entries = {"options": dict, "recipe": dict}
ADDED_BY_STUDIES = ("data", "seed")
"""Facts that a study adds to those in a claim's query; they come last in the vocabulary."""


@dataclass(frozen=True)
class NewFact:
    """A fact that a book adds to the vocabulary.

    Parameters
    ----------
    says
        What it means, in a few words.
    models
        Words of the models that can have it.
    option
        The option of the network that it sets; empty if it sets none.
    network
        A function, `module:function`, that builds a network with this fact. It is called with the
        options of the network that it replaces, and that network's name as `base` (default: no
        function, the option is enough).
    """

    says: str
    models: tuple[str, ...] = ()
    option: str = ""
    network: str = ""


@dataclass(frozen=True)
class NewNetwork:
    """The network that a model word stands for at a scale.

    Parameters
    ----------
    network
        A name that `vitreous train` takes: of a family, of timm, or `module:function`.
    options
        Options of the network.
    recipe
        Changes to the recipe of the scale; `name` starts from another recipe, by its name or as
        `module:function`.
    """

    network: str
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Extensions:
    """Everything a book adds: words, facts, networks (by scale, then model word), measurements."""

    models: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, NewFact] = field(default_factory=dict)
    networks: Mapping[str, Mapping[str, NewNetwork]] = field(default_factory=dict)
    probes: Mapping[str, str] = field(default_factory=dict)
    analyses: Mapping[str, str] = field(default_factory=dict)


def read_extensions(tables: Mapping[str, Any], path: Path) -> Extensions:
    """Read the tables of `TABLES` in a book's file."""
    where, folder = path.name, path.parent
    for name in ("models", "probes", "analyses"):
        table = tables.get(name, {})
        texts = dict.fromkeys(table, str) if isinstance(table, dict) else {}
        check_entries(table, f"[{name}] in {where}", texts, {})
    extensions = Extensions(
        tables.get("models", {}),
        _read_facts(tables.get("facts", {}), where, folder),
        _read_networks(tables.get("scales", {}), where, folder),
        *(
            {key: absolute_name(text, folder) for key, text in tables.get(name, {}).items()}
            for name in ("probes", "analyses")
        ),
    )
    _check_models(extensions, where)
    return extensions


def _read_facts(tables: Any, where: str, folder: Path) -> dict[str, NewFact]:
    facts = {}
    for name, table in _subtables(tables, f"[facts] in {where}"):
        check_entries(table, f"[facts.{name}] in {where}", {"says": str}, FACT_ENTRIES)
        network = absolute_name(table.get("network", ""), folder)
        models = tuple(table.get("models", ()))
        facts[name] = NewFact(**{**table, "models": models, "network": network})
    return facts


def _read_networks(tables: Any, where: str, folder: Path) -> dict[str, dict[str, NewNetwork]]:
    networks: dict[str, dict[str, NewNetwork]] = {}
    for scale, models in _subtables(tables, f"[scales] in {where}"):
        networks[scale] = {}
        for model, table in _subtables(models, f"[scales.{scale}] in {where}"):
            place = f"[scales.{scale}.{model}] in {where}"
            check_entries(table, place, {"network": str}, NETWORK_ENTRIES)
            recipe = dict(table.get("recipe", {}))
            if "name" in recipe:
                recipe["name"] = absolute_name(str(recipe["name"]), folder)
            network = absolute_name(table["network"], folder)
            networks[scale][model] = NewNetwork(**{**table, "network": network, "recipe": recipe})
    return networks


def _subtables(tables: Any, where: str) -> list[tuple[str, Any]]:
    """The subtables of a table, with their names."""
    if not isinstance(tables, dict):
        raise VitreousError(f"{where} has to be a table, not {tables!r}.")
    return list(tables.items())


def _check_models(extensions: Extensions, where: str) -> None:
    """Raise an error if facts name unknown models, or networks are for another book's models."""
    known = {**MODELS, **extensions.models}
    for name, fact in extensions.facts.items():
        for model in fact.models:
            if model not in known:
                hint = f"[facts.{name}] in {where} names it; [models] can add it."
                raise UnknownName("model among the facts", str(model), known, hint)
    for scale, networks in extensions.networks.items():
        for model in networks:
            if model not in extensions.models:
                raise VitreousError(
                    f"[scales.{scale}.{model}] in {where} would change the network of other "
                    "papers' findings; use a model word of your own, from [models]."
                )


def extend_vocabulary(extensions: Extensions, where: str) -> None:
    """Add the words, facts and measurements of a book to the vocabulary.

    Adding the same ones again is allowed; giving a known word another meaning raises.
    """
    facts = {name: fact.says for name, fact in extensions.facts.items()}
    kinds = (
        ("model", extensions.models, MODELS),
        ("fact", facts, FACTS),
        ("probe", extensions.probes, BOOK_PROBES),
        ("analysis", extensions.analyses, BOOK_ANALYSES),
    )
    for what, words, known in kinds:
        for word, meaning in words.items():
            if known.get(word, meaning) != meaning:
                raise VitreousError(
                    f"The {what} {word!r} of {where} already is {known[word]!r}; choose another "
                    "word."
                )
    for _, words, known in kinds:
        known.update(words)
    BOOK_FACTS.update({name: fact.models for name, fact in extensions.facts.items()})
    for word in ADDED_BY_STUDIES:
        FACTS[word] = FACTS.pop(word)
