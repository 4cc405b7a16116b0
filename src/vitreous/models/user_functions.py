"""Models by the function that makes them: `mypackage.mymodule:make` or `folder/my_model.py:make`.

The function is called with those of `image`, `classes` (or `num_classes`), `pretrained` and the
recipe's options that were given and that it has parameters for, and returns an `nn.Module`. The
name may also be that of a class of modules, or of a module that exists already.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import Parameter, isroutine, signature
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from vitreous.errors import InYourCode, UnknownName, VitreousError


def is_user_function(name: str) -> bool:
    """Whether a name has the form `module:function` or `file.py:function`, and there is such a
    module or file."""
    module, _, function = name.rpartition(":")
    if module.endswith(".py") and function.isidentifier():
        return Path(module).expanduser().is_file()
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        return False
    here = str(Path.cwd())  # `python` looks there by itself, the installed command does not
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that is not there
        return False


def load_user_function(name: str, **given: Any) -> nn.Module:
    """Call the function with those of `given` that it has parameters for; returns its module.

    Raises `InYourCode`, which shows the user's own lines, if importing or calling it fails.
    """
    where, _, attribute = name.rpartition(":")
    try:
        module = _import_file(where) if where.endswith(".py") else import_module(where)
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
        raise VitreousError(
            f"{name!r} is a {type(model).__name__}, and not a function that makes a model."
        )
    try:
        model = model(**_accepted(model, given))
    except (Exception, SystemExit) as error:
        raise InYourCode(name, error) from error
    if not isinstance(model, nn.Module):
        raise VitreousError(f"{name!r} returns a {type(model).__name__}, and not an nn.Module.")
    return model


def _import_file(where: str) -> ModuleType:
    """Run a file as a module, once; it can import what lies beside it, as a script can."""
    file = Path(where).expanduser().resolve()
    name = f"vitreous_user_file_{sha256(str(file).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    spec = spec_from_file_location(name, file)
    assert spec is not None, "a name that ends in .py has a spec"
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _accepted(function: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are not None and that the function names."""
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    parameters = signature(function).parameters.values()
    named = {each.name for each in parameters if each.kind in kinds}
    given = {**given, "num_classes": given.get("classes")}
    return {key: value for key, value in given.items() if key in named and value is not None}
