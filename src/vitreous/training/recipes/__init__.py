"""The papers' recipes by name, one file per paper: `named("fast")`, `names()`.

A recipe is a function that returns a `Recipe`; the function's name is the recipe's. Nothing else has to be told about a
new one, the folder is the registry. Functions take what their paper varies: `dascoli_2021.deit(batch=256)`.
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


def named(name: str) -> Recipe:
    """The recipe called `name`, as its paper has it; change it with `recipe.but(epochs=20)`."""
    return _found(name)()


def names() -> list[str]:
    """Every name that `named` knows."""
    return sorted(_recipes())


def summary(name: str) -> str:
    """The first line of what a recipe says about itself."""
    return (_found(name).__doc__ or "").partition("\n")[0]


def _found(name: str) -> Callable[..., Recipe]:
    if name not in _recipes():
        raise UnknownName("recipe", name, names(), "`vitreous list recipes` shows what there is.")
    return _recipes()[name]


@cache
def _recipes() -> dict[str, Callable[..., Recipe]]:
    """The public functions that the files of this folder define."""
    recipes: dict[str, Callable[..., Recipe]] = {}
    for found in iter_modules(__path__):
        module = import_module(f"{__name__}.{found.name}")
        for name, value in vars(module).items():
            if (
                isfunction(value)
                and value.__module__ == module.__name__
                and not name.startswith("_")
            ):
                if name in recipes:
                    raise TypeError(
                        f"the recipe {name!r} is defined in {recipes[name].__module__} and {found.name}"
                    )
                recipes[name] = value
    return recipes
