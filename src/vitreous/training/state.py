"""The state of a training as named tensors, and which checkpoints are due when."""

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


def due_checkpoints(recipe: Recipe, plan: Schedule, steps: int, done: int) -> Iterator[str]:
    """Names of the checkpoints to write after `done` steps, at the end of an epoch of `steps`.

    A checkpoint is written at the first epoch's end at or after it; the final one always is.
    """
    before = (done - 1) // steps * steps
    due = {"warmup": plan.warmup_steps, "33": plan.steps // 3, "66": 2 * plan.steps // 3}
    if recipe.keep != "none" and done == 0:
        yield "initial"
    elif recipe.keep != "none":
        yield from (name for name, step in due.items() if before < step <= done)
    if recipe.keep == "epochs" and done:
        yield f"epoch-{-(-done // steps):04d}"
    if done == plan.steps:
        yield "final"


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)
    }
