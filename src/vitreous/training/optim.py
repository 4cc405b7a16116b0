"""How weights move: learning-rate schedules, weight decay, freezing, clipping, SAM (A3.08) and the running mean.

Everything is a function of what it is given: a schedule of the step, so that resuming needs no saved state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from vitreous.config import Recipe
from vitreous.errors import UnknownName, VitreousError
from vitreous.training.objectives import Objective

TABLES = ("pos_embed", "position_", "_token", "bias_table")
"""Parts of names by which positions and extra tokens are known in timm, torchvision and Hugging Face."""


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step: a linear warm-up, the descent that the recipe names, and a cool-down."""

    recipe: Recipe
    steps_per_epoch: int
    warmup_steps: int
    descent: int  # steps from the end of the warm-up to the cool-down
    cooldown: int  # steps

    @property
    def steps(self) -> int:
        return self.warmup_steps + self.descent + self.cooldown

    @property
    def epochs(self) -> int:
        """Warm-up and cool-down included; the last one may be cut short."""
        return math.ceil(self.steps / self.steps_per_epoch)

    def lr(self, step: int) -> float:
        """Of the step counted from 0. The warm-up reaches the highest lr with the first step after it (A3.18)."""
        recipe, since = self.recipe, step - self.warmup_steps
        if since < 0:
            return recipe.warmup_from + (recipe.lr - recipe.warmup_from) * step / self.warmup_steps
        if since >= self.descent:
            return recipe.last_lr
        if recipe.schedule == "step":
            epoch = (since if recipe.warmup_extra else step) // self.steps_per_epoch
            return recipe.lr * recipe.gamma ** sum(
                epoch >= milestone for milestone in recipe.milestones
            )
        if recipe.paced == "epoch":
            since -= since % self.steps_per_epoch
        return recipe.last_lr + (recipe.lr - recipe.last_lr) * self._height(since / self.descent)

    def _height(self, progress: float) -> float:
        """Of the descent, from 1 to 0."""
        if self.recipe.schedule == "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        return 1 - progress if self.recipe.schedule == "linear" else 1.0


def schedule(recipe: Recipe, steps_per_epoch: int) -> Schedule:
    """The recipe's lengths, which are in epochs or steps, all in steps."""
    warmup = (
        round(recipe.warmup * steps_per_epoch)
        if recipe.warmup_steps is None
        else recipe.warmup_steps
    )
    length = recipe.epochs * steps_per_epoch if recipe.steps is None else recipe.steps
    descent = length if recipe.warmup_extra else length - warmup
    if descent < 0:
        raise VitreousError(
            f"The warm-up of {recipe.name!r} takes {warmup} steps and the whole training only {length} "
            f"({steps_per_epoch} an epoch): train for more epochs or set warmup_steps lower."
        )
    return Schedule(recipe, steps_per_epoch, warmup, descent, recipe.cooldown * steps_per_epoch)


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Keep the parameters whose names match (`blocks.[0-9].attn.*`) as they are (A3.13); their names."""
    named = dict(model.named_parameters())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            raise UnknownName(
                "parameter to freeze called",
                pattern,
                named,
                "Patterns match whole names, with * and ?.",
            )
    frozen = [name for name in named if any(fnmatchcase(name, pattern) for pattern in patterns)]
    for name in frozen:
        named[name].requires_grad_(False)
    return frozen


def undecayed(model: nn.Module) -> set[str]:
    """Names of the parameters that `decay="matrices"` spares: one-dimensional ones, positions, tokens (D2).

    Besides these it asks every part of the model that has a `no_weight_decay`, which is timm's habit and ours.
    """
    spared = set()
    for path, module in model.named_modules():
        asked = getattr(module, "no_weight_decay", None)
        spared |= {f"{path}.{name}".lstrip(".") for name in asked()} if callable(asked) else set()
    for name, parameter in model.named_parameters():
        if parameter.ndim <= 1 or any(part in name.rpartition(".")[2] for part in TABLES):
            spared.add(name)
    return spared & dict(model.named_parameters()).keys()


def optimiser(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW or SGD over what the recipe does not freeze, in two groups: with weight decay and without.

    Takes a model, or an objective around one; names that the recipe freezes are always the model's.
    """
    freeze(model.model if isinstance(model, Objective) else model, recipe.freeze)
    spared = undecayed(model) if recipe.decay == "matrices" else set()
    trained = {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    if not trained:
        raise VitreousError(
            f"The recipe {recipe.name!r} has nothing to train: every parameter of the model is frozen."
        )
    decayed = [parameter for name, parameter in trained.items() if name not in spared]
    others = [parameter for name, parameter in trained.items() if name in spared]
    groups = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return moved_by(groups, recipe)


def moved_by(groups: list[dict[str, Any]], recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimiser over these groups of parameters."""
    fused = all(parameter.is_cuda for group in groups for parameter in group["params"]) or None
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(
            groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.nesterov, fused=fused
        )
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, eps=recipe.eps, fused=fused)


def clip(parameters: Iterable[nn.Parameter], largest: float | None) -> Tensor:
    """Scale the gradients down to a norm of `largest` all together; their norm before, without waiting for the GPU."""
    given = list(parameters)
    norm = nn.utils.get_total_norm(
        [parameter.grad for parameter in given if parameter.grad is not None]
    )
    if largest is not None:
        nn.utils.clip_grads_with_norm_(given, largest, norm)
    return norm


@contextmanager
def climbed(model: nn.Module, rho: float) -> Iterator[None]:
    """Sharpness-aware minimisation (A3.08): inside, the weights are w + ρ g/‖g‖ and there are no gradients.

        loss(batch).backward()
        with climbed(model, rho):
            loss(batch).backward()
        optimiser.step()

    g is the gradient at the entrance; under DDP that is already the mean over all processes, so all climb alike. After
    it the weights are what they were, bit by bit, because copies are put back. Batch norm normalises by the batch in
    both passes, but its running statistics are those of the first, of the weights that are kept.
    """
    moved: list[Tensor] = [
        parameter for parameter in model.parameters() if parameter.grad is not None
    ]
    gradients = [parameter.grad for parameter in moved if parameter.grad is not None]
    before = [parameter.detach().clone() for parameter in moved]
    tracking = [
        module
        for module in model.modules()
        if isinstance(module, _NormBase) and module.track_running_stats
    ]
    try:
        with torch.no_grad():
            length = nn.utils.get_total_norm(gradients).clamp_min(
                1e-12
            )  # a gradient of zero moves nothing
            torch._foreach_add_(moved, list(torch._foreach_mul(gradients, rho / length)))
        for parameter in moved:
            parameter.grad = None
        for module in tracking:
            module.track_running_stats = False
        torch.clear_autocast_cache()  # which may hold the weights of the first pass in bf16
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(moved, before)
        for module in tracking:
            module.track_running_stats = True
        torch.clear_autocast_cache()


def average(model: nn.Module, decay: float) -> AveragedModel:
    """A copy whose weights are the running mean of the model's, one step of it with `update_parameters(model)`.

    The mean starts with the first update; buffers are copied. The copy is `average(...).module`.
    """
    mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    mean.requires_grad_(False)
    return mean
