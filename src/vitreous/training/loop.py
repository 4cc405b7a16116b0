"""`vitreous.train`: from a model, images and a recipe to a trained model and its record.

    for every epoch:
        for every batch of a fresh permutation:
            augment, loss, gradient, clip, step
        measure on the test images, write a line, keep the weights of a checkpoint that is due, save the state

The same call goes on where a killed run was, and gives the finished one back without work.
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
from vitreous.devices import choose_device
from vitreous.distributed import Processes, join_processes
from vitreous.errors import VitreousError
from vitreous.interrupts import defer_interrupts
from vitreous.storage.run_folder import PREVIOUS, Run
from vitreous.training import locality, prepare, recipes
from vitreous.training.display import View
from vitreous.training.evaluate import evaluate
from vitreous.training.objectives import objective
from vitreous.training.optim import average, optimiser, schedule
from vitreous.training.state import due_checkpoints, pack, unpack
from vitreous.training.step import Step, order, steps_of

SAVE_EVERY = 30.0
"""Seconds after which the state is saved again: what a killed run has to do over."""

LOOK_EVERY = 32
"""Steps between looks at the loss and the clock where looking costs time: on a GPU, or with other processes."""

WATCHED = 256
"""Test images on which the locality of attention is measured each epoch (A4.19)."""


class Diverged(VitreousError):
    """The loss is no longer a number."""


@dataclass(frozen=True)
class Trained:
    """What `train` gives back: the model (in evaluation mode), and the run's folder and records."""

    model: nn.Module
    run: Run
    records: list[dict[str, Any]]

    def __post_init__(self) -> None:
        """A run that an earlier version let end so is no result either."""
        check_finite(self.model, self.records[-1] if self.records else {}, self.run)

    @property
    def accuracy(self) -> float:
        """Share of the test images that are right at the end."""
        return 1 - float(self.records[-1]["test_error"])


def train(
    model: nn.Module | str,
    data: Dataset | str,
    recipe: Recipe | str = "fast",
    *,
    test: Dataset | None = None,
    out: Path | str | None = None,
    seed: int = 0,
    device: str = "auto",
    pretrained: bool = False,
    teacher: nn.Module | None = None,
    compile: bool | None = None,
    show: bool = True,
) -> Trained:
    """Train `model` on `data` as `recipe` says; see `docs/train.md`.

    `model` is a module, which is trained in place, or a name (with `pretrained` weights); `data` a `Dataset` or a name,
    and then `test` is its test split. `out` is the run's folder, by default under `runs/`, named after all that the
    result depends on. `compile` is on for GPUs.
    """
    where = choose_device(device)
    recipe = recipes.named(recipe) if isinstance(recipe, str) else recipe
    data, test = prepare.images(data, test)
    made, described = prepare.model(model, data, recipe, seed, pretrained)
    identity = prepare.identity(described, data, test, recipe, seed, teacher)
    title = prepare.title(identity)
    run = Run(out or Path("runs") / title)
    compile = where.type == "cuda" if compile is None else compile
    team = join_processes(where)
    with defer_interrupts(team.world) as stop, contextlib.ExitStack() as stack:
        course = Course(made, data, test, recipe, teacher, seed, where, compile, team)
        if team.first:
            stack.enter_context(run.hold(identity, course.bytes(), "training"))
        team.wait()
        with View(show and team.first, title, course.plan.steps, course.steps) as view:
            course.follow(run, stop, view)
        return Trained(course.tested.eval(), run, course.records)


