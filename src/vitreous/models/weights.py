"""Where the weights of a model come from, as far as known: random ones show no findings.

Whoever loads or builds a model marks it here. A mark holds as long as the weights are the same: a
model that was built and then trained by other code is not called random any more. A module without
a mark counts as random if all its normalisation layers are as they are initialised.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Literal, TypeVar
from weakref import WeakKeyDictionary

from torch import nn

Weights = Literal["pretrained", "trained", "untrained", "random", "unknown"]
"""Untrained weights were loaded from somewhere, and are as they are initialised."""
M = TypeVar("M", bound=nn.Module)

SAMPLE = 64
"""Values of every parameter that are compared; a step of any optimiser changes all of them."""

_MARKS: WeakKeyDictionary[nn.Module, tuple[Weights, str]] = WeakKeyDictionary()


def mark(model: M, weights: Weights) -> M:
    """Note where the weights of a model come from; returns the model."""
    _MARKS[model] = weights, _sample(model)
    return model


def mark_loaded(model: M, weights: Weights = "trained") -> M:
    """Note that the weights come from a file or folder: untrained if they are as initialised."""
    return mark(model, "untrained" if _is_initialised(model) else weights)


def weights_of(model: nn.Module) -> Weights:
    """Where the weights of a model come from; "unknown" if nobody marked it and it is trained."""
    weights, sample = _MARKS.get(model, ("unknown", ""))
    if weights != "unknown" and sample == _sample(model):
        return weights
    return "random" if _is_initialised(model) else "unknown"


def _sample(model: nn.Module) -> str:
    digest = sha256()
    for name, value in model.named_parameters():
        if not value.is_meta:
            few = value.detach().reshape(-1)[:SAMPLE].cpu().double().numpy()
            digest.update(name.encode() + few.tobytes())
    return digest.hexdigest()


def _is_initialised(model: nn.Module) -> bool:
    """Whether there are normalisation layers, and all scale by one (or zero) and shift by zero.

    Parameters and running statistics count alike.
    """
    has_norms = False
    for module in model.modules():
        if "norm" not in type(module).__name__.lower():
            continue
        tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, value in tensors:
            if name not in ("weight", "bias", "running_mean", "running_var") or value.is_meta:
                continue
            has_norms = True
            scales = name in ("weight", "running_var")
            if not bool((value == 0).all() or (scales and (value == 1).all())):
                return False
    return has_norms
