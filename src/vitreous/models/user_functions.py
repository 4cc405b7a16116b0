"""Load models made by a user's function: `mypackage.mymodule:make`, `folder/my_model.py:make`.

The function is called with `image`, `classes` (or `num_classes`), `pretrained` and the recipe's
options, as far as they were given and it has parameters for them. It returns an `nn.Module`. The
name may also be that of a class of modules, or of an existing module.
"""

from __future__ import annotations

from inspect import Parameter, isroutine, signature
from typing import Any

from torch import nn

from vitreous.errors import InYourCode, UnknownName, VitreousError
from vitreous.plugins import MODEL, describe_object, import_source, is_module


def is_user_function(name: str) -> bool:
    """Whether a name has the form `file.py:function`, or `module:function` with a known module."""
    module, _, function = name.rpartition(":")
    if not function.isidentifier():
        return False
    if module.endswith(".py"):
        return True
    return all(part.isidentifier() for part in module.split(".")) and is_module(module)


def load_user_function(name: str, **given: Any) -> nn.Module:
    """Call the function with the arguments that it has parameters for, and return its module.

    Raises `InYourCode`, which shows the user's own lines, if importing or calling it fails.
    """
    where, _, attribute = name.rpartition(":")
    try:
        module = import_source(name)
    except VitreousError:
        raise
    except (Exception, SystemExit) as error:
        raise InYourCode(name, error) from error
    if not hasattr(module, attribute):
        public = [key for key in vars(module) if not key.startswith("_")]
        known = [f"{where}:{key}" for key in public if callable(getattr(module, key))]
        raise UnknownName("function", name, known, f"It is not in {module.__file__}.")
    model = getattr(module, attribute)
    if isinstance(model, nn.Module):
        return model
    if not (isroutine(model) or isinstance(model, type)):
        raise VitreousError(f"{name!r} is {describe_object(model)}, and has to be {MODEL.must_be}.")
    try:
        model = model(**_accepted(model, given))
    except (Exception, SystemExit) as error:
        raise InYourCode(name, error) from error
    if not isinstance(model, nn.Module):
        raise VitreousError(f"{name!r} returns {describe_object(model)}, and not an nn.Module.")
    return model


def _accepted(function: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are not None and that the function has parameters for."""
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    parameters = signature(function).parameters.values()
    named = {each.name for each in parameters if each.kind in kinds}
    given = {**given, "num_classes": given.get("classes")}
    return {key: value for key, value in given.items() if key in named and value is not None}
