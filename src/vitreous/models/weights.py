"""Where the weights of a model come from, as far as anybody knows: nobody should read findings off random ones.

Whoever loads or builds a model says so here. It holds for as long as the weights are the same: a model that was built
and then trained by other code is not called random any more. Of a module that nobody vouches for, its normalisation
layers tell: all of them as they are initialised means that no training has touched it.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Literal, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn

Weights = Literal["pretrained", "trained", "random", "unknown"]
M = TypeVar("M", bound=nn.Module)

SAMPLE = 64
"""Values of every parameter that are compared; a step of any optimiser changes all of them."""

_MARKS: WeakKeyDictionary[nn.Module, tuple[Weights, str]] = WeakKeyDictionary()


def mark(model: M, weights: Weights) -> M:
    """Say where the weights of a model come from."""
    _MARKS[model] = weights, _sample(model)
    return model


def weights_of(model: nn.Module) -> Weights:
    """What is known of them now."""
    said, then = _MARKS.get(model, ("unknown", ""))
    if said != "unknown" and then == _sample(model):
        return said
    return "random" if _as_initialised(model) else "unknown"


def _sample(model: nn.Module) -> str:
    digest = sha256()
    for name, value in model.named_parameters():
        if not value.is_meta:
            few = value.detach().reshape(-1)[:SAMPLE].cpu().double().numpy()
            digest.update(name.encode() + few.tobytes())
    return digest.hexdigest()


def _as_initialised(model: nn.Module) -> bool:
    """Whether there are normalisation layers, all of which still scale by one (or zero) and shift by none."""
    states = list(_norms(model))
    return bool(states) and all(
        bool((value == 0).all()) or (scales and bool((value == 1).all()))
        for scales, value in states
    )


def _norms(model: nn.Module) -> Iterator[tuple[bool, Tensor]]:
    """What normalisation layers have learned or counted: whether one is a place to begin at, and the values."""
    for module in model.modules():
        if "norm" not in type(module).__name__.lower():
            continue
        for name, value in [
            *module.named_parameters(recurse=False),
            *module.named_buffers(recurse=False),
        ]:
            if name in ("weight", "bias", "running_mean", "running_var") and not value.is_meta:
                yield name in ("weight", "running_var"), value.detach()
