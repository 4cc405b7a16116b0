"""`train_seeds`: several seeds of one configuration, trained in one step where that is possible.

Every seed has a run folder of its own, the same that its single training would write, so each can be resumed, opened
and compared alone. Weights and optimiser state leave the stack only when something is recorded or saved.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitreous.config import Recipe
from vitreous.data.dataset import Dataset
from vitreous.devices import choose_device
from vitreous.distributed import Processes
from vitreous.errors import VitreousError
from vitreous.interrupts import defer_interrupts
from vitreous.storage.run_folder import Run
from vitreous.training import prepare, recipes
from vitreous.training.display import View
from vitreous.training.loop import LOOK_EVERY, Course, Trained
from vitreous.training.stack import NotStackable, Stack, StackedStep
from vitreous.training.step import order

log = logging.getLogger("vitreous")


def train_seeds(
    model: str,
    data: Dataset | str,
    recipe: Recipe | str = "fast",
    *,
    seeds: Sequence[int],
    test: Dataset | None = None,
    out: Path | str | Sequence[Path] | None = None,
    device: str = "auto",
    compile: bool | None = None,
    show: bool = True,
) -> list[Trained]:
    """Train one configuration with several seeds, in one step for all of them if the model allows it.

    Parameters
    ----------
    model
        A name; every seed starts from its own weights.
    seeds
        The random seeds. Each run equals the single run of its seed (on a CPU in float32, up to rounding).
    out
        The folder that holds one run per seed, `seed-0` and so on, or one folder per seed; by default each run is
        named under `runs/`.

    Other arguments are those of `train`. A model with dropout is trained one seed after the other, with a notice.

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
    data, test = prepare.images(data, test)
    data, test = prepare.resident(data, where), prepare.resident(test, where)
    compile = where.type == "cuda" if compile is None else compile
    with defer_interrupts() as stop, contextlib.ExitStack() as stack:
        courses, runs = [], []
        for number, seed in enumerate(seeds):
            course, identity = _course(model, data, test, recipe, seed, where, compile)
            if out is None:
                folder = Path("runs") / prepare.title(identity)
            else:
                folder = Path(out) / f"seed-{seed}" if isinstance(out, Path | str) else out[number]
            run = Run(folder)
            stack.enter_context(run.hold(identity, course.bytes(), "training"))
            course.resume(run)
            courses.append(course)
            runs.append(run)
        _follow(courses, runs, stop, show, f"{model} {data.name} {recipe.name}", compile)
    return [Trained(c.tested.eval(), run, c.records) for c, run in zip(courses, runs, strict=True)]


def _course(
    model: str,
    data: Dataset,
    test: Dataset,
    recipe: Recipe,
    seed: int,
    where: torch.device,
    compile: bool,
) -> tuple[Course, dict[str, Any]]:
    """The training of one seed, as `train` would make it, and what its result depends on."""
    made, described = prepare.model(model, data, recipe, seed, pretrained=False)
    identity = prepare.identity(described, data, test, recipe, seed, None)
    return Course(made, data, test, recipe, None, seed, where, compile, Processes()), identity


def _follow(
    courses: list[Course],
    runs: list[Run],
    stop: list[int],
    show: bool,
    title: str,
    compile: bool,
) -> None:
    """Train to the end: runs that have come equally far together, others by themselves."""
    pending = dict.fromkeys((c.done, c.remembered) for c in courses)
    for progress in pending:
        group = [i for i, c in enumerate(courses) if (c.done, c.remembered) == progress]
        those, theirs = [courses[i] for i in group], [runs[i] for i in group]
        plan = those[0].plan
        named = f"{title}, seeds {', '.join(str(c.seed) for c in those)}"
        with View(show, named, plan.steps, those[0].steps) as view:
            together = None
            if len(group) > 1 and progress[1] < plan.steps:
                try:
                    together = Together(those, theirs, compile)
                except NotStackable as why:
                    log.warning("%s The seeds are trained one after the other.", why)
            if together is not None:
                together.follow(stop, view)
            else:
                for course, run in zip(those, theirs, strict=True):
                    course.follow(run, stop, view)


