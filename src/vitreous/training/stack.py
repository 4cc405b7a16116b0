"""Several seeds of one configuration in one step: their weights are stacked, and every operation works on all of them.

A small network at a small batch leaves most of a GPU idle. Stacking k seeds makes every kernel k times as large at the
same number of launches. Each seed keeps its own weights, data order, augmentation and drop-path draws, so it ends where
its single run ends, up to the order of additions.

All trained weights are rows of one or two matrices (with and without weight decay): one fused optimiser kernel moves
all of them, and the gradient norm of every seed is a reduction over its row. Their parts are taken with `split`, whose
backward is a single concatenation; the backward of 150 slices would be 150 additions to a whole matrix.
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
from vitreous.training.evaluate import autocast
from vitreous.training.objectives import Objective
from vitreous.training.optim import moved_by, undecayed
from vitreous.training.step import Step


class NotStackable(VitreousError):
    """The seeds of this configuration cannot share a step; they can be trained one after the other."""


class Masked(nn.Module):
    """Drop path whose draws are made outside: `masks` is (calls, batch), one row per call in a forward pass."""

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
    """k objectives of one structure as one module. Its forward pass gives the k losses.

    Parameters
    ----------
    objectives
        One per seed, with the weights it starts from. They are left as they are.
    recipe
        Says which weights decay.
    images, targets
        One small batch on the CPU, to find out what the forward pass draws.
    """

    def __init__(
        self, objectives: Sequence[Objective], recipe: Recipe, images: Tensor, targets: Tensor
    ) -> None:
        super().__init__()
        first = objectives[0]
        self.seeds = len(objectives)
        self.drawn = drop_path_calls(first, images, targets)
        self.spared = spared = undecayed(first) if recipe.decay == "matrices" else set()
        trained = {name: p for name, p in first.named_parameters() if p.requires_grad}
        groups = [[n for n in trained if n not in spared], [n for n in trained if n in spared]]
        self.groups = [group for group in groups if group]
        self.shapes = {name: parameter.shape for name, parameter in trained.items()}
        self.rows = nn.ParameterList(
            torch.stack([_row(dict(each.named_parameters()), group) for each in objectives])
            for group in self.groups
        )
        kept = [_kept(each, trained) for each in objectives]
        self.names = list(kept[0])
        for number, name in enumerate(self.names):
            self.register_buffer(f"kept_{number}", torch.stack([each[name] for each in kept]))
        # In a tuple, where nn.Module does not look: the template has structure only, its tensors are never read.
        self.template = (_template(first, self.drawn),)

    def weights(self) -> dict[str, Tensor]:
        """Every trained weight by name, with a leading dimension for the seed."""
        found: dict[str, Tensor] = {}
        for group, row in zip(self.groups, self.rows, strict=True):
            parts = row.split([self.shapes[name].numel() for name in group], 1)
            found |= {
                n: part.view(self.seeds, *self.shapes[n])
                for n, part in zip(group, parts, strict=True)
            }
        return found

    def kept(self) -> dict[str, Tensor]:
        """Buffers and frozen weights by name, stacked."""
        return {name: getattr(self, f"kept_{number}") for number, name in enumerate(self.names)}

    def forward(self, images: Tensor, targets: Tensor, masks: dict[str, Tensor]) -> Tensor:
        """Losses (seed) of images (seed, n, …), targets (seed, n, classes) and drop-path masks (seed, calls, n)."""
        given = (
            self.weights() | self.kept() | {f"{path}.masks": mask for path, mask in masks.items()}
        )
        return torch.vmap(self._loss)(given, images, targets)

    def _loss(self, given: dict[str, Tensor], images: Tensor, targets: Tensor) -> Tensor:
        return functional_call(self.template[0], given, (images, targets))

    def optimiser(self, recipe: Recipe) -> torch.optim.Optimizer:
        """The recipe's optimiser over all seeds; what it does to a weight depends on that weight alone."""
        decays = [any(name not in self.spared for name in group) for group in self.groups]
        groups = [
            {"params": [row], "weight_decay": recipe.weight_decay if decayed else 0.0}
            for row, decayed in zip(self.rows, decays, strict=True)
        ]
        return moved_by(groups, recipe)

    def draw(self, batch: int, generator: torch.Generator) -> dict[str, Tensor]:
        """The masks of one seed, as its single run would draw them: one call of `bernoulli_` after the other."""
        masks: dict[str, list[Tensor]] = {}
        for path, keep, scale in self.drawn:
            mask = torch.empty(batch, device=generator.device).bernoulli_(keep, generator=generator)
            masks.setdefault(path, []).append(mask.div_(keep) if scale and keep > 0 else mask)
        return {path: torch.stack(rows) for path, rows in masks.items()}


