"""Optimisation: learning-rate schedule, weight decay, freezing, clipping, SAM, running mean.

The learning rate is a function of the step alone, so that resuming needs no saved schedule.
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
from vitreous.models.declared import declared_undecayed
from vitreous.training.objectives import Objective

TOKEN_NAMES = ("pos_embed", "position_", "_token", "bias_table")
"""Substrings of the names of positions and extra tokens in timm, torchvision and Hugging Face."""


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step: linear warm-up, the recipe's descent, cool-down."""

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
        """Number of epochs, warm-up and cool-down included; the last epoch may be shorter."""
        return math.ceil(self.steps / self.steps_per_epoch)

    def lr(self, step: int) -> float:
        """Learning rate of a step, counted from 0; the first after the warm-up has the highest."""
        recipe, since = self.recipe, step - self.warmup_steps
        if since < 0:
            return recipe.warmup_from + (recipe.lr - recipe.warmup_from) * step / self.warmup_steps
        if since >= self.descent:
            return recipe.last_lr
        if recipe.schedule == "step":
            epoch = (since if recipe.warmup_extra else step) // self.steps_per_epoch
            passed = sum(epoch >= milestone for milestone in recipe.milestones)
            return recipe.lr * recipe.gamma**passed
        if recipe.paced == "epoch":
            since -= since % self.steps_per_epoch
        progress = since / self.descent
        height = 1.0  # of the descent, from 1 to 0
        if recipe.schedule == "cosine":
            height = (1 + math.cos(math.pi * progress)) / 2
        elif recipe.schedule == "linear":
            height = 1 - progress
        return recipe.last_lr + (recipe.lr - recipe.last_lr) * height


def schedule(recipe: Recipe, steps_per_epoch: int) -> Schedule:
    """The recipe's schedule, with its lengths in epochs or steps converted to steps."""
    warmup, length = recipe.warmup_steps, recipe.steps
    if warmup is None:
        warmup = round(recipe.warmup * steps_per_epoch)
    if length is None:
        length = recipe.epochs * steps_per_epoch
    descent = length if recipe.warmup_extra else length - warmup
    if descent < 0:
        raise VitreousError(
            f"The warm-up of {recipe.name!r} takes {warmup} steps and the whole training only "
            f"{length} ({steps_per_epoch} an epoch): train for more epochs or set warmup_steps "
            "lower."
        )
    return Schedule(recipe, steps_per_epoch, warmup, descent, recipe.cooldown * steps_per_epoch)


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Freeze the parameters whose names match a pattern; returns their names.

    Examples
    --------
    >>> freeze(model, ["blocks.[0-9].attn.*"])
    """
    named = dict(model.named_parameters())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in named):
            hint = "Patterns match whole names, with * and ?."
            raise UnknownName("parameter to freeze called", pattern, named, hint)
    frozen = [name for name in named if any(fnmatchcase(name, pattern) for pattern in patterns)]
    for name in frozen:
        named[name].requires_grad_(False)
    return frozen


@contextmanager
def kept_flags(model: nn.Module) -> Iterator[None]:
    """Restore after the block which parameters of a model learn, and whether it is distilled.

    A training freezes some and may give a model two outputs; the next one begins without that.
    """
    learning = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    distilled = getattr(model, "distilled_training", None)
    try:
        yield
    finally:
        for parameter, learns in learning:
            parameter.requires_grad_(learns)
        if isinstance(distilled, bool):
            model.distilled_training = distilled  # type: ignore[assignment]


def undecayed(model: nn.Module) -> set[str]:
    """Names of the parameters that get no weight decay with `decay="matrices"`.

    These are one-dimensional parameters, positions and tokens, and those that any part of the model
    lists in a method `no_weight_decay`, as timm's models and ours do.
    """
    spared = declared_undecayed(model)
    for name, parameter in model.named_parameters():
        if parameter.ndim <= 1 or any(part in name.rpartition(".")[2] for part in TOKEN_NAMES):
            spared.add(name)
    return spared & dict(model.named_parameters()).keys()


def optimiser(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The recipe's optimiser, with weights that decay in one group and the others in a second.

    Freezes parameters as the recipe says, by their names in the model, also for an `Objective`
    around it.
    """
    freeze(model.model if isinstance(model, Objective) else model, recipe.freeze)
    spared = undecayed(model) if recipe.decay == "matrices" else set()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not trained:
        raise VitreousError(
            f"The recipe {recipe.name!r} has nothing to train: every parameter of the model is "
            "frozen."
        )
    decayed = [p for name, p in trained.items() if name not in spared]
    others = [p for name, p in trained.items() if name in spared]
    groups = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return optimiser_of_groups([group for group in groups if group["params"]], recipe)


def optimiser_of_groups(groups: list[dict[str, Any]], recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW or SGD over groups of parameters, fused if all of them are on a GPU."""
    fused = all(parameter.is_cuda for group in groups for parameter in group["params"]) or None
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(
            groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.nesterov, fused=fused
        )
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, eps=recipe.eps, fused=fused)


def clip_gradients(parameters: Iterable[nn.Parameter], largest: float | None) -> Tensor:
    """Scale all gradients to a joint norm of at most `largest`; returns the norm before.

    torch's `clip_grad_norm_` does the same, but not for `None`, which only measures.
    """
    given = list(parameters)
    norm = nn.utils.get_total_norm([p.grad for p in given if p.grad is not None])
    if largest is not None:
        nn.utils.clip_grads_with_norm_(given, largest, norm)
    return norm


@contextmanager
def sam_perturbation(model: nn.Module, rho: float) -> Iterator[None]:
    """Move the weights to w + ρ g/‖g‖ inside the block: sharpness-aware minimisation (Foret 2021).

        loss(batch).backward()
        with sam_perturbation(model, rho):
            loss(batch).backward()
        optimiser.step()

    g is the gradient on entry; it is then removed from the parameters. Under DDP it is already the
    mean over all processes, so all of them move alike. After the block the weights are restored
    from copies, bit by bit. Batch norm normalises by the batch in both passes, but updates its
    running statistics in the first pass only, with the weights that are kept.
    """
    moved: list[Tensor] = [p for p in model.parameters() if p.grad is not None]
    gradients = [p.grad for p in moved if p.grad is not None]
    before = [p.detach().clone() for p in moved]
    norms = [module for module in model.modules() if isinstance(module, _NormBase)]
    tracking = [module for module in norms if module.track_running_stats]
    try:
        with torch.no_grad():
            length = nn.utils.get_total_norm(gradients).clamp_min(1e-12)  # zero moves nothing
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
    """An exponential running mean of a model's weights, in `.module`; buffers are copied.

    It starts with the first `update_parameters(model)`.
    """
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
