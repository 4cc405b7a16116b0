"""`vitreous.train`: from a model, images and a recipe to a trained model and its record.

    for every epoch:
        for every batch of a fresh permutation:
            augment, loss, gradient, clip, step
        test, write a line of metrics, write the checkpoints that are due, save the state

The same call resumes a run that was killed, and returns a finished one without work.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitreous.config import Recipe
from vitreous.data.dataset import Dataset
from vitreous.devices import choose_device, ordinary_torch
from vitreous.distributed import Processes, join_processes
from vitreous.errors import VitreousError
from vitreous.interrupts import defer_interrupts
from vitreous.random_numbers import kept_random_state
from vitreous.storage.run_folder import PREVIOUS, Run
from vitreous.training import prepare, recipes
from vitreous.training.display import TrainingDisplay
from vitreous.training.evaluate import evaluate
from vitreous.training.locality import attention_locality
from vitreous.training.objectives import objective
from vitreous.training.optim import average, kept_flags, optimiser, schedule
from vitreous.training.state import due_checkpoints, load_state_tensors, state_tensors
from vitreous.training.step import Step, order, steps_of

SAVE_EVERY = 30.0
"""Seconds after which the state is saved again: what a killed run has to compute again."""

CHECK_EVERY = 32
"""Steps between checks of loss and clock where a check costs time: on a GPU, or with processes."""

LOCALITY_IMAGES = 256
"""Test images on which the locality of attention is measured each epoch."""


class Diverged(VitreousError):
    """The loss, the weights or a test is no longer a finite number."""


@dataclass(frozen=True)
class Trained:
    """Result of `train`: the model in evaluation mode, the run's folder and its records.

    Examples
    --------
    >>> data = vitreous.data.load("world:shapes", size=32)
    >>> recipe = vitreous.recipes.named("quick").but(epochs=1, batch=16)
    >>> trained = vitreous.train("cnn_ti", data, recipe, test=data, out="run", show=False)
    >>> [record["epoch"] for record in trained.records], trained.accuracy < 1
    ([0, 1], True)
    """

    model: nn.Module
    run: Run
    records: list[dict[str, Any]]

    def __post_init__(self) -> None:
        # Earlier versions could finish a run whose last step had ruined the weights.
        check_finite(self.model, self.records[-1] if self.records else {}, self.run)

    @property
    def accuracy(self) -> float:
        """Share of the test images that are classified correctly at the end."""
        return 1 - float(self.records[-1]["test_error"])


@ordinary_torch()
def train(
    model: nn.Module | str,
    data: Dataset | Path | str,
    recipe: Recipe | str = "fast",
    *,
    test: Dataset | None = None,
    out: Path | str | None = None,
    seed: int = 0,
    device: str = "auto",
    pretrained: bool = False,
    weights: Path | str | None = None,
    teacher: nn.Module | None = None,
    compile: bool | None = None,
    show: bool = True,
) -> Trained:
    """Train a model on labelled images.

    Parameters
    ----------
    model
        A module, which is trained in place, or a name.
    data
        Training images as a `Dataset`, or the name or path of a dataset.
    recipe
        A `Recipe` or its name; `vitreous.recipes.names()` lists them.
    test
        Test images with the same classes; for a named dataset, its test split.
    out
        Folder of the run; by default below `runs/`, with a name that is unique to the run.
    seed
        Random seed (default: 0) of weights, order and augmentation.
    device
        "auto", "cpu", "cuda", "cuda:1" or "mps".
    pretrained
        Start from published weights of a named model.
    weights
        Start from this checkpoint, as in `vitreous.open`.
    teacher
        Model to learn from, for recipes that distil.
    compile
        Compile model and augmentation; by default on GPUs only.
    show
        Print progress.

    Returns
    -------
    The trained model, its run folder and one record per epoch. Run the same call again to resume an
    interrupted training (bit-exact on a CPU).

    Examples
    --------
    >>> data = vitreous.data.load("world:shapes", size=32)
    >>> recipe = vitreous.recipes.named("quick").but(epochs=1, batch=16)
    >>> test = vitreous.data.load("world:shapes", split="test", size=16)
    >>> trained = vitreous.train("vit_nano", data, recipe, test=test, out="runs/a", show=False)
    >>> vitreous.open("run:runs/a").units[1].name
    'blocks.0.attn'
    """
    where = choose_device(device)
    recipe = recipes.named(recipe) if isinstance(recipe, str) else recipe
    data, test = prepare.prepare_images(data, test, recipe)
    compile = where.type == "cuda" if compile is None else compile
    processes = join_processes(where)
    with kept_random_state(where), contextlib.ExitStack() as stack:
        network, described = prepare.prepare_model(model, data, recipe, seed, pretrained, weights)
        stack.enter_context(kept_flags(network))
        stop = stack.enter_context(defer_interrupts(processes.world))
        identity = prepare.run_identity(described, data, test, recipe, seed, teacher)
        title = prepare.run_title(identity)
        run = Run(out or Path("runs") / title)
        trainer = Trainer(network, data, test, recipe, teacher, seed, where, compile, processes)
        if processes.first:
            stack.enter_context(run.hold(identity, trainer.disk_bytes(), "training"))
        processes.wait()
        shown = show and processes.first
        with TrainingDisplay(shown, title, trainer.plan.steps, trainer.steps) as display:
            trainer.fit(run, stop, display)
        return Trained(trainer.tested.eval(), run, trainer.records)


class Trainer:
    """One training: its model, data and optimiser, and its progress."""

    def __init__(
        self,
        model: nn.Module,
        data: Dataset,
        test: Dataset,
        recipe: Recipe,
        teacher: nn.Module | None,
        seed: int,
        device: torch.device,
        compile: bool,
        processes: Processes,
    ) -> None:
        self.model, self.recipe, self.seed = model.to(device), recipe, seed
        self.processes = processes
        self.data = prepare.move_to_gpu(data, device)
        self.test = prepare.move_to_gpu(test, device)
        self.steps, self.batch = steps_of(len(data), recipe)
        self.plan = schedule(recipe, self.steps)
        self.precision = recipe.precision
        if recipe.precision == "auto":
            self.precision = "bf16" if device.type == "cuda" else "fp32"
        self.mean = None if recipe.ema is None else average(self.model, recipe.ema)
        loss = objective(recipe, model, teacher=teacher, mean=data.mean, std=data.std)
        self.objective = loss.to(device)
        self.optimiser = optimiser(self.objective, recipe)
        self.step = Step(
            self.objective, self.optimiser, self.data, recipe, batch=self.batch, seed=seed,
            precision=self.precision, processes=processes, compile=compile,
        )  # fmt: skip
        self.done = 0  # steps
        self.recorded = -1  # steps at the last record
        self.seconds = 0.0  # of the epoch so far
        self.saved = 0.0  # when the state was saved last
        self.records: list[dict[str, Any]] = []

    def fit(self, run: Run, stop: list[int], display: TrainingDisplay) -> None:
        """Train to the end, starting from the state that the run's folder holds."""
        self.resume(run)
        if self.recorded == self.plan.steps:
            self.restore_final_weights(run)
            return
        if self.processes.first:
            run.write("environment.json", prepare.environment(self.step.device))
        display.begin(run.folder, self.done)
        if self.done == 0:
            self.end_epoch(run, display)
        self.objective.train()
        while self.recorded < self.plan.steps:
            self.train_epoch(run, stop, display)
            self.end_epoch(run, display)

    def train_epoch(self, run: Run, stop: list[int], display: TrainingDisplay) -> None:
        """Do the remaining steps of the current epoch."""
        epoch = self.recorded // self.steps
        first, last = epoch * self.steps, min((epoch + 1) * self.steps, self.plan.steps)
        repeats = self.recipe.augment.repeats
        batches = order(len(self.data), self.steps, self.batch, repeats, self.seed, epoch)
        batches = batches.to(self.data.images.device)
        alone_on_cpu = self.step.device.type == "cpu" and self.processes.world == 1
        check_every = 1 if alone_on_cpu else CHECK_EVERY
        began = time.perf_counter() - self.seconds
        for number in range(self.done, last):
            place = number - first
            upcoming = batches[place + 1] if place + 1 < self.steps else None
            self.step(number, batches[place], self.plan.lr(number), upcoming)
            if self.mean is not None:
                self.mean.update_parameters(self.model)
            self.done = number + 1
            display.step(self.done, self.step.sums)
            if self.done % check_every:
                continue
            self.check_loss(run)
            if self.processes.any(bool(stop) or self.save_is_due):
                self.seconds = time.perf_counter() - began
                self.save(run)
            if stop:  # only here: a step in between is not on the disk
                raise KeyboardInterrupt(
                    f"Stopped after step {self.done}, which is saved: run the same command again "
                    "to resume."
                )
        self.check_loss(run)
        self.seconds = time.perf_counter() - began

    def end_epoch(self, run: Run, display: TrainingDisplay) -> None:
        """Test, then write checkpoints, a line of metrics and the state, in this order."""
        if self.recorded == self.done:
            return
        record = self.measure()
        check_finite(self.tested, record, run)
        self.write_checkpoints(run)
        if self.processes.first:
            run.append(record)
        self.records.append(json.loads(json.dumps(record)))  # as it is read back
        self.recorded = self.done
        if self.processes.any(self.save_is_due) or self.done in (0, self.plan.steps):
            self.save(run)
        display.epoch(record)

    def measure(self) -> dict[str, Any]:
        """The record of an epoch; before the first step, of the untrained model."""
        record: dict[str, Any] = {"epoch": -(-self.done // self.steps), "step": self.done}
        if self.done:
            count = ((self.done - 1) % self.steps + 1) * self.batch
            record |= {"lr": self.plan.lr(self.done - 1), **self.step.take_sums()}
            record["seconds"] = self.seconds
            record["images_per_second"] = count / max(self.seconds, 1e-9)
        self.seconds = 0.0
        if self.done != self.plan.steps and record["epoch"] % self.recipe.test_every:
            return record
        if self.recipe.objective != "masked":
            record |= evaluate(
                self.tested, self.test, batch=2048 if self.step.device.type == "cuda" else 256,
                precision=self.precision, processes=self.processes,
            )  # fmt: skip
        images = self.test.images[:LOCALITY_IMAGES].to(self.step.device)
        return record | attention_locality(self.tested, self.test.normalise(images))

    def check_loss(self, run: Run) -> None:
        """Raise `Diverged` if the loss of a step was not finite; the saved state is from before."""
        bad = self.processes.maximum(self.step.first_bad)
        if bad >= 0:
            raise Diverged(
                f"The loss was not finite in step {bad} (epoch {bad // self.steps + 1}, "
                f"learning rate {self.plan.lr(bad):.2g}). The last good state is in "
                f"{str(run.state)!r}; try a lower lr, a longer warm-up, or clip=1."
            )

    @property
    def save_is_due(self) -> bool:
        """Whether the state was last saved more than `SAVE_EVERY` seconds ago."""
        return time.monotonic() - self.saved > SAVE_EVERY

    @property
    def tested(self) -> nn.Module:
        """The model to test and keep: the running mean of the weights if the recipe has one."""
        return self.model if self.mean is None else self.mean.module

    def write_checkpoints(self, run: Run) -> None:
        """Write the weights under the name of every checkpoint that is due."""
        if not self.processes.first:
            return
        for name in due_checkpoints(self.recipe, self.plan, self.steps, self.done):
            run.save(f"weights/{name}.safetensors", self.tested.state_dict(), step=self.done)

    def save(self, run: Run) -> None:
        """Write the state from which `resume` continues."""
        self.check_loss(run)
        check_finite(self.model, {}, run)
        self.step.share_sums()
        if self.processes.first:
            tensors = state_tensors(self.objective, self.optimiser, self.mean)
            # "remembered" is `recorded` under the name that it has in the files of version 0.1.
            run.save_state(
                tensors | {"sums": self.step.sums}, self.recorded == self.plan.steps,
                step=self.done, remembered=self.recorded, seconds=self.seconds,
                records=self.records,
            )  # fmt: skip
        self.saved = time.monotonic()

    def resume(self, run: Run) -> None:
        """Load the latest intact state, if any, with its records."""
        state = run.read_state()
        if state is None and self.load_finished(run):
            return
        latest = state or run.read_state(PREVIOUS)
        if latest is not None:
            tensors, notes = latest
            load_state_tensors(tensors, self.objective, self.optimiser, self.mean)
            self.step.sums.copy_(tensors["sums"])
            self.done, self.recorded = notes["step"], notes["remembered"]
            self.seconds = notes["seconds"]
            if "records" in notes:
                self.records = notes["records"]
            else:  # version 0.1
                self.records = run.records_up_to(notes["metrics"])
        self.processes.wait()  # until no process reads the files any more
        if self.processes.first:
            run.rewrite(self.records)
            if state is None:
                run.state.unlink(missing_ok=True)  # damaged: saving would rename it to PREVIOUS

    def load_finished(self, run: Run) -> bool:
        """Load final weights and records, and return True, if a finished run has lost its state."""
        try:
            (tensors, notes), records = run.read_weights(), run.records()
        except VitreousError:
            return False
        if not records or not notes["step"] == records[-1]["step"] == self.plan.steps:
            return False
        self.tested.load_state_dict(tensors)
        self.done = self.recorded = self.plan.steps
        self.records = records
        return True

    def restore_final_weights(self, run: Run) -> None:
        """Write the final weights of a finished run again if they are lost or damaged."""
        try:
            run.read_weights()
        except VitreousError:
            self.write_checkpoints(run)

    def disk_bytes(self) -> int:
        """Upper estimate of what the run will write."""
        weights = sum(t.numel() * t.element_size() for t in self.model.state_dict().values())
        checkpoints = {"none": 1, "checkpoints": 5, "epochs": 5 + self.plan.epochs}[
            self.recipe.keep
        ]
        states = 2 * (4 + (self.mean is not None))
        return weights * (checkpoints + states) + (1 << 20)


def check_finite(model: nn.Module, record: Mapping[str, Any], run: Run) -> None:
    """Raise `Diverged` if losses of the record, weights or buffers are not finite.

    The last step of a training may ruin the weights after a loss that was fine. Buffers that are
    attention masks may hold -inf.
    """
    bad = [name for name in ("train_nll", "test_nll") if not isfinite(record.get(name, 0.0))]
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if not value.is_floating_point():
            continue
        wrong = value.isnan() if "mask" in name else ~value.isfinite()
        if bool(wrong.any()):
            bad.append(name)
            break
    if bad:
        after = f" after step {record['step']}" if "step" in record else ""
        state = "No state was saved before"
        if run.state.exists():
            state = f"The last good state is in {str(run.state)!r}"
        raise Diverged(
            f"{' and '.join(bad)} were not finite{after}. {state}; try a lower lr or clip=1."
        )
