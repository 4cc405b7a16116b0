"""Apply the facts and recipes of other packages' books to a network and its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vitreous.claims.book_sources import every_book
from vitreous.claims.facts import Facts
from vitreous.config import Recipe
from vitreous.studies.scales import Build
from vitreous.training.recipes import named


def extend_build(build: Build, facts: Facts) -> Build:
    """Return the network with the options that facts of books set.

    If a fact names a function that builds the network, that function gets the network's options,
    and its name as `base`.
    """
    of_books = {name: fact for book in every_book() for name, fact in book.extensions.facts.items()}
    for name, fact in of_books.items():
        if name not in facts or not fact.option:
            continue
        build = replace(build, options={**build.options, fact.option: facts[name]})
        if fact.network and build.name != fact.network:
            options = {"base": build.name, **build.options}
            build = replace(build, name=fact.network, options=options)
    return build


def change_recipe(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a scale with the changes of a book's network.

    The change `name` starts from another recipe: one of `vitreous list recipes`, or
    `module:function` or `file.py:function`.
    """
    fields = dict(changes)
    name = str(fields.pop("name", ""))
    return (named(name) if name else recipe).but(**fields)
