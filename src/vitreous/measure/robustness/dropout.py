"""Dropout at test time: the modules that draw random numbers, and the model with these active.

A specimen is in evaluation mode, where dropout is inactive, so the original model is needed. A copy
of it runs two images in training mode. Every module that draws random numbers is a dropout site:
dropout of any kind, also inside attention, stochastic depth, calls of `F.dropout`. In another copy
only these modules are put into training mode. Batch norm is not random and stays in evaluation
mode. The original model is not changed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from vitreous.errors import VitreousError
from vitreous.measure.subject import Subject
from vitreous.random_numbers import seeded
from vitreous.specimen.specimen import Specimen

Forward = Callable[[Tensor], Any]


class _RandomOperations(TorchDispatchMode):
    """Records which module draws random numbers, and at which dropout rates.

    It sees every ATen operation, whoever calls it, and relies on torch tagging those that draw
    (`nondeterministic_seeded`); `dropout_sites` checks the outcome by running the model again.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.modules: list[str] = []
        """Paths of the modules that are running, innermost last."""
        self.rates: dict[str, list[float]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            names = [argument.name for argument in func._schema.arguments]
            named = dict(zip(names, args, strict=False)) | dict(given)
            rate = named.get("dropout_p", named.get("p"))
            # Fused attention carries the tag also with a dropout of 0, when it draws nothing.
            if "dropout_p" not in names or rate:
                rates = self.rates.setdefault(self.modules[-1], [])
                rates.append(float(rate) if isinstance(rate, float) else -1.0)
        return func(*args, **given)


def dropout_sites(subject: Subject) -> dict[str, list[float]]:
    """Find the modules that draw random numbers in training.

    Returns
    -------
    Paths ('' is the model itself), with the rates of their random operations (-1: none).

    Raises
    ------
    VitreousError
        If the model does not run in training mode, or a site depends on another module's mode.
    """
    if subject.network is None:
        return {}
    model = copy.deepcopy(subject.network).to(subject.device).train()
    images = subject.prepare(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    try:
        sites = _random_modules(model, images)
    except Exception as error:
        raise VitreousError(
            f"It does not run in training mode: {str(error).splitlines()[0]}"
        ) from error
    alone = _random_modules(_set_training(model, sites), images)
    if other := [path for path in sites if path not in alone]:
        raise VitreousError(
            f"The dropout of its {other[0]!r} depends on the mode of another module, not its own."
        )
    return sites


@torch.no_grad()
def _random_modules(model: nn.Module, images: Tensor) -> dict[str, list[float]]:
    """Run the images, and return which modules draw random numbers, with their rates."""
    watch = _RandomOperations()

    def enter(path: str, module: nn.Module, args: Any) -> None:
        watch.modules.append(path)

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        watch.modules.pop()

    hooks = []
    for path, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(partial(enter, path)))
        hooks.append(module.register_forward_hook(leave))
    with seeded(0, images.device), watch:
        model(images)
    for hook in hooks:
        hook.remove()
    return watch.rates


def _set_training(model: nn.Module, paths: Mapping[str, Any]) -> nn.Module:
    """Put the model into evaluation mode, except for these modules (but not their children)."""
    modules = dict(model.eval().named_modules())
    for path in paths:
        modules[path].training = True
    return model


def model_with_dropout(subject: Subject, paths: Mapping[str, Any]) -> Forward:
    """Return a copy of the model in evaluation mode, except for these modules."""
    assert subject.network is not None
    return _set_training(copy.deepcopy(subject.network).to(subject.device), paths)


def specimen_with_dropout(specimen: Specimen, rate: float) -> Specimen:
    """Return the specimen with dropout on the output of every residual branch."""

    def drop(before: Tensor, branch: Tensor) -> Tensor:
        return F.dropout(branch, rate, training=True)

    for name in branches(specimen):
        specimen = specimen.with_branch(name, drop)
    return specimen


def branches(specimen: Specimen) -> list[str]:
    """Return the names of units that add one tensor to a skip."""
    return [
        unit.name
        for unit in specimen.units
        if unit.skip and len(specimen._wiring[unit.name].branches) == 1
    ]
