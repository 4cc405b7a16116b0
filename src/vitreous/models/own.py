"""A model by the function that makes it: `mypackage.mymodule:make`, in a package or in a file of the current folder.

The function is called with those of `image`, `classes`, `pretrained` and the recipe's options that were given and that
it has parameters for, and returns an `nn.Module`. It may also be a class of modules, or a module that exists already.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, isroutine, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.errors import InYourCode, UnknownName, VitreousError

if TYPE_CHECKING:
    from torch import nn


def is_own(name: str) -> bool:
    """Whether it is written `module:function` and there is such a module."""
    module, _, function = name.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        return False
    _look_here()
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that is not there
        return False


def load(name: str, **given: Any) -> nn.Module:
    """What the function returns. What goes wrong inside it is shown where it went wrong."""
    from torch import nn

    where, _, called = name.partition(":")
    try:
        module = import_module(where)
    except (Exception, SystemExit) as error:
        raise InYourCode(name, error) from error
    if not hasattr(module, called):
        known = [
            each
            for each, value in vars(module).items()
            if callable(value) and not each.startswith("_")
        ]
        raise UnknownName(
            "function",
            name,
            [f"{where}:{each}" for each in known],
            f"It is not in {module.__file__}.",
        )
    found = getattr(module, called)
    if not isinstance(found, nn.Module):
        if not (isroutine(found) or isinstance(found, type)):
            raise VitreousError(
                f"{name!r} is a {type(found).__name__}, and not a function that makes a model."
            )
        try:
            found = found(**_welcome(found, given))
        except (Exception, SystemExit) as error:
            raise InYourCode(name, error) from error
    if not isinstance(found, nn.Module):
        raise VitreousError(f"{name!r} returns a {type(found).__name__}, and not an nn.Module.")
    return found


def _welcome(function: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Those of the arguments that were said and that the function names."""
    parameters = signature(function).parameters.values()
    named = {
        each.name
        for each in parameters
        if each.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    }
    return {key: value for key, value in given.items() if key in named and value is not None}


def _look_here() -> None:
    """The current folder, as `python` itself has it; the installed command does not."""
    here = str(Path.cwd())
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)