class Course:
    """A training on its way."""

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
        team: Processes,
    ) -> None:
        self.model, self.recipe, self.seed, self.team = model.to(device), recipe, seed, team
        self.data, self.test = prepare.resident(data, device), prepare.resident(test, device)
        self.steps, self.batch = steps_of(len(data), recipe)
        self.plan = schedule(recipe, self.steps)
        self.precision = recipe.precision
        if recipe.precision == "auto":
            self.precision = "bf16" if device.type == "cuda" else "fp32"
        self.objective = objective(recipe, model, teacher=teacher, mean=data.mean, std=data.std).to(
            device
        )
        self.optimiser = optimiser(self.objective, recipe)
        self.mean = None if recipe.ema is None else average(self.model, recipe.ema)
        self.step = Step(
            self.objective, self.optimiser, self.data, recipe,
            batch=self.batch, seed=seed, precision=self.precision, processes=team, compile=compile,
        )  # fmt: skip
        self.done = 0  # steps
        self.remembered = -1  # steps at the last record
        self.seconds = 0.0  # of the epoch so far
        self.saved = 0.0
        self.records: list[dict[str, Any]] = []

    def follow(self, run: Run, stop: list[int], view: View) -> None:
        """From wherever the run is to its end."""
        self.resume(run)
        if self.remembered == self.plan.steps:
            self.repair(run)
            return
        if self.team.first:
            run.write("environment.json", prepare.environment(self.step.device))
        view.begin(run.folder, self.done)
        if self.done == 0:
            self.remember(run, view)
        self.objective.train()
        while self.remembered < self.plan.steps:
            self.epoch(run, stop, view)
            self.remember(run, view)

    def epoch(self, run: Run, stop: list[int], view: View) -> None:
        """The rest of the epoch that has been begun, or the next."""
        epoch = self.remembered // self.steps
        batches = order(
            len(self.data), self.steps, self.batch, self.recipe.augment.repeats, self.seed, epoch
        )
        batches = batches.to(self.data.images.device)
        began = time.perf_counter() - self.seconds
        every = 1 if self.step.device.type == "cpu" and self.team.world == 1 else LOOK_EVERY
        for number in range(self.done, min((epoch + 1) * self.steps, self.plan.steps)):
            place = number - epoch * self.steps
            then = batches[place + 1] if place + 1 < self.steps else None
            self.step(number, batches[place], self.plan.lr(number), then)
            if self.mean is not None:
                self.mean.update_parameters(self.model)
            self.done = number + 1
            view.step(self.done, self.step.sums)
            if self.done % every == 0:
                self.look(run)
                if self.team.any(bool(stop) or self.overdue):
                    self.seconds = time.perf_counter() - began
                    self.save(run)
                if stop:
                    raise KeyboardInterrupt(
                        f"Stopped after step {self.done}, which is saved: the same command goes on."
                    )
        self.look(run)
        self.seconds = time.perf_counter() - began

    def look(self, run: Run) -> None:
        """Stop if the loss is no number; the saved state is from before."""
        bad = self.team.most(self.step.first_bad)
        if bad >= 0:
            raise Diverged(
                f"The loss was no finite number in step {bad} (epoch {bad // self.steps + 1}, learning rate "
                f"{self.plan.lr(bad):.2g}). The last good state is in {str(run.state)!r}; try a lower lr, a longer "
                "warm-up, or clip=1."
            )

    def remember(self, run: Run, view: View) -> None:
        """What is kept at the end of an epoch: weights, a line of metrics, the state; in this order."""
        if self.remembered == self.done:
            return
        record = self.measure()
        check_finite(self.tested, record, run)
        self.keep(run)
        if self.team.first:
            run.append(record)
        self.records.append(json.loads(json.dumps(record)))  # as it is read back
        self.remembered = self.done
        if self.team.any(self.overdue) or self.done in (0, self.plan.steps):
            self.save(run)
        view.epoch(record)

    def measure(self) -> dict[str, Any]:
        """The record of an epoch (A4.01); before the first step, of the model as it begins."""
        record: dict[str, Any] = {"epoch": -(-self.done // self.steps), "step": self.done}
        if self.done:
            rows = (self.done - 1) % self.steps + 1
            record |= {"lr": self.plan.lr(self.done - 1), **self.step.take_sums()}
            record |= {
                "seconds": self.seconds,
                "images_per_second": rows * self.batch / max(self.seconds, 1e-9),
            }
        self.seconds = 0.0
        if self.done != self.plan.steps and record["epoch"] % self.recipe.test_every:
            return record
        if self.recipe.objective != "masked":
            batch = 2048 if self.step.device.type == "cuda" else 256
            record |= evaluate(
                self.tested, self.test, batch=batch, precision=self.precision, processes=self.team
            )
        images = self.test.normalise(self.test.images[:WATCHED].to(self.step.device))
        return record | locality.record(self.tested, images)

    @property
    def overdue(self) -> bool:
        """Whether the state has not been saved for a while."""
        return time.monotonic() - self.saved > SAVE_EVERY

    @property
    def tested(self) -> nn.Module:
        """The model, or the running mean of its weights."""
        return self.model if self.mean is None else self.mean.module

    def keep(self, run: Run) -> None:
        """Write the weights of a checkpoint that is due."""
        if self.team.first:
            for name in due_checkpoints(self.recipe, self.plan, self.steps, self.done):
                run.save(f"weights/{name}.safetensors", self.tested.state_dict(), step=self.done)

    def save(self, run: Run) -> None:
        """Write the state from which `resume` goes on."""
        self.look(run)
        check_finite(self.model, {}, run)
        self.step.share_sums()
        if self.team.first:
            tensors = pack(self.objective, self.optimiser, self.mean) | {"sums": self.step.sums}
            notes = {"step": self.done, "remembered": self.remembered, "seconds": self.seconds}
            run.save_state(
                tensors, self.remembered == self.plan.steps, **notes, records=self.records
            )
        self.saved = time.monotonic()

    def resume(self, run: Run) -> None:
        """Go back to the latest saved state that is intact, if there is one; the records are those of that state."""
        state = run.read_state()
        if state is None and self.finished(run):
            return
        latest = state or run.read_state(PREVIOUS)
        if latest is not None:
            tensors, notes = latest
            unpack(tensors, self.objective, self.optimiser, self.mean)
            self.step.sums.copy_(tensors["sums"])
            self.done, self.remembered, self.seconds = (
                notes["step"],
                notes["remembered"],
                notes["seconds"],
            )
            self.records = (
                notes["records"] if "records" in notes else run.records_up_to(notes["metrics"])
            )
        self.team.wait()  # nobody reads any more
        if self.team.first:
            run.rewrite(self.records)
            if state is None:
                run.state.unlink(missing_ok=True)  # it would take the place of the previous one

    def finished(self, run: Run) -> bool:
        """Whether the final weights and all records are there, so that no state is needed; then they are taken."""
        try:
            (tensors, notes), records = run.read_weights(), run.records()
        except VitreousError:
            return False
        if not records or not notes["step"] == records[-1]["step"] == self.plan.steps:
            return False
        self.tested.load_state_dict(tensors)
        self.done = self.remembered = self.plan.steps
        self.records = records
        return True

    def repair(self, run: Run) -> None:
        """The final weights of a finished run, if they were lost."""
        try:
            run.read_weights()
        except VitreousError:
            self.keep(run)

    def bytes(self) -> int:
        """What the run will write, generously."""
        weights = sum(t.numel() * t.element_size() for t in self.model.state_dict().values())
        kept = {"none": 1, "moments": 5, "epochs": 5 + self.plan.epochs}[self.recipe.keep]
        return weights * (kept + 2 * (4 + (self.mean is not None))) + (1 << 20)


def check_finite(model: nn.Module, record: Mapping[str, Any], run: Run) -> None:
    """An error if losses, the weights or what normalisation layers count are no finite numbers: the last step of a
    training may ruin the weights after a loss that was fine, and a test may fail alone."""
    bad = [name for name in ("train_nll", "test_nll") if not isfinite(record.get(name, 0.0))]
    values = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    bad += [
        name
        for name, value in values.items()
        if value.is_floating_point()
        and bool((value.isnan() if "mask" in name else ~value.isfinite()).any())
    ][:1]
    if bad:
        after = f" after step {record['step']}" if "step" in record else ""
        state = (
            f"The last good state is in {str(run.state)!r}"
            if run.state.exists()
            else "No state was saved before"
        )
        raise Diverged(
            f"{' and '.join(bad)} held no finite numbers{after}. {state}; try a lower lr or clip=1."
        )
