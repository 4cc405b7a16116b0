"""All that a training is at one moment, as named tensors, and the moments at which weights are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from vitreous.config import Recipe
from vitreous.training.optim import Schedule


def pack(
    objective: nn.Module, optimiser: torch.optim.Optimizer, mean: nn.Module | None
) -> dict[str, Tensor]:
    """The state as tensors: the objective's, the optimiser's by parameter number, the running mean's."""
    tensors = {f"objective.{key}": value for key, value in objective.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        tensors |= {
            f"optimiser.{number}.{key}": value
            for key, value in state.items()
            if isinstance(value, Tensor)
        }
    if mean is not None:
        tensors |= {f"mean.{key}": value for key, value in mean.state_dict().items()}
    return tensors


def unpack(
    tensors: Mapping[str, Tensor],
    objective: nn.Module,
    optimiser: torch.optim.Optimizer,
    mean: nn.Module | None,
) -> None:
    """Put back what `pack` took."""
    objective.load_state_dict(_under("objective.", tensors))
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in _under("optimiser.", tensors).items():
        number, _, name = key.partition(".")
        states.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({**optimiser.state_dict(), "state": states})
    if mean is not None:
        mean.load_state_dict(_under("mean.", tensors))


def moments(recipe: Recipe, plan: Schedule, steps: int, done: int) -> Iterator[str]:
    """Which weights are due after `done` steps, the end of an epoch of `steps`: a moment belongs to the first epoch's
    end at or after it. The final weights are always kept.
    """
    before = (done - 1) // steps * steps
    due = {"warmup": plan.warmup_steps, "33": plan.steps // 3, "66": 2 * plan.steps // 3}
    if recipe.keep != "none":
        yield from (
            ["initial"] if done == 0 else [name for name, at in due.items() if before < at <= done]
        )
    if recipe.keep == "epochs" and done:
        yield f"epoch-{-(-done // steps):04d}"
    if done == plan.steps:
        yield "final"


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)
    }
