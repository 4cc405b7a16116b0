"""The papers' recipes by name, one file per paper: `named("fast")`, `names()`.

A recipe is a function that returns a `Recipe`; the function's name is the recipe's, and the folder
is the registry. Functions take what their paper varies: `dascoli_2021.deit(batch=256)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from inspect import isfunction
from pkgutil import iter_modules

from vitreous.config import Recipe
from vitreous.errors import UnknownName

__all__ = ["named", "names", "summary"]


class RecipeRegistry:
    """The recipes that the files of this folder define."""

    def named(self, name: str) -> Recipe:
        """The recipe called `name`, as its paper has it; change it with `recipe.but(epochs=20)`.

        Examples
        --------
        >>> vitreous.recipes.named("fast").but(epochs=20)
        """
        return self._function(name)()

    def names(self) -> list[str]:
        """Every name that `named` knows."""
        return sorted(_functions())

    def summary(self, name: str) -> str:
        """The first line of a recipe's docstring."""
        return (self._function(name).__doc__ or "").partition("\n")[0]

    def _function(self, name: str) -> Callable[..., Recipe]:
        if name not in _functions():
            hint = "`vitreous list recipes` shows what there is."
            raise UnknownName("recipe", name, self.names(), hint)
        return _functions()[name]


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


_REGISTRY = RecipeRegistry()
named, names, summary = _REGISTRY.named, _REGISTRY.names, _REGISTRY.summary
