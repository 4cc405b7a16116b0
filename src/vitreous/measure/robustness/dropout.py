"""Dropout at test time (A1.23): which parts of a model draw random numbers in training, and the model with these alone
switched on.

A specimen is read in evaluation mode, where dropout is nothing, so the model itself is looked at: a copy of it passes
two images in training mode, and whichever module draws a number on the way is one of its `sites`: dropout of any kind,
also the one within attention, stochastic depth, a call of `F.dropout`. In another copy these modules alone are put into
training mode. Batch norm, which draws nothing, stays as in evaluation, and the model that was given is never touched.
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

Model = Callable[[Tensor], Any]


class _Watch(TorchDispatchMode):
    """Notes which module draws numbers, and at which rates."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inside: list[str] = []
        self.drawn: dict[str, list[float]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            names = [argument.name for argument in func._schema.arguments]
            named = dict(zip(names, args, strict=False)) | dict(given)
            rate = named.get("dropout_p", named.get("p"))
            if (
                "dropout_p" not in names or rate
            ):  # attention that drops nothing is a draw by name only
                self.drawn.setdefault(self.inside[-1], []).append(
                    float(rate) if isinstance(rate, float) else -1.0
                )
        return func(*args, **given)


def sites(subject: Subject) -> dict[str, list[float]]:
    """The modules that draw numbers in training, by path ('' is the model itself), with what the operations that draw
    were called with; an error that says what went wrong where the model does not run in training mode."""
    if subject.model is None:
        return {}
    model = copy.deepcopy(subject.model).to(subject.device).train()
    images = subject.prepare(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    try:
        drawn = _drawn(model, images)
    except Exception as error:
        raise VitreousError(
            f"It does not run in training mode: {str(error).splitlines()[0]}"
        ) from error
    alone = _drawn(_training(model, drawn), images)
    if other := [path for path in drawn if path not in alone]:
        raise VitreousError(
            f"What its {other[0]!r} draws depends on the mode of another module, and not on its own."
        )
    return drawn


@torch.no_grad()
def _drawn(model: nn.Module, images: Tensor) -> dict[str, list[float]]:
    """Who draws while the images pass, and the rates."""
    watch = _Watch()

    def enter(path: str, module: nn.Module, args: Any) -> None:
        watch.inside.append(path)

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        watch.inside.pop()

    hooks = [
        hook
        for path, module in model.named_modules()
        for hook in (
            module.register_forward_pre_hook(partial(enter, path)),
            module.register_forward_hook(leave),
        )
    ]
    with seeded(0, images.device), watch:
        model(images)
    for hook in hooks:
        hook.remove()
    return watch.drawn


def _training(model: nn.Module, paths: Mapping[str, Any]) -> nn.Module:
    """In evaluation mode, except for the modules named: their own flag, and not that of what is inside them."""
    parts = dict(model.eval().named_modules())
    for path in paths:
        parts[path].training = True
    return model


def dropping(subject: Subject, paths: Mapping[str, Any]) -> Model:
    """A copy of the model in evaluation mode, except for the modules named."""
    assert subject.model is not None
    return _training(copy.deepcopy(subject.model).to(subject.device), paths)


def with_dropout(specimen: Specimen, rate: float) -> Specimen:
    """Dropout on what every branch adds, where there is a skip around it."""
    for name in branches(specimen):
        specimen = specimen.with_branch(name, partial(_dropped, rate))
    return specimen


def branches(specimen: Specimen) -> list[str]:
    """Units that add one tensor to a skip."""
    return [
        unit.name
        for unit in specimen.units
        if unit.skip and len(specimen._wiring[unit.name].branches) == 1
    ]


def _dropped(rate: float, before: Tensor, branch: Tensor) -> Tensor:
    return F.dropout(branch, rate, training=True)
