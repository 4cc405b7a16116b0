"""Several seeds of one configuration in one step: their weights are stacked along a new dimension.

A small network at a small batch leaves most of a GPU idle. Stacking k seeds makes every kernel k
times as large at the same number of launches. Each seed keeps its weights, data order, augmentation
and drop-path draws, so it ends where its single run ends, up to the order of additions.

All trained weights are rows of one or two matrices (with and without weight decay): one fused
optimiser kernel moves all of them, and the gradient norm of every seed is a reduction over its row.
The weights are taken out with `split`, because its backward is a single concatenation; the backward
of 150 slices would be 150 additions to a full matrix.

What the stack relies on is undocumented or has changed between versions of torch: how vmap treats
fused attention and batch norm, and that drop path draws one `bernoulli_` per call. `Stack`
compares its losses and gradients with those of the single models before it is used, and raises if
they differ.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers.drop import DropPath
from torch import Tensor, nn
from torch.func import functional_call

from vitreous.config import Augment, Recipe
from vitreous.data.augment import Augmenter, Draw, mixing
from vitreous.data.dataset import Dataset
from vitreous.distributed import Processes
from vitreous.errors import VitreousError
from vitreous.random_numbers import derive_seed
from vitreous.training.evaluate import autocast, trained_attention
from vitreous.training.objectives import Objective
from vitreous.training.optim import optimiser_of_groups, undecayed
from vitreous.training.step import Step

DropPathCall = tuple[str, float, bool]
"""Module path, probability to keep, and whether what is kept is scaled up."""

MAX_RELATIVE_DIFFERENCE = 0.05
"""Of stacked and single losses and gradients: far above rounding errors, far below a bug."""


class NotStackable(VitreousError):
    """The seeds of this configuration cannot share a step; they can be trained one by one."""


class MaskedPath(nn.Module):
    """Drop path with masks (calls, batch) that are drawn outside, one row per forward call.

    vmap refuses random numbers inside, or draws the same for all seeds.
    """

    masks: Tensor

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls, self.call = calls, 0
        self.register_buffer("masks", torch.empty(calls, 0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        mask = self.masks[self.call].view(-1, *[1] * (x.ndim - 1)).to(x.dtype)
        self.call = (self.call + 1) % self.calls  # 0 again at the end of the pass
        return x * mask


class Stack(nn.Module):
    """k objectives of one structure as one module, whose forward pass returns the k losses.

    Parameters
    ----------
    objectives
        One per seed, with the weights it starts from. They are left unchanged.
    recipe
        Says which weights decay.
    images, targets
        A small batch on the CPU, to find the random draws of a forward pass and to compare the
        stack with the objectives.
    """

    def __init__(
        self, objectives: Sequence[Objective], recipe: Recipe, images: Tensor, targets: Tensor
    ) -> None:
        super().__init__()
        first = objectives[0]
        self.seeds = len(objectives)
        self.drawn = drop_path_calls(first, images, targets)
        trained = {name: p for name, p in first.named_parameters() if p.requires_grad}
        spared = undecayed(first) if recipe.decay == "matrices" else set()
        decayed, others = (
            [n for n in trained if n not in spared],
            [n for n in trained if n in spared],
        )
        self.groups = [group for group in (decayed, others) if group]
        self.decays = [group is decayed for group in self.groups]
        self.shapes = {name: parameter.shape for name, parameter in trained.items()}
        self.rows = nn.ParameterList()
        for group in self.groups:
            flat = [_flat_weights(each, group) for each in objectives]
            self.rows.append(nn.Parameter(torch.stack(flat)))
        fixed = [_fixed_tensors(each, trained) for each in objectives]
        self.names = list(fixed[0])
        for number, name in enumerate(self.names):
            self.register_buffer(f"fixed_{number}", torch.stack([each[name] for each in fixed]))
        # In a tuple, which nn.Module does not register: its tensors are replaced in every call.
        self.template = (_template(first, self.drawn),)
        self._compare(objectives, images, targets)

    def weights(self) -> dict[str, Tensor]:
        """Every trained weight by name, with a leading dimension for the seed."""
        weights: dict[str, Tensor] = {}
        for group, row in zip(self.groups, self.rows, strict=True):
            parts = row.split([self.shapes[name].numel() for name in group], 1)
            for name, part in zip(group, parts, strict=True):
                weights[name] = part.view(self.seeds, *self.shapes[name])
        return weights

    def fixed(self) -> dict[str, Tensor]:
        """Buffers and frozen weights by name, with a leading dimension for the seed."""
        return {name: getattr(self, f"fixed_{number}") for number, name in enumerate(self.names)}

    def forward(self, images: Tensor, targets: Tensor, masks: dict[str, Tensor]) -> Tensor:
        """Losses (seed) of images (seed, n, …), targets (seed, n, classes) and drop-path masks."""
        tensors = self.weights() | self.fixed()
        tensors |= {f"{path}.masks": mask for path, mask in masks.items()}

        def loss(tensors: dict[str, Tensor], images: Tensor, targets: Tensor) -> Tensor:
            return functional_call(self.template[0], tensors, (images, targets))

        return torch.vmap(loss)(tensors, images, targets)

    def optimiser(self, recipe: Recipe) -> torch.optim.Optimizer:
        """The recipe's optimiser over all seeds; it treats every weight by itself."""
        groups = [
            {"params": [row], "weight_decay": recipe.weight_decay if decays else 0.0}
            for row, decays in zip(self.rows, self.decays, strict=True)
        ]
        return optimiser_of_groups(groups, recipe)

    def draw_masks(self, batch: int, generators: Sequence[torch.Generator]) -> dict[str, Tensor]:
        """Drop-path masks (seed, calls, batch) by module, as the single runs draw them."""
        masks: dict[str, list[Tensor]] = {}
        for generator in generators:
            drawn: dict[str, list[Tensor]] = {}
            for path, keep, scale in self.drawn:
                mask = torch.empty(batch, device=generator.device)
                mask.bernoulli_(keep, generator=generator)
                drawn.setdefault(path, []).append(mask.div_(keep) if scale and keep > 0 else mask)
            for path, rows in drawn.items():
                masks.setdefault(path, []).append(torch.stack(rows))
        return {path: torch.stack(each) for path, each in masks.items()}

    def _compare(self, objectives: Sequence[Objective], images: Tensor, targets: Tensor) -> None:
        """Raise `NotStackable` unless losses and gradients on a small batch equal the single ones.

        Noise is added to the weights meanwhile, because no gradient passes a head of zeros.
        """
        device = self.rows[0].device
        images, targets = images.to(device), targets.to(device)
        before = [(tensor, tensor.detach().clone()) for tensor in (*self.rows, *self.buffers())]
        noise = torch.Generator(device).manual_seed(0)
        with torch.no_grad():
            for row in self.rows:
                row += 0.02 * torch.randn(row.shape, generator=noise, device=device)
        noisy = {name: weight.detach().clone() for name, weight in self.weights().items()}
        generators = [torch.Generator(device).manual_seed(seed) for seed in range(self.seeds)]
        masks = self.draw_masks(len(images), generators)
        repeated = (each.expand(self.seeds, *each.shape) for each in (images, targets))
        with folded_attention():
            losses = self(*repeated, masks)
        gradients = torch.autograd.grad(losses.sum(), list(self.rows))
        with torch.no_grad():
            for tensor, value in before:  # buffers too: batch norm has counted this batch
                tensor.copy_(value)
        for seed, objective in enumerate(objectives):
            single = copy.deepcopy(objective).train()
            weights = {n: noisy[n][seed].requires_grad_() for group in self.groups for n in group}
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                torch.manual_seed(seed)
                loss = functional_call(single, weights, (images, targets))
            expected = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
            flat = torch.cat([loss.detach().view(1), *(grad.flatten() for grad in expected)])
            stacked = torch.cat([losses[seed].detach().view(1), *(g[seed] for g in gradients)])
            error = float((stacked - flat).norm() / flat.norm())
            if not error < MAX_RELATIVE_DIFFERENCE:
                raise NotStackable(
                    f"Stacked losses and gradients differ by {error:.1%} from those of single "
                    f"seeds with torch {torch.__version__}."
                )


