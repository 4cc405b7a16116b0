"""`train_seeds`: several seeds of one configuration, trained in one step if the model allows it.

Every seed has its own run folder with the same files as a single training, so each can be resumed,
opened and compared alone. Weights and optimiser state are copied out of the stack only to record or
save them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from vitreous.config import Recipe
from vitreous.data.dataset import Dataset
from vitreous.devices import choose_device, ordinary_torch
from vitreous.distributed import Processes
from vitreous.errors import VitreousError
from vitreous.interrupts import defer_interrupts
from vitreous.random_numbers import kept_random_state
from vitreous.storage.run_folder import Run
from vitreous.training import prepare, recipes
from vitreous.training.display import TrainingDisplay
from vitreous.training.loop import CHECK_EVERY, Trained, Trainer
from vitreous.training.optim import kept_flags
from vitreous.training.stack import NotStackable, Stack, StackedStep
from vitreous.training.step import order

log = logging.getLogger("vitreous")


@ordinary_torch()
def train_seeds(
    model: str,
    data: Dataset | Path | str,
    recipe: Recipe | str = "fast",
    *,
    seeds: Sequence[int],
    test: Dataset | None = None,
    out: Path | str | Sequence[Path] | None = None,
    device: str = "auto",
    compile: bool | None = None,
    show: bool = True,
) -> list[Trained]:
    """Train one configuration with several seeds, in one step for all of them if possible.

    Parameters
    ----------
    model
        A name; every seed starts from its own weights.
    seeds
        The random seeds. Each run equals the single run of its seed (on a CPU in float32, up to
        rounding).
    out
        The folder that holds one run per seed, `seed-0` and so on, or one folder per seed; by
        default each run is named under `runs/`.

    Other arguments are those of `train`. A model with dropout is trained one seed after the other,
    with a notice.

    Examples
    --------
    >>> from vitreous.training.seeds import train_seeds
    >>> trained = train_seeds("vit_ti/4", "tv:CIFAR10", "hdv_cifar", seeds=(0, 1, 2))
    >>> [each.accuracy for each in trained]
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise VitreousError(f"seeds are different whole numbers, at least one, not {tuple(seeds)}.")
    where = choose_device(device)
    recipe = recipes.named(recipe) if isinstance(recipe, str) else recipe
    data, test = prepare.prepare_images(data, test, recipe)
    data, test = prepare.move_to_gpu(data, where), prepare.move_to_gpu(test, where)
    compile = where.type == "cuda" if compile is None else compile
    with kept_random_state(where), defer_interrupts() as stop, contextlib.ExitStack() as stack:
        pairs: list[tuple[Trainer, Run]] = []
        for number, seed in enumerate(seeds):
            network, described = prepare.prepare_model(model, data, recipe, seed, pretrained=False)
            stack.enter_context(kept_flags(network))
            identity = prepare.run_identity(described, data, test, recipe, seed, None)
            trainer = Trainer(network, data, test, recipe, None, seed, where, compile, Processes())
            if out is None:
                folder = Path("runs") / prepare.run_title(identity)
            elif isinstance(out, Path | str):
                folder = Path(out) / f"seed-{seed}"
            else:
                folder = out[number]
            run = Run(folder)
            stack.enter_context(run.hold(identity, trainer.disk_bytes(), "training"))
            trainer.resume(run)
            pairs.append((trainer, run))
        title = f"{model} {data.name} {recipe.name}"
        # Runs can be stacked only if they resume from the same step.
        for progress in dict.fromkeys((t.done, t.recorded) for t, _ in pairs):
            group = [pair for pair in pairs if (pair[0].done, pair[0].recorded) == progress]
            _train_group(group, stop, show, title, compile)
    return [Trained(trainer.tested.eval(), run, trainer.records) for trainer, run in pairs]


def _train_group(
    group: list[tuple[Trainer, Run]], stop: list[int], show: bool, title: str, compile: bool
) -> None:
    """Train runs at the same step to the end, stacked if possible."""
    first = group[0][0]
    title = f"{title}, seeds {', '.join(str(trainer.seed) for trainer, _ in group)}"
    with TrainingDisplay(show, title, first.plan.steps, first.steps) as display:
        if len(group) > 1 and first.recorded < first.plan.steps:
            try:
                stacked = StackedTrainer(group, compile)
            except NotStackable as reason:
                log.warning("%s The seeds are trained one after the other.", reason)
            else:
                stacked.fit(stop, display)
                return
        for trainer, run in group:
            trainer.fit(run, stop, display)


