"""The state of a training as named tensors, and the checkpoints that are due after an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from vitreous.config import Recipe
from vitreous.training.optim import Schedule


def state_tensors(
    objective: nn.Module, optimiser: torch.optim.Optimizer, mean: nn.Module | None
) -> dict[str, Tensor]:
    """State of objective, optimiser (by parameter number) and running mean, as named tensors."""
    tensors = {f"objective.{key}": value for key, value in objective.state_dict().items()}
    for number, state in optimiser.state_dict()["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimiser.{number}.{key}"] = value
    if mean is not None:
        tensors |= {f"mean.{key}": value for key, value in mean.state_dict().items()}
    return tensors


def load_state_tensors(
    tensors: Mapping[str, Tensor],
    objective: nn.Module,
    optimiser: torch.optim.Optimizer,
    mean: nn.Module | None,
) -> None:
    """Load what `state_tensors` returned."""

    def below(prefix: str) -> dict[str, Tensor]:
        keys = [key for key in tensors if key.startswith(prefix)]
        return {key.removeprefix(prefix): tensors[key] for key in keys}

    objective.load_state_dict(below("objective."))
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in below("optimiser.").items():
        number, _, name = key.partition(".")
        states.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({**optimiser.state_dict(), "state": states})
    if mean is not None:
        mean.load_state_dict(below("mean."))


def due_checkpoints(recipe: Recipe, plan: Schedule, steps: int, done: int) -> Iterator[str]:
    """Names of the checkpoints to write after `done` steps, at the end of an epoch of `steps`.

    Each checkpoint has a step, and is written at the end of the epoch that reaches that step. The
    final one is always written.
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