def _flat_weights(objective: nn.Module, names: Sequence[str]) -> Tensor:
    return torch.cat([objective.get_parameter(name).detach().flatten() for name in names])


def _fixed_tensors(objective: nn.Module, trained: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """Buffers and frozen weights of an objective."""
    frozen = {name: p.detach() for name, p in objective.named_parameters() if name not in trained}
    return dict(objective.named_buffers()) | frozen


def _template(objective: Objective, drawn: list[DropPathCall]) -> Objective:
    """A copy of the objective in which drop path takes its masks from outside."""
    template = copy.deepcopy(objective).train()
    paths = [path for path, _, _ in drawn]
    for path in dict.fromkeys(paths):
        template.set_submodule(path, MaskedPath(paths.count(path)))
    return template


def drop_path_calls(objective: Objective, images: Tensor, targets: Tensor) -> list[DropPathCall]:
    """The drop-path calls of a forward pass, in order.

    Raises `NotStackable` if the pass draws other random numbers as well. To find out, this draws
    what timm's `drop_path` draws, one `bernoulli_` per call, and compares the generator's states.
    """
    probe = copy.deepcopy(objective).cpu().train()
    calls: list[DropPathCall] = []

    def note(module: DropPath, *_: object) -> None:
        calls.append((paths[module], 1 - float(module.drop_prob or 0), module.scale_by_keep))

    paths = {
        m: path for path, m in probe.named_modules() if isinstance(m, DropPath) and m.drop_prob
    }
    for module in paths:
        module.register_forward_hook(note)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        probe(images, targets)
        after = torch.get_rng_state()
        torch.manual_seed(0)
        for _, keep, _ in calls:
            torch.empty(len(images)).bernoulli_(keep)
        if not torch.equal(after, torch.get_rng_state()):
            raise NotStackable(
                "The forward pass draws other random numbers than those of drop path."
            )
    return calls


class FoldedAttention(torch.autograd.Function):
    """Fused attention of all seeds as one larger batch.

    vmap has no rule for fused attention on CPUs, and on GPUs (torch 2.11) its rule and the compiler
    disagree about the memory layout of what the backward pass needs. torch calls `vmap` below with
    plain tensors, so autograd records the one fused call in it. `forward` only shows the compiler
    shapes, and there is no `backward`.
    """

    @staticmethod
    def forward(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        return ATTENTION(query, key, value, attn_mask=mask, scale=scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
        *tensors, mask, scale = given
        seeds = info.batch_size
        batch = tensors[0].shape[1 if in_dims[0] == 0 else 0]
        query, key, value = (
            _fold(tensor, dim, seeds, batch)
            for tensor, dim in zip(tensors, in_dims[:3], strict=True)
        )
        if mask is not None:
            mask = _fold(mask, in_dims[3], seeds, batch)
        output = ATTENTION(query, key, value, attn_mask=mask, scale=scale)
        return output.unflatten(0, (seeds, -1)), 0


def _fold(tensor: Tensor, dim: int | None, seeds: int, batch: int) -> Tensor:
    """Reshape (seed, batch, …) to (seed · batch, …), and expand what seeds or images share."""
    stacked = tensor.movedim(dim, 0) if dim is not None else tensor.expand(seeds, *tensor.shape)
    while stacked.ndim < 5:  # a mask without a batch dimension
        stacked = stacked.unsqueeze(1)
    return stacked.expand(-1, batch, -1, -1, -1).flatten(0, 1)


ATTENTION = F.scaled_dot_product_attention


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None
) -> Tensor:
    return FoldedAttention.apply(query, key, value, mask, scale)


# Dynamo would trace `FoldedAttention.forward` and never see `vmap`. Left in the graph as one call,
# the later stages of the compiler, which know about vmap, reach it.
_fold_in_graph = torch.compiler.allow_in_graph(_attend)


@contextmanager
def folded_attention() -> Iterator[None]:
    """Make torch's fused attention fold the seeds of vmap into its batch, inside the block."""

    def attend(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        if dropout_p or is_causal or enable_gqa or query.ndim != 4:
            return ATTENTION(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale,
                enable_gqa=enable_gqa,
            )  # fmt: skip
        return _fold_in_graph(query, key, value, attn_mask, scale)

    F.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        F.scaled_dot_product_attention = ATTENTION


class StackedStep(Step):
    """`Step` for a `Stack`: all seeds at once, each with its own draws. Rows are (seed, batch)."""

    def __init__(
        self, stack: Stack, optimiser: torch.optim.Optimizer, data: Dataset, recipe: Recipe, *,
        batch: int, seeds: Sequence[int], precision: str, compile: bool,
    ) -> None:  # fmt: skip
        self.seeds, self.batch_per_seed = tuple(seeds), batch
        self.augmenter = partial(StackedAugmenter, seeds=len(seeds))
        super().__init__(
            stack, optimiser, data, recipe, batch=batch * len(seeds), seed=seeds[0],
            precision=precision, processes=Processes(), compile=compile,
        )  # fmt: skip
        self.stack = stack
        self.channels_last = False
        self.augment_generators = [torch.Generator(self.device) for _ in seeds]
        self.model_generators = [torch.Generator(self.device) for _ in seeds]
        self.first_bad = torch.full((len(seeds),), -1, dtype=torch.int64, device=self.device)
        self.sums = torch.zeros(3, len(seeds), dtype=self.sums.dtype, device=self.device)

    def seed_generators(self, number: int) -> None:
        for i, seed in enumerate(self.seeds):
            self.model_generators[i].manual_seed(derive_seed(seed, "model", number))
            self.augment_generators[i].manual_seed(derive_seed(seed, "augment", number))

    def generators(self) -> list[torch.Generator]:
        return [*self.augment_generators, *self.model_generators]

    def augmented_batch(self) -> tuple[Tensor, Tensor]:
        draws = [self.augment.draw(self.batch_per_seed, g) for g in self.augment_generators]
        draw = Draw(torch.cat([d.images for d in draws]), torch.stack([d.batch for d in draws]))
        return self.prepare(self.images, self.labels, draw)

    def loss(self, images: Tensor, targets: Tensor) -> Tensor:
        masks = self.stack.draw_masks(self.batch_per_seed, self.model_generators)
        with autocast(self.device, self.precision), trained_attention(), folded_attention():
            return self.objective(images, targets, masks)

    def clip(self) -> Tensor:
        """`optim.clip_gradients`, applied to each seed separately."""
        gradients = [row.grad for row in self.stack.rows if row.grad is not None]
        norm = torch.stack([g.square().sum(1) for g in gradients]).sum(0).sqrt()
        if self.recipe.clip is not None:
            factor = (self.recipe.clip / (norm + 1e-6)).clamp(max=1.0)
            for gradient in gradients:
                gradient.mul_(factor[:, None])
        return norm


class StackedAugmenter(Augmenter):
    """`Augmenter` for several seeds: images change one by one, mixing is decided per seed."""

    def __init__(self, augment: Augment, *, seeds: int, **about: Any) -> None:
        super().__init__(augment, **about)
        self.seeds = seeds

    def __call__(
        self, images: Tensor, labels: Tensor, draw: Draw, *, rows: slice | None = None
    ) -> tuple[Tensor, Tensor]:
        self.check(images, labels, draw)
        parts = zip(self.stages, draw.images.split(self.numbers, 1), strict=True)
        settings = [stage.settle(uniform) for stage, uniform in parts]
        targets = mixing.targets(labels, self.classes, self.augment.smoothing)
        targets = targets.unflatten(0, (self.seeds, -1))
        with torch.autocast(images.device.type, enabled=False):
            altered = self.alter(images, settings, slice(None)).unflatten(0, (self.seeds, -1))
            if not self.mixes:
                return altered, targets
            return torch.vmap(self.mix)(altered, targets, draw.batch)

    def mix(self, images: Tensor, targets: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        mix = mixing.settle(uniform, self.augment, self.image)
        mixed = mixing.mix_images(images, images.flip(0), mix)
        return mixed, mixing.mix_targets(targets, targets.flip(0), mix)