class Together:
    """Trainings that have come equally far, moved by one step."""

    def __init__(self, courses: Sequence[Course], runs: Sequence[Run], compile: bool) -> None:
        first = courses[0]
        if first.recipe.ema is not None or first.recipe.sam is not None:
            raise NotStackable("A running mean of the weights and SAM are not stacked.")
        self.courses, self.runs = list(courses), list(runs)
        image, classes = first.data.image, len(first.data.classes)
        few = torch.zeros(2, 3, *image), torch.full((2, classes), 1 / classes)
        self.stack = Stack([c.objective for c in courses], first.recipe, *few).to(first.step.device)
        self.optimiser = self.stack.optimiser(first.recipe)
        self.step = StackedStep(
            self.stack, self.optimiser, first.data, first.recipe, batch=first.batch,
            seeds=[c.seed for c in courses], precision=first.precision, compile=compile,
        )  # fmt: skip
        self.every = 1 if self.step.device.type == "cpu" else LOOK_EVERY
        self._gather()

    def follow(self, stop: list[int], view: View) -> None:
        """From where they are to the end."""
        first = self.courses[0]
        about = prepare.environment(self.step.device) | {
            "stacked_seeds": [c.seed for c in self.courses]
        }
        for run in self.runs:
            run.write("environment.json", about)
        view.begin(self.runs[0].folder, first.done)
        if first.done == 0:
            self._remember(view)
        while first.remembered < first.plan.steps:
            self._epoch(stop, view)
            self._remember(view)

    def _epoch(self, stop: list[int], view: View) -> None:
        first = self.courses[0]
        epoch = first.remembered // first.steps
        repeats = first.recipe.augment.repeats
        each = [
            order(len(first.data), first.steps, first.batch, repeats, c.seed, epoch)
            for c in self.courses
        ]
        batches = torch.stack(each, 1).flatten(1).to(first.data.images.device)
        began = time.perf_counter() - first.seconds
        for number in range(first.done, min((epoch + 1) * first.steps, first.plan.steps)):
            place = number - epoch * first.steps
            then = batches[place + 1] if place + 1 < first.steps else None
            self.step(number, batches[place], first.plan.lr(number), then)
            self._advance(number + 1, time.perf_counter() - began)
            view.step(number + 1, self.step.sums.mean(1))
            if (number + 1) % self.every == 0 and (stop or first.overdue):
                self._scatter()
                for course, run in zip(self.courses, self.runs, strict=True):
                    course.save(run)
                if stop:  # only here: a step in between is not on the disk
                    saved = f"Stopped after step {number + 1}, which is saved"
                    raise KeyboardInterrupt(f"{saved}: run the same command again.")
        self._advance(first.done, time.perf_counter() - began)

    def _advance(self, done: int, seconds: float) -> None:
        for course in self.courses:
            course.done, course.seconds = done, seconds

    def _remember(self, view: View) -> None:
        """Each run's record, weights and state, and one line for all on the terminal."""
        self._scatter()
        quiet = View(False, "", 1, 1)
        for course, run in zip(self.courses, self.runs, strict=True):
            course.look(run)
            course.remember(run, quiet)
        self.step.sums.zero_()
        records = [course.records[-1] for course in self.courses]
        numbers = {key for key, value in records[0].items() if isinstance(value, float)}
        view.epoch(
            records[0] | {key: sum(r[key] for r in records) / len(records) for key in numbers}
        )

    @torch.no_grad()
    def _scatter(self) -> None:
        """Weights, buffers, optimiser state and sums of the stack into the single trainings."""
        weights, kept = self.stack.weights(), self.stack.kept()
        for i, course in enumerate(self.courses):
            objective = course.objective
            for name, tensor in [*objective.named_buffers(), *objective.named_parameters()]:
                tensor.copy_((weights[name] if name in weights else kept[name])[i])
            for key, name, value in self._moments():
                parameter = objective.get_parameter(name)
                course.optimiser.state[parameter][key] = (
                    value[i].clone() if value.ndim else value.clone()
                )
            course.step.sums.copy_(self.step.sums[:, i])
            course.step.first_bad.copy_(self.step.first_bad[i])

    def _moments(self) -> list[tuple[str, str, Tensor]]:
        """What the optimiser remembers of every weight: key, weight, and one value per seed (or one for all)."""
        found = []
        for group, row in zip(self.stack.groups, self.stack.rows, strict=True):
            sizes = [self.stack.shapes[name].numel() for name in group]
            for key, value in self.optimiser.state.get(row, {}).items():
                parts = value.split(sizes, 1) if value.shape == row.shape else [value] * len(group)
                shaped = (
                    p.view(-1, *self.stack.shapes[n]) if p.ndim else p
                    for n, p in zip(group, parts, strict=True)
                )
                found += [(key, name, part) for name, part in zip(group, shaped, strict=True)]
        return found

    @torch.no_grad()
    def _gather(self) -> None:
        """The other way round, when a saved training is resumed; the weights are in the stack already."""
        for i, course in enumerate(self.courses):
            self.step.sums[:, i] = course.step.sums
        for group, row in zip(self.stack.groups, self.stack.rows, strict=True):
            states = [
                [c.optimiser.state.get(c.objective.get_parameter(n), {}) for n in group]
                for c in self.courses
            ]
            for key in states[0][0]:
                if states[0][0][key].ndim:
                    rows = [
                        torch.cat([state[key].flatten() for state in of_one]) for of_one in states
                    ]
                    self.optimiser.state[row][key] = torch.stack(rows).to(row.device)
                else:
                    self.optimiser.state[row][key] = states[0][0][key].clone()