def _row(parameters: dict[str, nn.Parameter], names: Sequence[str]) -> Tensor:
    return torch.cat([parameters[name].detach().flatten() for name in names])


def _kept(objective: nn.Module, trained: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    frozen = {name: p.detach() for name, p in objective.named_parameters() if name not in trained}
    return dict(objective.named_buffers()) | frozen


def _template(objective: Objective, drawn: list[tuple[str, float, bool]]) -> Objective:
    template = copy.deepcopy(objective).train()
    for path in dict.fromkeys(path for path, _, _ in drawn):
        calls = sum(path == other for other, _, _ in drawn)
        parent, _, name = path.rpartition(".")
        setattr(template.get_submodule(parent), name, Masked(calls))
    return template


def drop_path_calls(
    objective: Objective, images: Tensor, targets: Tensor
) -> list[tuple[str, float, bool]]:
    """The drop-path draws of a forward pass in order: module path, probability to keep, whether to rescale.

    Raises `NotStackable` if the pass draws anything else: the generator would then be left in another state.
    """
    probe = copy.deepcopy(objective).cpu().train()
    calls: list[tuple[str, float, bool]] = []
    for path, module in probe.named_modules():
        if isinstance(module, DropPath) and module.drop_prob:

            def note(m: DropPath, *_: object, path: str = path) -> None:
                calls.append((path, 1 - float(m.drop_prob or 0), m.scale_by_keep))

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
                "The forward pass draws more random numbers than drop path does, dropout for one."
            )
    return calls


class FoldedAttention(torch.autograd.Function):
    """Fused attention of all seeds as one larger batch.

    vmap has no rule for fused attention on CPUs, and on GPUs (torch 2.11) its rule and the compiler disagree about the
    memory layout of what the backward pass needs. `vmap` below is called with plain tensors, so autograd records the
    one fused call in it; `forward` only tells the compiler shapes, and there is no `backward`.
    """

    @staticmethod
    def forward(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        return ATTENTION(
            query, key, value, attn_mask=mask, scale=scale
        )  # for the compiler's idea of shapes

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Any) -> tuple[Tensor, int]:
        *tensors, scale = given
        seeds = info.batch_size
        batch = next(t.shape[1 if d == 0 else 0] for t, d in zip(tensors, in_dims, strict=False))
        query, key, value = (
            _fold(t, d, seeds, batch) for t, d in zip(tensors[:3], in_dims, strict=False)
        )
        mask = None if tensors[3] is None else _fold(tensors[3], in_dims[3], seeds, batch)
        return ATTENTION(query, key, value, attn_mask=mask, scale=scale).unflatten(
            0, (seeds, -1)
        ), 0


def _fold(tensor: Tensor, dim: int | None, seeds: int, batch: int) -> Tensor:
    """(seed, batch, …) as (seed · batch, …); what all seeds or images share is repeated without a copy if possible."""
    stacked = tensor.movedim(dim, 0) if dim is not None else tensor.expand(seeds, *tensor.shape)
    while stacked.ndim < 5:  # a mask without a batch dimension
        stacked = stacked.unsqueeze(1)
    return stacked.expand(-1, batch, -1, -1, -1).flatten(0, 1)


ATTENTION = F.scaled_dot_product_attention


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None
) -> Tensor:
    return FoldedAttention.apply(query, key, value, mask, scale)


