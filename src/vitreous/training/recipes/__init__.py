"""Recipes by name: one file per paper here, and plugins. `named("fast")`, `names()`.

A recipe is a function that returns a `Recipe`; the function's name is the recipe's, and the folder
is the registry. Functions take what their paper varies: `dascoli_2021.deit(batch=256)`. A plugin is
such a function or a `Recipe`, given as `file.py:NAME`, or by the name of its entry point.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import isfunction
from pkgutil import iter_modules
from typing import Any

from vitreous import plugin_source
from vitreous.config import Recipe
from vitreous.errors import InYourCode, UnknownName, VitreousError
from vitreous.plugins import (
    RECIPE,
    describe_object,
    find_clashes,
    is_reference,
    load_object,
    usable_plugins,
)

__all__ = ["named", "names", "origin", "own_names", "summary"]


class RecipeRegistry:
    """The recipes that the files of this folder define, and plugins."""

    def named(self, name: str) -> Recipe:
        """The recipe called `name`, as its paper has it; change it with `recipe.but(epochs=20)`.

        `file.py:NAME` and `mypkg.module:NAME` are recipes of your own.

        Examples
        --------
        >>> vitreous.recipes.named("fast").but(epochs=20).epochs
        20
        """
        if name in _functions():
            return _functions()[name]()
        return _load(name if is_reference(name) else self._place(name))

    def own_names(self) -> list[str]:
        """The recipes of this folder."""
        return sorted(_functions())

    def names(self) -> list[str]:
        """Every name that `named` knows."""
        return sorted({*_functions(), *usable_plugins(RECIPE, _functions())})

    def summary(self, name: str) -> str:
        """The first line of a recipe's docstring; the file of a plugin is not run."""
        if name in _functions():
            return (_functions()[name].__doc__ or "").partition("\n")[0]
        place = self._place(name)
        problem = plugin_source.find_problem(place)
        return f"(cannot be used: {problem})" if problem else plugin_source.summary(place)

    def origin(self, name: str) -> str:
        """Where a plugin comes from, package and `module:NAME`; "" for our own."""
        if name in _functions():
            return ""
        installed = usable_plugins(RECIPE, _functions())[name]
        return f"{installed.origin}, {installed.text}"

    def _place(self, name: str) -> str:
        """`module:NAME` of an installed recipe."""
        installed = usable_plugins(RECIPE, _functions())
        if name in installed:
            return installed[name].text
        if clash := find_clashes(RECIPE, _functions()).get(name):
            raise VitreousError(clash)
        hint = "`vitreous list recipes` shows what there is; your own is FILE.py:NAME."
        raise UnknownName("recipe", name, self.names(), hint)


@cache
def _functions() -> dict[str, Callable[..., Recipe]]:
    """The public functions that the files of this folder define, by name."""
    recipes: dict[str, Callable[..., Recipe]] = {}
    for file in iter_modules(__path__):
        module = import_module(f"{__name__}.{file.name}")
        for name, value in vars(module).items():
            defined_here = isfunction(value) and value.__module__ == module.__name__
            if not defined_here or name.startswith("_"):
                continue
            if name in recipes:
                other = recipes[name].__module__
                raise TypeError(f"the recipe {name!r} is defined in {other} and {file.name}")
            recipes[name] = value
    return recipes


def _load(text: str) -> Recipe:
    """The recipe of a plugin: a `Recipe`, or what its function returns."""
    plugin = load_object(text, RECIPE, _can_be_recipe)
    if isinstance(plugin, Recipe):
        return plugin
    try:
        recipe = plugin()
    except VitreousError:
        raise  # a field of the recipe that is wrong
    except (Exception, SystemExit) as error:
        raise InYourCode(text, error) from error
    if not isinstance(recipe, Recipe):
        raise VitreousError(
            f"{text!r} returns {describe_object(recipe)}, and not a vitreous.config.Recipe."
        )
    return recipe


def _can_be_recipe(plugin: Any) -> bool:
    return isinstance(plugin, Recipe) or isfunction(plugin)


_REGISTRY = RecipeRegistry()
named, names, summary = _REGISTRY.named, _REGISTRY.names, _REGISTRY.summary
origin, own_names = _REGISTRY.origin, _REGISTRY.own_names
