"""One step of training: load the batch, augment it, compute the gradient, update the weights.

Everything random in step number t is drawn from generators seeded with (seed, t), so an interrupted
run resumes with the same numbers, and all processes draw the same ones.

On a GPU the step is compiled, recorded once as a CUDA graph and then replayed: small models are
faster than Python can launch their kernels (ViT-Ti/4 at batch 1024 on an H200: the kernels take two
thirds of the time that the launches do).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor, nn

from vitreous.config import Recipe
from vitreous.data.augment import Augmenter
from vitreous.data.dataset import Dataset
from vitreous.distributed import Processes
from vitreous.random_numbers import derive_seed, seed_torch, torch_generator
from vitreous.training.evaluate import autocast, trained_attention
from vitreous.training.optim import clip_gradients, sam_perturbation

log = logging.getLogger("vitreous")

WARM_UP = 3
"""Steps before a CUDA graph is recorded, as torch requires; their effect is undone."""

Batch = tuple[Tensor, Tensor]


class BatchFeed:
    """Gathers batches of a dataset for a device.

    Images that are on the device are indexed there. Otherwise (too large, or mapped from a file) a
    thread gathers the next batch while the device works on the current one.
    """

    def __init__(self, data: Dataset, device: torch.device) -> None:
        self.data = data
        self.is_remote = data.images.device.type != device.type
        self.pins = self.is_remote and device.type == "cuda"
        self.thread = ThreadPoolExecutor(1) if self.is_remote else None
        self.pending: tuple[Tensor, Future[Batch]] | None = None

    def __call__(self, rows: Tensor, upcoming: Tensor | None = None) -> Batch:
        """Images and labels of `rows`; `upcoming` are the rows of the next call."""
        if self.thread is None:
            return self.gather(rows)
        if self.pending is not None and torch.equal(self.pending[0], rows):
            batch = self.pending[1].result()
        else:
            batch = self.gather(rows)
        self.pending = None
        if upcoming is not None:
            self.pending = upcoming, self.thread.submit(self.gather, upcoming)
        return batch

    def gather(self, rows: Tensor) -> Batch:
        rows = rows.to(self.data.images.device)
        images = self.data.images[rows]
        labels = self.data.labels[rows.to(self.data.labels.device)]
        return (images.pin_memory() if self.pins else images), labels


class Step:
    """A callable training step.

    `sums` adds up loss, gradient norm and number of steps for the epoch's record, without waiting
    for the GPU. `first_bad` is the number of the first step whose loss was not finite, else -1.
    """

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
        self.feed = BatchFeed(data, self.device)
        self.processes = processes
        self.rows = None if processes.world == 1 else processes.rows(batch)
        self.augment = self.augmenter(
            recipe.augment,
            image=data.image,
            classes=len(data.classes),
            mean=data.mean,
            std=data.std,
        )
        self.prepare: Callable[..., Batch] = self.augment
        if compile:
            self.objective = torch.compile(self.objective, dynamic=False)
        if compile and self.device.type == "cuda":  # on a CPU this is seven times slower
            self.prepare = torch.compile(self.augment.__call__, fullgraph=True, dynamic=False)
        self.generator = torch.Generator(self.device)
        shape = (batch, *data.images.shape[1:])
        self.images = torch.zeros(shape, dtype=torch.uint8, device=self.device)
        self.labels = torch.zeros(batch, dtype=torch.int64, device=self.device)
        self.number = torch.zeros((), dtype=torch.int64, device=self.device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=self.device)
        exact = torch.float32 if self.device.type == "mps" else torch.float64
        self.sums = torch.zeros(3, dtype=exact, device=self.device)
        self.channels_last = self.device.type == "cuda" and is_convolutional(objective)
        self.uses_graph = processes.world == 1 and self.device.type == "cuda"
        self.replay: Callable[[], None] | None = None
        if self.uses_graph:
            self.stream = torch.cuda.Stream()

    def __call__(
        self, number: int, rows: Tensor, lr: float, upcoming: Tensor | None = None
    ) -> None:
        """Do step `number` on these rows of the data; `upcoming` are the next step's rows."""
        images, labels = self.feed(rows, upcoming)
        self.images.copy_(images, non_blocking=True)
        self.labels.copy_(labels, non_blocking=True)
        self.number.fill_(number)
        self.set_lr(lr)
        if not self.uses_graph:
            self.seed_generators(number)
            self.compute()
            return
        # All steps share one stream: a recorded graph may not cross over to the default one.
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.replay = self.replay or self.record()
            self.seed_generators(number)
            self.replay()
        torch.cuda.current_stream().wait_stream(self.stream)

    def compute(self) -> None:
        """Augment, forward, backward, clip, update."""
        images, targets = self.augmented_batch()
        loss = self.gradient(images, targets)
        if self.recipe.sam is not None:
            with sam_perturbation(self.module, self.recipe.sam):
                self.gradient(images, targets)
        norm = self.clip()
        self.optimiser.step()
        one = torch.ones_like(norm, dtype=torch.float32)
        self.sums += torch.stack([loss.float(), norm.float(), one])
        bad = (self.first_bad < 0) & ~loss.isfinite()
        self.first_bad.copy_(torch.where(bad, self.number, self.first_bad))

    def seed_generators(self, number: int) -> None:
        """Make all randomness of a step depend on the seed and the step's number alone."""
        seed_torch(derive_seed(self.seed, "model", number))
        self.generator.manual_seed(derive_seed(self.seed, "augment", number))

    def augmented_batch(self) -> Batch:
        """Augmented images and soft targets."""
        draw = self.augment.draw(len(self.images), self.generator)
        images, targets = self.prepare(self.images, self.labels, draw, rows=self.rows)
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        return images, targets

    def gradient(self, images: Tensor, targets: Tensor) -> Tensor:
        """Compute the loss and return it; its gradient is left in the parameters' `.grad`."""
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss(images, targets)
        loss.sum().backward()
        return loss.detach()

    def loss(self, images: Tensor, targets: Tensor) -> Tensor:
        with autocast(self.device, self.precision), trained_attention():
            return self.objective(images, targets)

    def clip(self) -> Tensor:
        """Clip the gradients as the recipe says; returns their norm before clipping."""
        return clip_gradients(self.parameters, self.recipe.clip)

    def generators(self) -> list[torch.Generator]:
        """The generators, besides torch's default one, that a recorded step draws from."""
        return [self.generator]

    def set_lr(self, lr: float) -> None:
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            elif self.uses_graph:  # a plain number would become a constant of the recorded graph
                group["lr"] = torch.tensor(lr, device=self.device)
                group["capturable"] = True
            else:
                group["lr"] = lr

    def record(self) -> Callable[[], None]:
        """Record `compute` as a CUDA graph; returns the function that replays it.

        Recording needs warm-up steps, which change weights, buffers, sums and optimiser state. All
        of these are restored in place, because the graph holds their addresses.
        """
        before = [(tensor, tensor.clone()) for tensor in self.changed_tensors()]
        known = {id(tensor) for tensor, _ in before}
        for _ in range(WARM_UP):
            self.compute()
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators():
            graph.register_generator_state(generator)
        self.optimiser.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        replay = graph.replay
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                self.compute()
        except RuntimeError as error:
            log.warning(
                "The step cannot be recorded as a CUDA graph and will be slower: %s",
                str(error).splitlines()[0],
            )
            replay = self.compute
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)
            for tensor in self.changed_tensors():  # optimiser state created since starts at zero
                if id(tensor) not in known:
                    tensor.zero_()
        return replay

    def changed_tensors(self) -> Iterable[Tensor]:
        """Every tensor that a step changes in place."""
        yield from (self.sums, self.first_bad)
        yield from self.module.state_dict(keep_vars=True).values()
        for state in self.optimiser.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))

    def share_sums(self) -> None:
        """Replace the sums by their mean over all processes."""
        if self.processes.world > 1:
            self.sums.copy_(self.processes.total(self.sums.clone()) / self.processes.world)

    def take_sums(self) -> dict[str, float]:
        """Mean loss and gradient norm over the steps since the last call."""
        self.share_sums()
        loss, norm, steps = self.sums.tolist()
        self.sums.zero_()
        return {"train_nll": loss / max(1, steps), "gradient_norm": norm / max(1, steps)}


def is_convolutional(model: nn.Module) -> bool:
    """Whether most weights are convolutions: such models are faster on GPUs with channels last."""
    sizes = [(p.ndim, p.numel()) for p in model.parameters()]
    return sum(size for ndim, size in sizes if ndim == 4) > sum(size for _, size in sizes) / 2


def order(count: int, steps: int, batch: int, repeats: int, seed: int, epoch: int) -> Tensor:
    """Row numbers of an epoch, (steps, batch): a fresh permutation, each row `repeats` times."""
    distinct = -(-batch // repeats)
    generator = torch_generator(seed, "order", epoch)
    rows = torch.randperm(count, generator=generator)[: steps * distinct].view(steps, distinct)
    return rows.repeat(1, repeats)[:, :batch]


def steps_of(count: int, recipe: Recipe) -> tuple[int, int]:
    """Steps per epoch and batch size for `count` images: full batches only, but at least one."""
    batch = min(recipe.batch, count)
    return count // batch, batch