# Dynamo would trace `FoldedAttention.forward`; left in the graph as it is, the later stages of the compiler see `vmap`.
fold = torch.compiler.allow_in_graph(_attend)


@contextmanager
def folded_attention() -> Iterator[None]:
    """Inside, torch's fused attention folds the seeds of vmap into its batch."""

    def attend(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        if dropout_p or is_causal or enable_gqa or query.ndim != 4:
            return ATTENTION(
                query,
                key,
                value,
                attn_mask,
                dropout_p,
                is_causal,
                scale=scale,
                enable_gqa=enable_gqa,
            )
        return fold(query, key, value, attn_mask, scale)

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
        self.seeds, self.each = tuple(seeds), batch
        self.augmenter = partial(StackedAugmenter, seeds=len(seeds))
        super().__init__(
            stack, optimiser, data, recipe, batch=batch * len(seeds), seed=seeds[0], precision=precision,
            processes=Processes(), compile=compile,
        )  # fmt: skip
        self.stack = stack
        self.channels_last = False
        self.generators = [torch.Generator(self.device) for _ in seeds]
        self.model_generators = [torch.Generator(self.device) for _ in seeds]
        self.first_bad = torch.full((len(seeds),), -1, dtype=torch.int64, device=self.device)
        self.sums = torch.zeros(3, len(seeds), dtype=self.sums.dtype, device=self.device)

    def seed_all(self, number: int) -> None:
        for seed, model, augment in zip(
            self.seeds, self.model_generators, self.generators, strict=True
        ):
            model.manual_seed(derive_seed(seed, "model", number))
            augment.manual_seed(derive_seed(seed, "augment", number))

    def random_states(self) -> list[torch.Generator]:
        return [*self.generators, *self.model_generators]

    def batches(self) -> tuple[Tensor, Tensor]:
        draws = [self.augment.draw(self.each, generator) for generator in self.generators]
        draw = Draw(torch.cat([d.images for d in draws]), torch.stack([d.batch for d in draws]))
        return self.prepare(self.images, self.labels, draw)

    def losses(self, images: Tensor, targets: Tensor) -> Tensor:
        masks = [self.stack.draw(self.each, generator) for generator in self.model_generators]
        together = {path: torch.stack([mask[path] for mask in masks]) for path in masks[0]}
        with autocast(self.device, self.precision), folded_attention():
            return self.objective(images, targets, together)

    def clip(self) -> Tensor:
        """As `optim.clip`, for every seed by itself."""
        gradients = [row.grad for row in self.stack.rows if row.grad is not None]
        norm = torch.stack([g.square().sum(1) for g in gradients]).sum(0).sqrt()
        if self.recipe.clip is not None:
            factor = (self.recipe.clip / (norm + 1e-6)).clamp(max=1.0)
            for gradient in gradients:
                gradient.mul_(factor[:, None])
        return norm


class StackedAugmenter(Augmenter):
    """`Augmenter` for the batches of several seeds: images change one by one, mixing is decided per seed."""

    def __init__(self, augment: Augment, *, seeds: int, **about: Any) -> None:
        super().__init__(augment, **about)
        self.seeds = seeds

    def __call__(
        self, images: Tensor, labels: Tensor, draw: Draw, *, rows: slice | None = None
    ) -> tuple[Tensor, Tensor]:
        self.check(images, labels, draw)
        parts = zip(self.stages, draw.images.split(self.numbers, 1), strict=True)
        settings = [stage.settle(uniform) for stage, uniform in parts]
        targets = mixing.targets(labels, self.classes, self.augment.smoothing).unflatten(
            0, (self.seeds, -1)
        )
        with torch.autocast(images.device.type, enabled=False):
            altered = self.alter(images, settings, slice(None)).unflatten(0, (self.seeds, -1))
            return (
                torch.vmap(self.mixed)(altered, targets, draw.batch)
                if self.mixes
                else (altered, targets)
            )

    def mixed(self, images: Tensor, targets: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        mix = mixing.settle(uniform, self.augment, self.image)
        return mixing.mix_images(images, images.flip(0), mix), mixing.mix_targets(
            targets, targets.flip(0), mix
        )
