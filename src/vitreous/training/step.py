"""One step of training: from row numbers to moved weights.

Everything random in step number t is drawn from generators seeded with (seed, t). Nothing depends on what was drawn
before, so a run that was killed goes on with the very same numbers, and many processes draw the same ones.

On a GPU the step is compiled, recorded once as a CUDA graph and then replayed: small models are faster than Python can
launch their kernels (ViT-Ti/4 at batch 1024 on an H200: the kernels take two thirds of the time the launches do).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from vitreous.config import Recipe
from vitreous.data.augment import Augmenter
from vitreous.data.dataset import Dataset
from vitreous.distributed import Processes
from vitreous.random_numbers import derive_seed, torch_generator
from vitreous.training.evaluate import autocast
from vitreous.training.feed import Feed
from vitreous.training.optim import climbed, clip

log = logging.getLogger("vitreous")

WARM = 3
"""Steps before recording, as torch asks for; their effect is undone."""


class Step:
    """Calling it does the step; `sums` collects what the epoch's record needs, without waiting for the GPU."""

    augmenter: Callable[..., Augmenter] = Augmenter

    def __init__(
        self,
        objective: nn.Module,
        optimiser: torch.optim.Optimizer,
        data: Dataset,
        recipe: Recipe,
        *,
        batch: int,
        seed: int,
        precision: str,
        processes: Processes,
        compile: bool,
    ) -> None:
        self.device = next(objective.parameters()).device
        self.module = objective
        self.parameters = [p for p in objective.parameters() if p.requires_grad]
        self.objective: Callable[..., Tensor] = processes.wrap(objective)
        self.optimiser, self.recipe, self.seed, self.precision = optimiser, recipe, seed, precision
        self.feed = Feed(data, self.device)
        self.processes, self.part, self.alone = (
            processes,
            processes.rows(batch),
            processes.world == 1,
        )
        self.augment = self.augmenter(
            recipe.augment,
            image=data.image,
            classes=len(data.classes),
            mean=data.mean,
            std=data.std,
        )
        self.prepare: Callable[..., tuple[Tensor, Tensor]] = self.augment
        if compile:
            self.objective = torch.compile(self.objective, dynamic=False)
        if (
            compile and self.device.type == "cuda"
        ):  # on a CPU it would take seven times as long as uncompiled
            self.prepare = torch.compile(self.augment.__call__, fullgraph=True, dynamic=False)
        self.generator = torch.Generator(self.device)
        self.images = torch.zeros(
            (batch, *data.images.shape[1:]), dtype=torch.uint8, device=self.device
        )
        self.labels = torch.zeros(batch, dtype=torch.int64, device=self.device)
        self.number = torch.zeros((), dtype=torch.int64, device=self.device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=self.device)
        exact = torch.float32 if self.device.type == "mps" else torch.float64
        self.sums = torch.zeros(3, dtype=exact, device=self.device)  # loss, gradient norm, steps
        self.channels_last = self.device.type == "cuda" and is_convolutional(objective)
        self.recorded = self.alone and self.device.type == "cuda"
        self.replay: Callable[[], None] | None = None
        if self.recorded:
            self.stream = torch.cuda.Stream()

    def __call__(self, number: int, rows: Tensor, lr: float, then: Tensor | None = None) -> None:
        """Step `number` on these rows of the data; `then` are the next step's."""
        images, labels = self.feed(rows, then)
        self.images.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)
        self.number.fill_(number)
        self.set_lr(lr)
        if not self.recorded:
            self.seed_all(number)
            self.work()
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(
            self.stream
        ):  # one stream for all steps: a graph may not cross over to the default one
            self.replay = self.replay or self.record()
            self.seed_all(number)
            self.replay()
        torch.cuda.current_stream().wait_stream(self.stream)

    def seed_all(self, number: int) -> None:
        """Let what is random follow from the seed and the step's number alone."""
        torch.manual_seed(derive_seed(self.seed, "model", number))
        self.generator.manual_seed(derive_seed(self.seed, "augment", number))

    def work(self) -> None:
        """The step itself."""
        images, targets = self.batches()
        loss = self.gradient(images, targets)
        if self.recipe.sam is not None:
            with climbed(self.module, self.recipe.sam):
                self.gradient(images, targets)
        norm = self.clip()
        self.optimiser.step()
        self.sums += torch.stack(
            [loss.float(), norm.float(), torch.ones_like(norm, dtype=torch.float32)]
        )
        bad = (self.first_bad < 0) & ~loss.isfinite()
        self.first_bad.copy_(torch.where(bad, self.number, self.first_bad))

    def batches(self) -> tuple[Tensor, Tensor]:
        """Augmented images and soft targets."""
        draw = self.augment.draw(len(self.images), self.generator)
        images, targets = self.prepare(
            self.images, self.labels, draw, rows=None if self.alone else self.part
        )
        return (
            images.contiguous(memory_format=torch.channels_last) if self.channels_last else images
        ), targets

    def gradient(self, images: Tensor, targets: Tensor) -> Tensor:
        """The loss, and its gradient in the parameters."""
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.losses(images, targets)
        loss.sum().backward()
        return loss.detach()

    def losses(self, images: Tensor, targets: Tensor) -> Tensor:
        """What is minimised."""
        with autocast(self.device, self.precision):
            return self.objective(images, targets)

    def clip(self) -> Tensor:
        """Scale the gradients down where the recipe asks for it; their norm before."""
        return clip(self.parameters, self.recipe.clip)

    def random_states(self) -> list[torch.Generator]:
        """The generators, besides torch's own, whose draws a recorded step repeats."""
        return [self.generator]

    def set_lr(self, lr: float) -> None:
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            elif self.recorded:  # a number would be recorded for ever
                group["lr"] = torch.tensor(lr, device=self.device)
                group["capturable"] = True
            else:
                group["lr"] = lr

    def record(self) -> Callable[[], None]:
        """Record `work` as a CUDA graph. What the steps before the recording did to any tensor is undone."""
        before = [(tensor, tensor.clone()) for tensor in self.tensors()]
        known = {id(tensor) for tensor, _ in before}
        for _ in range(WARM):
            self.work()
        graph = torch.cuda.CUDAGraph()
        for generator in self.random_states():
            graph.register_generator_state(generator)
        self.optimiser.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                self.work()
            replay = graph.replay
        except RuntimeError as error:
            log.warning(
                "The step cannot be recorded as a CUDA graph and will be slower: %s",
                str(error).splitlines()[0],
            )
            replay = self.work
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)
            for tensor in self.tensors():  # what the optimiser has made since begins at zero
                if id(tensor) not in known:
                    tensor.zero_()
        return replay

    def tensors(self) -> Iterable[Tensor]:
        """All that a step changes."""
        yield from (self.sums, self.first_bad)
        yield from self.module.state_dict(keep_vars=True).values()
        for state in self.optimiser.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))

    def share_sums(self) -> None:
        """Let every process have the mean of the sums of all."""
        if not self.alone:
            self.sums.copy_(self.processes.total(self.sums.clone()) / self.processes.world)

    def take_sums(self) -> dict[str, float]:
        """Means over the steps since the last call."""
        self.share_sums()
        loss, norm, steps = self.sums.tolist()
        self.sums.zero_()
        return {"train_nll": loss / max(1, steps), "gradient_norm": norm / max(1, steps)}


def is_convolutional(model: nn.Module) -> bool:
    """Whether most weights are convolutions: such models are faster on GPUs with channels last."""
    sizes = [(p.ndim, p.numel()) for p in model.parameters()]
    return sum(size for ndim, size in sizes if ndim == 4) > sum(size for _, size in sizes) / 2


def order(count: int, steps: int, batch: int, repeats: int, seed: int, epoch: int) -> Tensor:
    """Row numbers of an epoch, (steps, batch): a fresh permutation, each row `repeats` times in a batch (A3.09)."""
    generator = torch_generator(seed, "order", epoch)
    distinct = -(-batch // repeats)
    rows = torch.randperm(count, generator=generator)[: steps * distinct].view(steps, distinct)
    return rows.repeat(1, repeats)[:, :batch]


def steps_of(count: int, recipe: Recipe) -> tuple[int, int]:
    """Steps of an epoch and images of a step: whole batches only; a set smaller than a batch is one batch."""
    batch = min(recipe.batch, count)
    return count // batch, batch
