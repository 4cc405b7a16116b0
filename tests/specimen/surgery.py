"""Surgery by hand, on copies of models, to hold interventions against."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from specimen.toys import part

Surgery = Callable[[Any], None]


def operated(model: nn.Module, path: str, surgery: Surgery) -> nn.Module:
    """A copy of the model on whose part at `path` somebody operated."""
    other = copy.deepcopy(model)
    surgery(part(other, path))
    return other


def forward(instead: Callable[[Any, Tensor], Tensor]) -> Surgery:
    """Override the forward pass of a module by a function of the module and its input."""
    return lambda module: setattr(module, "forward", lambda value: instead(module, value))


def same(given: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


def check(
    edited: Callable[[Tensor], Tensor], by_hand: nn.Module, batch: Tensor, unedited: nn.Module
) -> None:
    with torch.no_grad():
        wanted = by_hand(batch)
        same(edited(batch), wanted)
        assert (wanted - unedited(batch)).abs().max() > 1e-3, (
            "the surgery changes nothing, so nothing was tested"
        )


def attention_by(probabilities: Callable[[Tensor], Tensor]) -> Surgery:
    """Attention of the toys with given probabilities."""

    def instead(module: Any, tokens: Tensor) -> Tensor:
        _, _, value = module.split(tokens)
        return module.proj((probabilities(value) @ value).transpose(1, 2).flatten(2))

    return forward(instead)