class StackedTrainer:
    """Several trainings at the same step, which share every further step."""

    def __init__(self, pairs: Sequence[tuple[Trainer, Run]], compile: bool) -> None:
        self.trainers, self.runs = [t for t, _ in pairs], [run for _, run in pairs]
        first = self.trainers[0]
        if first.recipe.ema is not None or first.recipe.sam is not None:
            raise NotStackable("A running mean of the weights and SAM are not stacked.")
        classes = len(first.data.classes)
        images = torch.randn(2, 3, *first.data.image, generator=torch.Generator().manual_seed(0))
        targets = torch.full((2, classes), 1 / classes)
        objectives = [trainer.objective for trainer in self.trainers]
        self.stack = Stack(objectives, first.recipe, images, targets).to(first.step.device)
        self.optimiser = self.stack.optimiser(first.recipe)
        self.step = StackedStep(
            self.stack, self.optimiser, first.data, first.recipe, batch=first.batch,
            seeds=[trainer.seed for trainer in self.trainers], precision=first.precision,
            compile=compile,
        )  # fmt: skip
        self.check_every = 1 if self.step.device.type == "cpu" else CHECK_EVERY
        self._gather()

    def fit(self, stop: list[int], display: TrainingDisplay) -> None:
        """Train from where the runs are to the end."""
        first = self.trainers[0]
        environment = prepare.environment(self.step.device)
        environment["stacked_seeds"] = [trainer.seed for trainer in self.trainers]
        for run in self.runs:
            run.write("environment.json", environment)
        display.begin(self.runs[0].folder, first.done)
        if first.done == 0:
            self._end_epoch(display)
        while first.recorded < first.plan.steps:
            self._train_epoch(stop, display)
            self._end_epoch(display)

    def _train_epoch(self, stop: list[int], display: TrainingDisplay) -> None:
        first = self.trainers[0]
        epoch = first.recorded // first.steps
        repeats = first.recipe.augment.repeats
        orders = [
            order(len(first.data), first.steps, first.batch, repeats, trainer.seed, epoch)
            for trainer in self.trainers
        ]
        batches = torch.stack(orders, 1).flatten(1).to(first.data.images.device)
        began = time.perf_counter() - first.seconds
        for number in range(first.done, min((epoch + 1) * first.steps, first.plan.steps)):
            place = number - epoch * first.steps
            upcoming = batches[place + 1] if place + 1 < first.steps else None
            self.step(number, batches[place], first.plan.lr(number), upcoming)
            self._advance(number + 1, time.perf_counter() - began)
            display.step(number + 1, self.step.sums.mean(1))
            if (number + 1) % self.check_every == 0 and (stop or first.save_is_due):
                self._scatter()
                for trainer, run in zip(self.trainers, self.runs, strict=True):
                    trainer.save(run)
                if stop:  # only here: a step in between is not on the disk
                    raise KeyboardInterrupt(
                        f"Stopped after step {number + 1}, which is saved: run the same command "
                        "again to resume."
                    )
        self._advance(first.done, time.perf_counter() - began)

    def _advance(self, done: int, seconds: float) -> None:
        for trainer in self.trainers:
            trainer.done, trainer.seconds = done, seconds

    def _end_epoch(self, display: TrainingDisplay) -> None:
        """Record every run, and print one line with the means over seeds."""
        self._scatter()
        quiet = TrainingDisplay(False, "", 1, 1)
        for trainer, run in zip(self.trainers, self.runs, strict=True):
            trainer.check_loss(run)
            trainer.end_epoch(run, quiet)
        self.step.sums.zero_()
        records = [trainer.records[-1] for trainer in self.trainers]
        numbers = [key for key, value in records[0].items() if isinstance(value, float)]
        means = {key: sum(record[key] for record in records) / len(records) for key in numbers}
        display.epoch(records[0] | means)

    @torch.no_grad()
    def _scatter(self) -> None:
        """Copy weights, buffers, optimiser state and sums from the stack to the trainers."""
        stacked = self.stack.weights() | self.stack.fixed()
        for i, trainer in enumerate(self.trainers):
            objective = trainer.objective
            for name, tensor in [*objective.named_buffers(), *objective.named_parameters()]:
                tensor.copy_(stacked[name][i])
            for key, name, value in self._optimiser_state():
                state = trainer.optimiser.state[objective.get_parameter(name)]
                state[key] = value[i].clone() if value.ndim else value.clone()
            trainer.step.sums.copy_(self.step.sums[:, i])
            trainer.step.first_bad.copy_(self.step.first_bad[i])

    def _optimiser_state(self) -> list[tuple[str, str, Tensor]]:
        """(key, name of the weight, value) of each entry of the optimiser's state.

        The first dimension of a value is the seed; values that seeds share are scalars.
        """
        entries = []
        for group, row in zip(self.stack.groups, self.stack.rows, strict=True):
            shapes = [self.stack.shapes[name] for name in group]
            for key, value in self.optimiser.state.get(row, {}).items():
                if value.shape != row.shape:
                    entries += [(key, name, value) for name in group]
                    continue
                parts = value.split([shape.numel() for shape in shapes], 1)
                for name, part, shape in zip(group, parts, shapes, strict=True):
                    entries.append((key, name, part.view(-1, *shape)))
        return entries

    @torch.no_grad()
    def _gather(self) -> None:
        """Copy optimiser state and sums of resumed trainers to the stack, which has the weights."""
        for i, trainer in enumerate(self.trainers):
            self.step.sums[:, i] = trainer.step.sums
        for group, row in zip(self.stack.groups, self.stack.rows, strict=True):
            states = [
                [t.optimiser.state.get(t.objective.get_parameter(name), {}) for name in group]
                for t in self.trainers
            ]
            for key, value in states[0][0].items():
                if value.ndim:
                    rows = [
                        torch.cat([weight[key].flatten() for weight in each]) for each in states
                    ]
                    self.optimiser.state[row][key] = torch.stack(rows).to(row.device)
                else:
                    self.optimiser.state[row][key] = value.clone()
